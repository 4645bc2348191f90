package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

func init() {
	Register(Kind{
		Name:    "disconnect",
		Summary: "take containers off their network, as docker network disconnect does: their packets go nowhere",
		Params: map[string]string{
			"network": "peers (on which servers reach each other; the default), clients, or both",
		},
		Needs: []string{Containers},
		New: func(params map[string]string) (Fault, error) {
			switch n := params["network"]; n {
			case "", "peers":
				return &disconnect{networks: []string{"peers"}}, nil
			case "clients":
				return &disconnect{networks: []string{"clients"}}, nil
			case "both":
				return &disconnect{networks: []string{"clients", "peers"}}, nil
			default:
				return nil, fmt.Errorf("disconnect: network %q: want peers, clients or both", n)
			}
		},
	})
}

// disconnect takes its targets off networks.
type disconnect struct {
	networks []string
	off      []Container
}

// Inject takes every target off the networks.
func (d *disconnect) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("disconnect: no target")
	}
	var proof []string
	for _, t := range targets {
		c := containerOf(t)
		if c == nil {
			return "", fmt.Errorf("disconnect: %s is no container: run with --runtime docker", t.Name())
		}
		before, pid := interfaces(t)
		d.off = append(d.off, c)
		for _, network := range d.networks {
			said, err := c.Leave(ctx, network)
			if err != nil {
				return "", fmt.Errorf("disconnect %s: %w", t.Name(), err)
			}
			proof = append(proof, said)
		}
		if before == nil {
			continue
		}
		after, _ := interfaces(t)
		if len(before)-len(after) != len(d.networks) {
			return "", fmt.Errorf("disconnect %s: its process %d had the network interfaces %v, and has %v", t.Name(), pid, before, after)
		}
		proof = append(proof, fmt.Sprintf("its process %d had the network interfaces %v, and has %v", pid, before, after))
	}
	return Proof(strings.Join(proof, ", ")), nil
}

// interfaces returns the network interfaces that a process of the target sees, as the
// kernel tells, and that process; nil where it is not seen from here.
func interfaces(t Target) (names []string, pid int) {
	p, ok := t.(Processes)
	if !ok {
		return nil, 0
	}
	pids, err := p.PIDs()
	if err != nil || len(pids) == 0 {
		return nil, 0
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pids[0]))
	if err != nil {
		return nil, 0
	}
	for line := range strings.Lines(string(table)) {
		if name, _, ok := strings.Cut(line, ":"); ok { // the head has none
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names, pids[0]
}

// Heal puts every target back on its networks.
func (d *disconnect) Heal(ctx context.Context) (Proof, error) {
	var proof []string
	var errs []error
	for _, c := range d.off {
		said, err := c.Rejoin(ctx)
		errs = append(errs, err)
		if err == nil {
			proof = append(proof, said)
		}
	}
	d.off = nil
	return Proof(strings.Join(proof, ", ")), errors.Join(errs...)
}
