package network

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

func init() {
	nemesis.Register(nemesis.Kind{
		Name:    "partition",
		Summary: "cut links between nodes, open connections and new ones, in any shape and direction",
		Needs:   []string{nemesis.Links},
		Params:  partitionParams(),
		New:     func(of map[string]string) (nemesis.Fault, error) { return partition("partition", of) },
	})
}

func partitionParams() map[string]string {
	return map[string]string{
		"shape":     "isolate (each target from all others; the default), split (into groups), or of the targets alone: halves, bridge, ring",
		"groups":    "of a split: A,n1|B,n2,n3; the nodes in none keep all their links",
		"peers":     "of isolate: the nodes that the targets are cut off from, such as n2,n3; all by default",
		"mode":      "hold (deliver on heal; the default), drop (lose; connections that lost something are reset on heal), refuse (reset, and refuse new ones)",
		"direction": "both (the default), to or from the targets (of a split: its first group), or replies: answers only, connections can still be opened",
		"match":     "stop only streams that contain this, in any case, from there on: PEXPIRE for renewals; not seen through TLS or HTTP/2",
		"seed":      "of the random choice of halves, bridge and ring, 1 by default",
	}
}

var modes = map[string]proxy.Mode{"hold": proxy.Hold, "drop": proxy.Drop, "refuse": proxy.Refuse}

// partition returns the fault that the parameters of a partition describe.
func partition(name string, of map[string]string) (*cut, error) {
	p := params{fault: name, of: of}
	shape := p.oneOf("shape", "isolate", "split", "halves", "bridge", "ring")
	mode := modes[p.oneOf("mode", "hold", "drop", "refuse")]
	direction := Direction(p.oneOf("direction", string(Both), string(To), string(From), string(Replies)))
	seed := p.number("seed", 1, 0, 1<<62)
	if p.err != nil {
		return nil, p.err
	}

	var groups [][]string
	var peers []string
	var err error
	for param, of := range map[string]string{"groups": "split", "peers": "isolate"} {
		if _, given := p.of[param]; given && shape != of {
			return nil, fmt.Errorf("%s: %s is only for the shape %s, not %s", name, param, of, shape)
		}
	}
	if shape == "split" {
		if groups, err = ParseGroups(of["groups"]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if text, given := of["peers"]; given {
		if peers, err = parseNames(text); err != nil {
			return nil, fmt.Errorf("%s: peers: %w", name, err)
		}
	}
	random := shape == "halves" || shape == "bridge" || shape == "ring"
	switch {
	case random && direction != Both:
		return nil, fmt.Errorf("%s: direction %s has no meaning for the shape %s", name, direction, shape)
	case mode == proxy.Refuse && direction != Both:
		return nil, fmt.Errorf("%s: a connection can only be refused in both directions, not %s", name, direction)
	case mode == proxy.Refuse && of["match"] != "":
		return nil, fmt.Errorf("%s: what a connection will carry is not known when it is refused, so match goes with hold and drop only", name)
	}

	// Replies are answers on either side's connections.
	flows := direction
	if direction == Replies {
		flows = Both
	}
	c := &cut{name: name}
	var match proxy.Matcher
	if text := of["match"]; text != "" {
		match, c.sample = proxy.Containing(text), []byte(text)
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	c.choose = func(mesh *proxy.Mesh, targets []string) ([]proxy.Cut, error) {
		if err := known(name, mesh, append(slices.Concat(groups...), peers...)); err != nil {
			return nil, err
		}
		if random && len(targets) < 3 {
			return nil, fmt.Errorf("%s: the shape %s is of three nodes or more, not of %s", name, shape, strings.Join(targets, ", "))
		}
		stopped := Flows{}
		switch shape {
		case "isolate":
			others := peers
			if others == nil {
				others = nodes(mesh)
			}
			for _, t := range targets {
				maps.Copy(stopped, Between([]string{t}, others, flows))
			}
		case "split":
			stopped = Split(groups, flows)
		case "halves":
			minority, majority := Halves(targets, rng)
			stopped = Between(minority, majority, Both)
		case "bridge":
			_, stopped = Bridge(targets, rng)
		case "ring":
			stopped = Ring(targets, rng)
		}
		cuts := directions(stopped, mesh.Links())
		for i := range cuts {
			cuts[i].Mode, cuts[i].Match = mode, match
			if direction == Replies {
				cuts[i].Up, cuts[i].Down, cuts[i].Established = false, true, true
			}
		}
		return cuts, nil
	}
	return c, nil
}
