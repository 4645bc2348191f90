package network

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
)

func init() {
	params := partitionParams()
	params["period"] = "from one cut to the next, 1s by default"
	params["duty"] = "per cent of a period that the links are cut, 50 by default"
	nemesis.Register(nemesis.Kind{
		Name:    "flapping",
		Summary: "a partition that comes and goes",
		Needs:   []string{nemesis.Links},
		Params:  params,
		New:     newFlapping,
	})
}

func newFlapping(of map[string]string) (nemesis.Fault, error) {
	p := params{fault: "flapping", of: of}
	period := p.duration("period", time.Second, 20*time.Millisecond)
	duty := p.number("duty", 50, 1, 99)
	if p.err != nil {
		return nil, p.err
	}
	c, err := partition("flapping", of)
	if err != nil {
		return nil, err
	}
	down := period * time.Duration(duty) / 100
	return &flapping{cut: c, down: down, up: period - down}, nil
}

// flapping cuts links again and again.
type flapping struct {
	cut      *cut
	down, up time.Duration

	stop    chan struct{}
	flaps   sync.WaitGroup // who owns what is below, and the cut, until done
	times   int
	failure error
}

// Inject returns when the links were cut once and healed once, both proven. They
// go on flapping, the same links always, until Heal.
func (f *flapping) Inject(ctx context.Context, targets []nemesis.Target) (nemesis.Proof, error) {
	if f.stop != nil {
		return "", fmt.Errorf("flapping: is in effect already")
	}
	cutProof, err := f.cut.Inject(ctx, targets)
	if err != nil {
		return "", err
	}
	if err := wait(ctx, f.down); err != nil {
		return "", fmt.Errorf("flapping: %w", err)
	}
	healProof, err := f.cut.lift(ctx)
	if err != nil {
		return "", err
	}
	f.times = 1
	f.stop = make(chan struct{})
	f.flaps.Go(f.flap)
	return nemesis.Proof(fmt.Sprintf("%s. %s. Down for %v, up for %v, again and again", cutProof, healProof, f.down, f.up)), nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *flapping) flap() {
	for {
		for _, up := range []bool{true, false} {
			d := f.down
			if up {
				d = f.up
			}
			select {
			case <-time.After(d):
			case <-f.stop:
				return
			}
			if err := f.turn(up); err != nil {
				f.failure = err
				return
			}
		}
	}
}

// turn cuts the links if they are up, else heals them.
func (f *flapping) turn(up bool) error {
	if !up {
		return f.cut.trouble.Heal()
	}
	trouble, err := f.cut.watch.mesh.Cut(f.cut.cuts...)
	f.cut.trouble = trouble
	f.times++
	return err
}

// Heal stops the flapping, with the links up, and shows that they work.
func (f *flapping) Heal(ctx context.Context) (nemesis.Proof, error) {
	if f.stop != nil {
		close(f.stop)
		f.flaps.Wait()
		f.stop = nil
	}
	proof, err := f.cut.Heal(ctx)
	if err != nil {
		return "", err
	}
	if f.failure != nil {
		return "", fmt.Errorf("flapping stopped by itself after %d times: %w", f.times, f.failure)
	}
	return nemesis.Proof(fmt.Sprintf("cut %d times. %s", f.times, proof)), nil
}
