package nemesis

import (
	"context"
	"errors"
	"fmt"
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
		d.off = append(d.off, c)
		for _, network := range d.networks {
			said, err := c.Leave(ctx, network)
			if err != nil {
				return "", fmt.Errorf("disconnect %s: %w", t.Name(), err)
			}
			proof = append(proof, said)
		}
	}
	return Proof(strings.Join(proof, ", ")), nil
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
