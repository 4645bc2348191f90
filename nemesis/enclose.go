package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/nemesis/starve"
)

// effectTimeout bounds the wait for the effect of a fault that starves, on a
// busy machine.
const effectTimeout = 10 * time.Second

// await asks again until it is so.
func await(ctx context.Context, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := so(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it was not seen that %s: %w", what, ctx.Err())
		}
	}
}

// about says in an error which target it is about.
func about(t Target, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", t.Name(), err)
	}
	return nil
}

// forEach calls f for the numbers of all targets at once, and returns what it
// said of each, or the errors.
func forEach(targets []Target, f func(i int) (string, error)) ([]string, error) {
	all := make([]int, len(targets))
	for i := range all {
		all[i] = i
	}
	return atOnce(all, func(i int) (string, error) {
		said, err := f(i)
		return said, about(targets[i], err)
	})
}

// runningOf returns what lists the processes of a target, and those that run.
func runningOf(t Target) (Processes, []process, error) {
	if containerOf(t) != nil {
		return nil, nil, errors.New("it is a container, whose processes are its engine's to move")
	}
	ps, ok := t.(Processes)
	if !ok {
		return nil, nil, errors.New("it is not made of processes")
	}
	all, err := running(ps)
	return ps, all, err
}

// enclosure is a control group with the processes of a target.
type enclosure struct {
	*starve.Group
	target     string
	controller string
	processes  []process // those that were moved
}

// String names the processes and the group.
func (e *enclosure) String() string {
	pids := make([]string, len(e.processes))
	for i, p := range e.processes {
		pids[i] = strconv.Itoa(p.pid)
	}
	return fmt.Sprintf("%s: process %s in control group %s", e.target, strings.Join(pids, ", "), e.Name())
}

// enclose moves a target's processes to a new control group, after limit has
// made its settings and seen them work, and returns when all are there. What they
// fork from then on is there as well. The result, if any, is to be opened, also
// after an error.
func enclose(ctx context.Context, controller string, t Target, limit func(*starve.Group) error) (*enclosure, error) {
	ps, first, err := runningOf(t)
	if err != nil {
		return nil, err
	}
	home, err := starve.Home(controller, first[0].pid)
	if err != nil {
		return nil, err
	}
	g, err := starve.NewGroup(controller, first[0].pid)
	if err != nil {
		return nil, err
	}
	e := &enclosure{Group: g, target: t.Name(), controller: controller}
	if err := limit(g); err != nil {
		return e, err
	}
	// A look may find what was forked by one that was not there yet.
	return e, await(ctx, "all its processes are in control group "+g.Name(), func() (bool, error) {
		now, err := running(ps)
		if err != nil {
			return false, err
		}
		members, err := g.Members()
		if err != nil {
			return false, err
		}
		all := true
		for _, p := range now {
			if slices.Contains(members, p.pid) {
				continue
			}
			all = false
			switch at, err := starve.Home(controller, p.pid); {
			case starve.Gone(err):
				continue
			case err != nil:
				return false, err
			case at != home:
				return false, fmt.Errorf("its processes are in control groups %s and %s, from which they cannot be moved together", home, at)
			}
			if err := g.Add(p.pid); err != nil {
				return false, err
			}
		}
		e.processes = now
		return all, nil
	})
}

// open moves everything back and removes the group. It may be called repeatedly.
func (e *enclosure) open(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	if err := e.Remove(ctx); err != nil {
		return "", fmt.Errorf("%s: remove control group %s: %w", e.target, e.Name(), err)
	}
	for _, p := range e.processes {
		s, err := processState(p.pid)
		if err != nil || s.start != p.start || s.code == 'Z' {
			continue // gone
		}
		home, err := e.IsHome(e.controller, p.pid)
		if err == nil && !home {
			err = errors.New("it is not in the control group that it came from")
		}
		if err != nil && !starve.Gone(err) {
			return "", fmt.Errorf("%s: process %d: %w", e.target, p.pid, err)
		}
	}
	return fmt.Sprintf("%s: control group %s is gone, what was in it is back where it came from", e.target, e.Name()), nil
}

// tryGroup sees whether a control group can be made for processes like this
// one, with the settings that limit makes.
func tryGroup(controller string, limit func(*starve.Group) error) error {
	g, err := starve.NewGroup(controller, os.Getpid())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), effectTimeout)
	defer cancel()
	return errors.Join(limit(g), g.Remove(ctx))
}
