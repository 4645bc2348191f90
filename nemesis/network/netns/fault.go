package netns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
)

func init() {
	nemesis.Register(nemesis.Kind{
		Name:      "packets",
		Summary:   "drop the packets between nodes, so that connections stay half open (in network namespaces)",
		Available: Available,
		Needs:     []string{nemesis.Namespaces},
		Params: map[string]string{
			"direction": "both (the default), to or from the targets",
			"peers":     "the nodes that the targets are cut off from, such as n2,n3; all by default",
		},
		New: newDrop,
	})
}

// Inside is a nemesis.Target that is a node of a Net, under its own name.
type Inside interface {
	nemesis.Target
	Namespaces() *Net
}

// drop cuts its targets off from other nodes, packet by packet.
type drop struct {
	direction string
	peers     []string

	net   *Net
	flows []Flow // that this fault drops, and not another one before it
}

func newDrop(params map[string]string) (nemesis.Fault, error) {
	d := &drop{direction: params["direction"]}
	switch d.direction {
	case "":
		d.direction = "both"
	case "both", "to", "from":
	default:
		return nil, fmt.Errorf("packets: direction is %q, want both, to or from", d.direction)
	}
	if text, given := params["peers"]; given {
		for name := range strings.SplitSeq(text, ",") {
			if name = strings.TrimSpace(name); name == "" {
				return nil, fmt.Errorf("packets: peers: %q has an empty name", text)
			}
			d.peers = append(d.peers, name)
		}
	}
	return d, nil
}

// Inject drops packets, and shows for each flow that one that arrived before does
// not now, and that it is the firewall that dropped it.
func (d *drop) Inject(ctx context.Context, targets []nemesis.Target) (nemesis.Proof, error) {
	if d.net != nil {
		return "", errors.New("packets: is in effect already")
	}
	if err := d.choose(targets); err != nil {
		return "", err
	}
	for _, f := range d.flows {
		if err := d.expect(ctx, f, true); err != nil {
			return "", fmt.Errorf("packets: before the fault: %w", err)
		}
	}
	if err := d.net.Drop(d.flows...); err != nil {
		return "", fmt.Errorf("packets: %w", err)
	}
	var total int64
	for _, f := range d.flows {
		if err := d.expect(ctx, f, false); err != nil {
			return "", fmt.Errorf("packets did not take effect: %w", err)
		}
		n, err := d.net.Dropped(f)
		if err != nil {
			return "", fmt.Errorf("packets: %w", err)
		}
		if n == 0 {
			return "", fmt.Errorf("packets did not take effect: a packet %s was lost, but not in the firewall", f)
		}
		total += n
	}
	return nemesis.Proof(fmt.Sprintf("packets: dropped %v; a packet each arrived before, and now none does: the firewalls count %d dropped",
		d.flows, total)), nil
}

// choose finds the flows to drop.
func (d *drop) choose(targets []nemesis.Target) error {
	var net *Net
	var names []string
	for _, t := range targets {
		inside, ok := t.(Inside)
		if !ok || inside.Namespaces() == nil {
			return fmt.Errorf("packets: %s is not in a network namespace: use the network netns", t.Name())
		}
		if net != nil && net != inside.Namespaces() {
			return fmt.Errorf("packets: %s and %s are in different networks", names[0], t.Name())
		}
		net = inside.Namespaces()
		names = append(names, t.Name())
	}
	if net == nil {
		return errors.New("packets: no target")
	}
	all := net.Nodes()
	peers := d.peers
	if peers == nil {
		peers = all
	}
	for _, name := range slices.Concat(names, peers) {
		if !slices.Contains(all, name) {
			return fmt.Errorf("packets: there is no node %s: there are %s", name, strings.Join(all, ", "))
		}
	}
	dropped := net.dropped()
	var flows []Flow
	add := func(f Flow) {
		if f.From != f.To && !slices.Contains(flows, f) && !slices.Contains(dropped, f) {
			flows = append(flows, f)
		}
	}
	for _, name := range names {
		for _, peer := range peers {
			if d.direction != "from" {
				add(Flow{peer, name})
			}
			if d.direction != "to" {
				add(Flow{name, peer})
			}
		}
	}
	if len(flows) == 0 {
		return fmt.Errorf("packets: nothing flows between %v and %v that is not dropped already", names, peers)
	}
	d.net, d.flows = net, flows
	return nil
}

// lostAfter is how long a packet is waited for that should not arrive. One that
// does takes less than a millisecond; the firewall's count is the better proof.
const lostAfter = 20 * time.Millisecond

func (d *drop) expect(ctx context.Context, f Flow, arrives bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wait := lostAfter
	if arrives {
		wait = 0
	}
	arrived, err := d.net.Ping(f, wait)
	if err == nil && arrived != arrives {
		err = fmt.Errorf("a packet %s arrived: %v, want %v", f, arrived, arrives)
	}
	return err
}

// Heal lets packets pass again, and shows that they do.
func (d *drop) Heal(ctx context.Context) (nemesis.Proof, error) {
	if d.net == nil {
		return "packets: nothing to heal", nil
	}
	var real int64
	for _, f := range d.flows {
		if n, err := d.net.Dropped(f); err == nil {
			real += n - 1 // the probe
		}
	}
	if err := d.net.Heal(d.flows...); err != nil {
		return "", fmt.Errorf("packets: %w", err)
	}
	for _, f := range d.flows {
		if err := d.expect(ctx, f, true); err != nil {
			return "", fmt.Errorf("packets: after the heal: %w", err)
		}
	}
	proof := fmt.Sprintf("packets healed: %v; a packet each arrives. Besides probes, %d packets were dropped", d.flows, max(0, real))
	d.net, d.flows = nil, nil
	return nemesis.Proof(proof), nil
}
