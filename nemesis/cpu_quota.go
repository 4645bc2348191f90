package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/nemesis/starve"
)

// quota leaves each target a share of a processor by a control group. A process
// that is always busy is in the group too, so that targets find the share used
// up even if they need little.
type quota struct {
	share float64
	held  []held
}

// held is a target that the quota is in effect on.
type held struct {
	*enclosure
	busy *starve.Burners
}

func quotaAvailable() error { return tryGroup("cpu", (&quota{share: 0.01}).limit) }

// times returns the period, and how much processor time the share is in it. The
// kernel wants a quota of a millisecond at least, and a period of a second at most.
func (q *quota) times() (quota, period time.Duration) {
	period = 100 * time.Millisecond
	quota = time.Duration(q.share * float64(period)).Round(time.Microsecond)
	if quota < time.Millisecond {
		quota = time.Millisecond
		period = time.Duration(float64(quota) / q.share).Round(time.Microsecond)
	}
	return quota, period
}

// limit sets the quota of a group, and reads it back.
func (q *quota) limit(g *starve.Group) error {
	of, period := q.times()
	settings := [][2]string{
		{"cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10)},
		{"cpu.cfs_quota_us", strconv.FormatInt(of.Microseconds(), 10)},
	}
	if g.V2 {
		settings = [][2]string{{"cpu.max", fmt.Sprintf("%d %d", of.Microseconds(), period.Microseconds())}}
	}
	for _, s := range settings {
		if err := g.Set(s[0], s[1]); err != nil {
			return err
		}
		if is, err := g.Get(s[0]); err != nil || is != s[1] {
			return errors.Join(fmt.Errorf("%s is %q, want %q", s[0], is, s[1]), err)
		}
	}
	return nil
}

// Inject returns once the kernel has stopped each target's group for having
// used up its share, and the busy process was seen to get no more than that.
func (q *quota) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("cpu: no target")
	}
	q.held = make([]held, len(targets))
	proof, err := forEach(targets, func(i int) (string, error) { return q.starve(ctx, targets[i], &q.held[i]) })
	if err != nil {
		return "", fmt.Errorf("cpu: %w", err)
	}
	return Proof(strings.Join(proof, "; ")), nil
}

func (q *quota) starve(ctx context.Context, t Target, h *held) (_ string, err error) {
	if h.enclosure, err = enclose(ctx, "cpu", t, q.limit); err != nil {
		return "", err
	}
	if h.busy, err = starve.StartBurners(ctx, 1, starve.Anywhere); err != nil {
		return "", err
	}
	if err := h.Add(h.busy.PIDs()...); err != nil {
		return "", err
	}
	before, err := h.look()
	if err != nil {
		return "", err
	}
	const periods = 4
	var now usage
	err = await(ctx, "the kernel stops the processes", func() (bool, error) {
		now, err = h.look()
		return now.periods-before.periods >= periods && now.stopped > before.stopped, err
	})
	if err != nil {
		return "", err
	}
	of, period := q.times()
	got, took := now.busy-before.busy, now.at.Sub(before.at)
	// The kernel stops it at a tick, which are up to 10 ms apart, and lets it
	// go later in return.
	if most := time.Duration(q.share*float64(took)) + of + 10*time.Millisecond; got > most {
		return "", fmt.Errorf("a busy process in control group %s ran for %v of %v, want %v at most", h.Name(), got, took, most)
	}
	return fmt.Sprintf("%s with a quota of %v in %v; stopped in %d of %d periods; a busy process there ran for %v of %v",
		h, of, period, now.stopped-before.stopped, now.periods-before.periods,
		got.Round(100*time.Microsecond), took.Round(time.Millisecond)), nil
}

// usage is what can be seen of a group.
type usage struct {
	at               time.Time
	periods, stopped int64
	busy             time.Duration // that the busy process ran
}

func (h *held) look() (u usage, err error) {
	u.at = time.Now()
	if u.periods, err = h.Count("cpu.stat", "nr_periods"); err != nil {
		return u, err
	}
	if u.stopped, err = h.Count("cpu.stat", "nr_throttled"); err != nil {
		return u, err
	}
	u.busy, err = h.busy.Used()
	return u, err
}

// Heal removes the groups, then ends the busy processes.
func (q *quota) Heal(ctx context.Context) (Proof, error) {
	var proof []string
	var errs []error
	for _, h := range q.held {
		if h.enclosure != nil {
			said, err := h.open(ctx)
			proof, errs = append(proof, said), append(errs, err)
		}
		if h.busy != nil {
			errs = append(errs, h.busy.Close(ctx))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("cpu: %w", err)
	}
	q.held = nil
	return Proof(strings.Join(proof, "; ")), nil
}
