package network

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// cut is a fault that cuts links, whatever their choice.
type cut struct {
	name string
	// choose returns what to cut around the targets, all of one mode.
	choose func(mesh *proxy.Mesh, targets []string) ([]proxy.Cut, error)
	// sample is something that the cuts match, nil if they stop everything.
	sample []byte

	trouble *proxy.Trouble
	watch   *watch
	cuts    []proxy.Cut
}

// Inject cuts, and shows for each link that a connection that was there, and one
// that is new, fare as the cut says.
func (c *cut) Inject(ctx context.Context, targets []nemesis.Target) (nemesis.Proof, error) {
	if c.trouble != nil {
		return "", fmt.Errorf("%s: is in effect already", c.name)
	}
	mesh, names, err := meshOf(c.name, targets)
	if err != nil {
		return "", err
	}
	if c.cuts, err = c.choose(mesh, names); err != nil {
		return "", err
	}
	if len(c.cuts) == 0 {
		return "", fmt.Errorf("%s: no link of %s is concerned", c.name, strings.Join(names, ", "))
	}
	links := make([]proxy.Link, len(c.cuts))
	for i, x := range c.cuts {
		links[i] = x.Link
	}
	if c.watch, err = newWatch(ctx, mesh, links, c.sample); err != nil {
		c.watch.close()
		return "", fmt.Errorf("%s: %w", c.name, err)
	}
	return c.apply(ctx)
}

// apply makes the cuts. The watch must be fresh.
func (c *cut) apply(ctx context.Context) (nemesis.Proof, error) {
	var err error
	if c.trouble, err = c.watch.mesh.Cut(c.cuts...); err != nil {
		return "", fmt.Errorf("%s: %w", c.name, err)
	}
	want := map[proxy.Link]proxy.Cut{}
	ways := [2]int{}
	for _, x := range c.cuts {
		want[x.Link] = x
		if x.Up && x.Down || x.Mode == proxy.Refuse {
			ways[1]++
		} else {
			ways[0]++
		}
	}
	err = c.watch.each(ctx, func(ctx context.Context, l *watched) error {
		return c.prove(ctx, l, want[l.Link])
	})
	if err != nil {
		return "", fmt.Errorf("%s did not take effect: %w", c.name, err)
	}
	already := 0
	for _, l := range c.watch.links {
		if l.before != proxy.Answered {
			already++
		}
	}
	proof := fmt.Sprintf("%s: %d links cut (%d both ways, %d one way), by %s: %s. Probes were answered in %v before; now %s",
		c.name, len(c.cuts), ways[1], ways[0], c.cuts[0].Mode, c.watch.names(), c.watch.usual(), outcome(c.cuts[0], c.sample))
	if already > 0 {
		proof += fmt.Sprintf(". %d of the links were in trouble already", already)
	}
	return nemesis.Proof(proof), nil
}

// outcome says what prove has seen.
func outcome(x proxy.Cut, sample []byte) string {
	switch {
	case x.Mode == proxy.Refuse:
		return "their connections are reset and new ones refused"
	case x.Match != nil:
		return fmt.Sprintf("those that say %q are stopped, on old connections and new ones, and others are not", sample)
	case x.Established:
		return "their answers are stopped, on old connections and new ones"
	}
	return "they are stopped, and new connections wait"
}

// prove returns an error unless the probes of a link fare as the cut says.
func (c *cut) prove(ctx context.Context, l *watched, x proxy.Cut) error {
	if l.before != proxy.Answered {
		// Another fault has it; the probe can't tell one from the other.
		return nil
	}
	stopped := proxy.StoppedUp
	if !x.Up {
		stopped = proxy.StoppedDown
	}
	var fate proxy.Fate
	var err error
	if x.Mode == proxy.Refuse {
		if err := l.old.Ended(ctx); !proxy.IsCut(err) {
			return fmt.Errorf("an open connection was not reset: %w", err)
		}
		l.fresh, fate, err = c.watch.open(ctx, l.Link)
		return expect("a new connection", fate, proxy.CutOff, err)
	}
	if fate, err = l.old.Try(ctx, c.sample); err != nil || fate != stopped {
		return expect("on an open connection", fate, stopped, err)
	}
	if x.Match != nil {
		harmless, err := c.watch.mesh.Probe(ctx, l.Link)
		if err != nil {
			return err
		}
		defer harmless.Close()
		if fate, err = harmless.Try(ctx, nil); err != nil || fate != proxy.Answered {
			return expect("without "+string(c.sample), fate, proxy.Answered, err)
		}
	}
	want := proxy.Waiting
	if x.Match != nil || x.Established {
		want = stopped
	}
	l.fresh, fate, err = c.watch.open(ctx, l.Link)
	return expect("on a new connection", fate, want, err)
}

func expect(where string, fate, want proxy.Fate, err error) error {
	if err == nil && fate != want {
		err = fmt.Errorf("a probe %s was %s, want %s", where, fate, want)
	}
	return err
}

// Heal ends the cut, and shows that what probes sent into it has arrived, if it
// was held, and that new connections get through.
func (c *cut) Heal(ctx context.Context) (nemesis.Proof, error) {
	if c.trouble == nil {
		return nemesis.Proof(c.name + ": nothing to heal"), nil
	}
	defer c.watch.close()
	proof, err := c.lift(ctx)
	if err == nil {
		c.trouble = nil
	}
	return proof, err
}

func (c *cut) lift(ctx context.Context) (nemesis.Proof, error) {
	traffic := c.watch.traffic()
	if err := c.trouble.Heal(); err != nil {
		return "", fmt.Errorf("%s: %w", c.name, err)
	}
	late := ""
	if c.cuts[0].Mode == proxy.Hold {
		late = "what probes had sent arrived late, and "
		err := c.watch.each(ctx, func(ctx context.Context, l *watched) error {
			if c.watch.mesh.Troubled(l.Link) || l.before != proxy.Answered {
				return nil
			}
			var errs []error
			for _, p := range []*proxy.Probe{l.old, l.fresh} {
				if p != nil {
					errs = append(errs, p.Delivered(ctx))
				}
			}
			return errors.Join(errs...)
		})
		if err != nil {
			return "", fmt.Errorf("%s: what was held did not arrive: %w", c.name, err)
		}
	}
	troubled, err := c.watch.answers(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: healed, but the links do not work: %w", c.name, err)
	}
	proof := fmt.Sprintf("%s healed: %snew probes are answered on %d of %d links; %s",
		c.name, late, len(c.cuts)-len(troubled), len(c.cuts), traffic)
	if len(troubled) > 0 {
		proof += ". In other trouble still: " + strings.Join(troubled, ", ")
	}
	return nemesis.Proof(proof), nil
}
