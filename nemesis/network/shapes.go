package network

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// Flow is what travels from one node to another, whoever opened the connection.
type Flow struct {
	From, To string
}

// Flows is a set of flows, such as those that a partition stops.
type Flows map[Flow]struct{}

// Sorted returns the flows in a fixed order.
func (f Flows) Sorted() []Flow {
	return slices.SortedFunc(maps.Keys(f), func(a, b Flow) int {
		return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
	})
}

func (f Flows) add(other Flows) Flows {
	maps.Copy(f, other)
	return f
}

// Direction is seen from the nodes that a fault is about.
type Direction string

const (
	Both    Direction = "both"
	To      Direction = "to"      // only what travels to them
	From    Direction = "from"    // only what they send
	Replies Direction = "replies" // only answers to requests, on either side's connections
)

// Between returns the flows between two groups, in a direction as seen from the
// first. A node in both groups is not cut off from itself.
func Between(a, b []string, d Direction) Flows {
	flows := Flows{}
	for _, x := range a {
		for _, y := range b {
			if x == y {
				continue
			}
			if d != From {
				flows[Flow{y, x}] = struct{}{}
			}
			if d != To {
				flows[Flow{x, y}] = struct{}{}
			}
		}
	}
	return flows
}

// Split returns the flows between groups of nodes. Inside a group nothing is
// cut, nor anything to or from nodes in no group. To and From are as seen from
// the first group.
func Split(groups [][]string, d Direction) Flows {
	flows := Flows{}
	for i, a := range groups {
		for _, b := range groups[i+1:] {
			flows.add(Between(a, b, d))
		}
	}
	return flows
}

// Halves divides nodes at random into a minority and a majority, as even as can be:
// two and three of five. Of an even number neither side is a majority.
func Halves(nodes []string, rng *rand.Rand) (minority, majority []string) {
	shuffled := shuffle(nodes, rng)
	return shuffled[:len(nodes)/2], shuffled[len(nodes)/2:]
}

// Bridge divides nodes at random into two halves that can't reach each other, and
// one node that reaches both. It needs three.
func Bridge(nodes []string, rng *rand.Rand) (bridge string, flows Flows) {
	shuffled := shuffle(nodes, rng)
	rest := shuffled[1:]
	return shuffled[0], Between(rest[:len(rest)/2], rest[len(rest)/2:], Both)
}

// Ring lets every node hear a majority of nodes, itself among them, and no two nodes the
// same one: they stand in a ring, in random order, and hear their neighbours.
// Three nodes hear one other each, in a circle. It needs three. (Jepsen's
// majorities ring.)
func Ring(nodes []string, rng *rand.Rand) Flows {
	ring := shuffle(nodes, rng)
	n := len(ring)
	majority := n/2 + 1
	flows := Flows{}
	for i := range ring {
		// The window of a majority that starts at i is what its middle hears.
		hears := map[string]bool{}
		for j := range majority {
			hears[ring[(i+j)%n]] = true
		}
		middle := ring[(i+majority/2)%n]
		for _, other := range ring {
			if !hears[other] {
				flows[Flow{other, middle}] = struct{}{}
			}
		}
	}
	return flows
}

func shuffle(nodes []string, rng *rand.Rand) []string {
	s := slices.Sorted(slices.Values(nodes))
	rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// ParseGroups reads groups such as "A,n1|B,n2,n3".
func ParseGroups(text string) ([][]string, error) {
	var groups [][]string
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, "|") {
		names, err := parseNames(part)
		if err != nil {
			return nil, fmt.Errorf("groups %q: %w", text, err)
		}
		for _, name := range names {
			if seen[name] {
				return nil, fmt.Errorf("groups %q: %s is named twice", text, name)
			}
			seen[name] = true
		}
		groups = append(groups, names)
	}
	if len(groups) < 2 {
		return nil, fmt.Errorf("groups %q: there must be two at least, such as A,n1|B,n2,n3", text)
	}
	return groups, nil
}

// parseNames reads names such as "n1,n2".
func parseNames(text string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			return nil, fmt.Errorf("%q has an empty name", text)
		}
		names = append(names, name)
	}
	return names, nil
}

// directions returns which directions of which links carry flows, the links in the
// order given.
func directions(flows Flows, links []proxy.Link) []proxy.Cut {
	var cuts []proxy.Cut
	for _, l := range links {
		_, up := flows[Flow{l.Source, l.Target}]
		_, down := flows[Flow{l.Target, l.Source}]
		if up || down {
			cuts = append(cuts, proxy.Cut{Link: l, Up: up, Down: down})
		}
	}
	return cuts
}
