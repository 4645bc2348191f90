package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/lockcheck/lockcheck/nemesis/starve"
)

func init() {
	Register(Kind{
		Name:      "memory",
		Summary:   "limit the memory that processes take from now on, by a control group",
		Available: func() error { return tryGroup("memory", (&memory{limit: memoryByDefault}).set) },
		Params: map[string]string{
			"limit": "bytes that each target may take beyond what it has already, such as 32MB; 16MB by default",
		},
		New: newMemory,
	})
}

const memoryByDefault = 16e6

// memory limits what its targets take. With version 2 of control groups the
// kernel slows down and reclaims from those above the limit (memory.high); all
// goes on. Version 1 has but a hard limit. The kernel is told not to kill those
// that hit it: a thread that touches new memory waits until there is some below
// the limit, or the fault is healed. But what the kernel itself would write for
// a process fails then: system calls, and the frame of a signal, which ends it.
type memory struct {
	limit int64
	held  []limited
}

// limited is a target that the limit is in effect on.
type limited struct {
	*enclosure
	tried int64 // hits of the limit before the target was there
}

func newMemory(params map[string]string) (Fault, error) {
	m := &memory{limit: memoryByDefault}
	if text, given := params["limit"]; given {
		var err error
		if m.limit, err = parseBytes(text); err != nil || m.limit < 1e6 {
			return nil, fmt.Errorf("memory: limit is %q, want bytes from 1MB to 1000GB, such as 32MB", text)
		}
	}
	return m, nil
}

// parseBytes reads a number of bytes such as 500, 64KB, 10MB or 1GB (of 1000).
func parseBytes(text string) (int64, error) {
	number, unit := strings.ToUpper(text), int64(1)
	for suffix, u := range map[string]int64{"KB": 1e3, "MB": 1e6, "GB": 1e9} {
		if before, found := strings.CutSuffix(number, suffix); found {
			number, unit = before, u
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil {
		return 0, err
	}
	if n < 0 || n > 1e12/unit {
		return 0, strconv.ErrRange
	}
	return n * unit, nil
}

// set sets the limit of a group, and reads it back.
func (m *memory) set(g *starve.Group) error {
	file := "memory.high"
	if !g.V2 {
		// Before anything can hit the limit.
		if err := g.Set("memory.oom_control", "1"); err != nil {
			return fmt.Errorf("keep the kernel from killing processes: %w", err)
		}
		if off, err := g.Count("memory.oom_control", "oom_kill_disable"); err != nil || off != 1 {
			return errors.Join(errors.New("the kernel would kill processes for want of memory"), err)
		}
		file = "memory.limit_in_bytes"
	}
	if err := g.Set(file, strconv.FormatInt(m.limit, 10)); err != nil {
		return err
	}
	// The kernel counts in pages.
	if is, err := g.Count(file, ""); err != nil || is > m.limit || is <= m.limit-int64(os.Getpagesize()) {
		return errors.Join(fmt.Errorf("%s is %d, want %d", file, is, m.limit), err)
	}
	return nil
}

// hits returns how often processes of a group ran into its limit.
func hits(g *starve.Group) (int64, error) {
	if g.V2 {
		return g.Count("memory.events", "high")
	}
	return g.Count("memory.failcnt", "")
}

// Inject returns once a process that takes more has hit the limit of each
// target's group, has been ended, and the target has been moved there in its
// place.
func (m *memory) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("memory: no target")
	}
	m.held = make([]limited, len(targets))
	proof, err := forEach(targets, func(i int) (_ string, err error) {
		l := &m.held[i]
		l.enclosure, err = enclose(ctx, "memory", targets[i], func(g *starve.Group) (err error) {
			if err := m.set(g); err != nil {
				return err
			}
			l.tried, err = m.try(ctx, g)
			return err
		})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s with a limit of %d bytes, which a process that took more has hit %d times", l, m.limit, l.tried), nil
	})
	if err != nil {
		return "", fmt.Errorf("memory: %w", err)
	}
	return Proof(strings.Join(proof, "; ")), nil
}

// try has a process in the group take more than the limit, ends it, and returns
// how often it has hit the limit.
func (m *memory) try(ctx context.Context, g *starve.Group) (n int64, err error) {
	filler, err := starve.StartFiller(m.limit + 1e6)
	if err != nil {
		return 0, err
	}
	fill := func() error {
		if err := g.Add(filler.PID()); err != nil {
			return err
		}
		if err := filler.Fill(); err != nil {
			return err
		}
		return await(ctx, fmt.Sprintf("a process that takes more than %d bytes hits the limit", m.limit), func() (bool, error) {
			n, err := hits(g)
			return n > 0, err
		})
	}
	if err := errors.Join(fill(), filler.Close(context.WithoutCancel(ctx))); err != nil {
		return 0, err
	}
	return hits(g)
}

// Heal lifts the limits, moves the processes back and removes the groups. The
// proof says how often they have hit the limits.
func (m *memory) Heal(ctx context.Context) (Proof, error) {
	var proof []string
	var errs []error
	for _, l := range m.held {
		if l.enclosure == nil {
			continue
		}
		said, err := l.lift(ctx)
		proof, errs = append(proof, said), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("memory: %w", err)
	}
	m.held = nil
	return Proof(strings.Join(proof, "; ")), nil
}

func (l *limited) lift(ctx context.Context) (string, error) {
	n, countErr := hits(l.Group)
	// This wakes those that wait for memory in the group.
	file, none := "memory.high", "max"
	if !l.V2 {
		file, none = "memory.limit_in_bytes", "-1"
	}
	setErr := l.Set(file, none)
	said, err := l.open(ctx)
	if err != nil || starve.Gone(setErr) { // the latter if it was opened before
		return said, err
	}
	return fmt.Sprintf("%s; it has hit its limit %d times", said, n-l.tried), errors.Join(countErr, setErr)
}
