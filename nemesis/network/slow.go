package network

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// slowParams are the parameters that all slow links share.
func slowParams(more map[string]string) map[string]string {
	more["direction"] = "both (the default), to or from the targets"
	more["peers"] = "only the links with these nodes, such as n2,n3; with all by default"
	return more
}

// slow is a fault that makes links slow.
type slow struct {
	choice  *cut // only for its choice of links and directions
	pace    proxy.Pace
	payload int // bytes that a probe sends to see it
	// seen says what the probe has seen of the pace in so many directions, or
	// returns an error if that is not the pace.
	seen func(l *watched, directions int, took time.Duration, pieces int64) (string, error)

	trouble *proxy.Trouble
	watch   *watch
}

// newSlow reads the parameters that all slow links share.
func newSlow(p *params, s *slow) (nemesis.Fault, error) {
	if p.err != nil {
		return nil, p.err
	}
	isolate := map[string]string{}
	for _, name := range []string{"direction", "peers"} {
		if v, given := p.of[name]; given {
			isolate[name] = v
		}
	}
	p.oneOf("direction", string(Both), string(To), string(From))
	if p.err != nil {
		return nil, p.err
	}
	var err error
	if s.choice, err = partition(p.fault, isolate); err != nil {
		return nil, err
	}
	return s, nil
}

// Inject makes the links slow, and measures it with probes.
func (s *slow) Inject(ctx context.Context, targets []nemesis.Target) (nemesis.Proof, error) {
	name := s.choice.name
	if s.trouble != nil {
		return "", fmt.Errorf("%s: is in effect already", name)
	}
	mesh, names, err := meshOf(name, targets)
	if err != nil {
		return "", err
	}
	cuts, err := s.choice.choose(mesh, names)
	if err != nil {
		return "", err
	}
	if len(cuts) == 0 {
		return "", fmt.Errorf("%s: no link of %s is concerned", name, strings.Join(names, ", "))
	}
	var links []proxy.Link
	var slowdowns []proxy.Slowdown
	directions := map[proxy.Link]int{}
	for _, c := range cuts {
		links = append(links, c.Link)
		slowdowns = append(slowdowns, proxy.Slowdown{Link: c.Link, Up: c.Up, Down: c.Down, Pace: s.pace})
		directions[c.Link] = 1
		if c.Up && c.Down {
			directions[c.Link] = 2
		}
	}
	if s.watch, err = newWatch(ctx, mesh, links, make([]byte, s.payload)); err != nil {
		s.watch.close()
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if s.trouble, err = mesh.Slow(slowdowns...); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	example := make(chan string, len(links))
	err = s.watch.each(ctx, func(ctx context.Context, l *watched) error {
		if l.before != proxy.Answered {
			return nil // another fault has cut it
		}
		up, down := l.old.Pieces()
		fate, err := l.old.Try(ctx, s.watch.payload)
		if err != nil {
			return err
		}
		if fate != proxy.Answered {
			return fmt.Errorf("a probe was %s", fate)
		}
		upNow, downNow := l.old.Pieces()
		seen, err := s.seen(l, directions[l.Link], l.old.Took(), max(upNow-up, downNow-down))
		if err != nil {
			return err
		}
		example <- fmt.Sprintf("%s on %s", seen, l.Link)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("%s did not take effect: %w", name, err)
	}
	proof := fmt.Sprintf("%s on %d links: %s", name, len(links), s.watch.names())
	select {
	case e := <-example:
		proof += ". Measured: " + e
	default:
		return "", errors.New(name + ": all links are cut by another fault, so it can't show")
	}
	return nemesis.Proof(proof), nil
}

// Heal lets the links be as fast as ever, and shows it.
func (s *slow) Heal(ctx context.Context) (nemesis.Proof, error) {
	name := s.choice.name
	if s.trouble == nil {
		return nemesis.Proof(name + ": nothing to heal"), nil
	}
	defer s.watch.close()
	traffic := s.watch.traffic()
	if err := s.trouble.Heal(); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	troubled, err := s.watch.answers(ctx)
	if err != nil {
		return "", fmt.Errorf("%s: healed, but the links do not work: %w", name, err)
	}
	s.trouble = nil
	return nemesis.Proof(fmt.Sprintf("%s healed: new probes are answered on %d of %d links; %s",
		name, len(s.watch.links)-len(troubled), len(s.watch.links), traffic)), nil
}
