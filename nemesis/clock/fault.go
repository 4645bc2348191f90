package clock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
)

// Clocked is a target that was started with a clock of its own.
type Clocked interface {
	// Clock returns the control of the target's clock, nil if it has none.
	Clock() *Control
}

// Reader is a target that tells the time.
type Reader interface {
	// ReadClock asks the target for its wall clock, such as by the TIME
	// command of Redis. The answer must be newer than the call.
	ReadClock(ctx context.Context) (time.Time, error)
}

// Family is a set of clocks that change together.
type Family string

// The families, see [Control].
const (
	Wall      Family = "wall"
	Monotonic Family = "monotonic"
	Both      Family = "both"
)

func init() {
	nemesis.Register(nemesis.Kind{
		Name:      "clock",
		Summary:   "jump, drift or strobe the clock of single processes",
		Available: Available,
		Needs:     []string{nemesis.Clock},
		New: func(params map[string]string) (nemesis.Fault, error) {
			s, err := parse(params)
			if err != nil {
				return nil, err
			}
			return &fault{spec: s}, nil
		},
		Params: map[string]string{
			"jump":   "move the clock on by this much, such as 10s or -60s (monotonic: forward only)",
			"rate":   "let the clock run this fast: 1.1 gains 100 ms a second",
			"strobe": "a period and a distance, such as 100ms,5s: jump there and back, in turn (wall only)",
			"family": "wall (default), monotonic or both",
		},
	})
}

// spec is what a fault does to a clock.
type spec struct {
	jump   time.Duration // 0: none
	rate   float64       // 1: true
	period time.Duration // of the strobe, 0: none
	swing  time.Duration
	family Family
}

// parse reads the parameters. All that a Control would refuse is refused here.
func parse(params map[string]string) (spec, error) {
	s := spec{rate: 1, family: Wall}
	if f, ok := params["family"]; ok {
		s.family = Family(f)
		if !slices.Contains([]Family{Wall, Monotonic, Both}, s.family) {
			return s, fmt.Errorf("clock: family %q: want wall, monotonic or both", f)
		}
	}
	if v, ok := params["jump"]; ok {
		d, err := time.ParseDuration(v)
		if err != nil || d == 0 {
			return s, fmt.Errorf("clock: jump %q: want a time other than 0, such as 10s or -60s", v)
		}
		if d.Abs() > MaxJump {
			return s, fmt.Errorf("clock: jump %q: at most %v", v, MaxJump)
		}
		if d < 0 && s.family != Wall {
			return s, fmt.Errorf("clock: jump %q with family %s: %w", v, s.family, ErrBackwards)
		}
		s.jump = d
	}
	if v, ok := params["rate"]; ok {
		r, err := strconv.ParseFloat(v, 64)
		if err != nil || !(r >= MinRate && r <= MaxRate) || r == 1 {
			return s, fmt.Errorf("clock: rate %q: want a number from %v to %v other than 1, such as 1.1", v, MinRate, MaxRate)
		}
		s.rate = r
	}
	if v, ok := params["strobe"]; ok {
		period, swing, _ := strings.Cut(v, ",")
		var err1, err2 error
		s.period, err1 = time.ParseDuration(strings.TrimSpace(period))
		s.swing, err2 = time.ParseDuration(strings.TrimSpace(swing))
		if err1 != nil || err2 != nil || s.period < MinPeriod || s.period > MaxPeriod || s.swing == 0 || s.swing.Abs() > MaxJump {
			return s, fmt.Errorf("clock: strobe %q: want a period from %v to %v and a distance, such as 100ms,5s", v, MinPeriod, MaxPeriod)
		}
		if s.family != Wall {
			return s, fmt.Errorf("clock: strobe with family %s: %w", s.family, ErrBackwards)
		}
	}
	if s.jump == 0 && s.rate == 1 && s.period == 0 {
		return s, errors.New("clock: nothing to do: give a jump, a rate or a strobe")
	}
	return s, nil
}

// apply brings s into effect on a clock.
func (s spec) apply(c *Control) error {
	on := func(f Family) bool { return s.family == Both || s.family == f }
	if s.jump != 0 {
		var wall, mono time.Duration
		if on(Wall) {
			wall = s.jump
		}
		if on(Monotonic) {
			mono = s.jump
		}
		if err := c.Jump(wall, mono); err != nil {
			return err
		}
	}
	if s.rate != 1 {
		wall, mono := 1.0, 1.0
		if on(Wall) {
			wall = s.rate
		}
		if on(Monotonic) {
			mono = s.rate
		}
		if err := c.Rate(wall, mono); err != nil {
			return err
		}
	}
	if s.period != 0 {
		return c.Strobe(s.period, s.swing)
	}
	return nil
}

// readable says if the answer of a Reader shows by itself that s is in effect.
func (s spec) readable() bool {
	return s.family != Monotonic && s.jump.Abs() > 2*readTolerance && s.period == 0
}

// span is how long to look at a clock to see s.
func (s spec) span() time.Duration { return max(20*time.Millisecond, 2*s.period) }

// readTolerance is how far off the answer of a Reader may be: servers may
// answer with a time that they took a moment ago, in whole ms.
const readTolerance = 50 * time.Millisecond

// fault is the fault "clock". A target has one clock, so of two such faults on
// one target the first to heal ends both.
type fault struct {
	spec    spec
	touched []nemesis.Target
}

func control(t nemesis.Target) (*Control, error) {
	if c, ok := t.(Clocked); ok && c.Clock() != nil {
		return c.Clock(), nil
	}
	return nil, fmt.Errorf("clock: %s was not started with a clock of its own", t.Name())
}

// Inject implements nemesis.Fault. The proof of each target is that its
// processes have the clock, that a probe with the same clock shows what it
// should, and if the target is a Reader that it does too.
func (f *fault) Inject(ctx context.Context, targets []nemesis.Target) (nemesis.Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("clock: no target")
	}
	for _, t := range targets {
		if _, err := control(t); err != nil {
			return "", err
		}
	}
	for _, t := range targets {
		c, err := control(t)
		if err != nil {
			return "", err
		}
		f.touched = append(f.touched, t)
		if err := f.spec.apply(c); err != nil {
			return "", fmt.Errorf("clock: %s: %w", t.Name(), err)
		}
	}
	var proofs []string
	for _, t := range targets {
		proof, err := f.prove(ctx, t)
		if err != nil {
			return "", fmt.Errorf("clock: %s: %w", t.Name(), err)
		}
		proofs = append(proofs, t.Name()+": "+proof)
	}
	return nemesis.Proof(strings.Join(proofs, "; ")), nil
}

func (f *fault) prove(ctx context.Context, t nemesis.Target) (string, error) {
	c, err := control(t)
	if err != nil {
		return "", err
	}
	p, hasPIDs := t.(nemesis.Processes)
	r, reads := t.(Reader)
	if !hasPIDs && !reads {
		return "", errors.New("it can't be seen whether it has the clock: it shows neither its processes nor its time")
	}
	var proofs []string
	if hasPIDs {
		n, err := nemesis.EachProcess(p, c.Follows)
		switch {
		case err == nil:
			proofs = append(proofs, fmt.Sprintf("processes that have the clock: %d of %d", n, n))
		case errors.Is(err, os.ErrPermission) && reads && f.spec.readable():
			// A root without CAP_SYS_PTRACE, whose server runs as
			// another user. What the target says is proof enough.
		default:
			return "", err
		}
	}
	proof, err := c.probe(ctx, f.spec.span(), f.spec.family)
	if err != nil {
		return "", err
	}
	proofs = append(proofs, "probe shows "+proof)
	if reads {
		proof, err := read(ctx, c, r)
		if err != nil {
			return "", err
		}
		proofs = append(proofs, proof)
	}
	return strings.Join(proofs, ", "), nil
}

// read asks a target for its time and returns an error unless that is what its
// clock shows.
func read(ctx context.Context, c *Control, r Reader) (string, error) {
	rows, err := c.rows()
	if err != nil {
		return "", err
	}
	before, err := now(realtime)
	if err != nil {
		return "", err
	}
	got, err := r.ReadClock(ctx)
	if err != nil {
		return "", fmt.Errorf("read its clock: %w", err)
	}
	after, err := now(realtime)
	if err != nil {
		return "", err
	}
	off := got.Sub(time.Unix(0, before))
	still := rows[realtime]
	still.period = 0
	lo := time.Unix(0, still.at(before)).Add(-readTolerance)
	hi := time.Unix(0, still.at(after)).Add(readTolerance)
	swing := time.Duration(rows[realtime].swing)
	for _, d := range []time.Duration{0, swing} { // the two positions of a strobe
		if !got.Before(lo.Add(d)) && !got.After(hi.Add(d)) {
			return fmt.Sprintf("it says that the time is %+.3fs from the true one", off.Seconds()), nil
		}
	}
	return "", fmt.Errorf("it says that the time is %+.3fs from the true one, want %+.3fs",
		off.Seconds(), time.Duration(still.at(before)-before).Seconds())
}

// Heal implements nemesis.Fault. A monotonic clock keeps what it has gained,
// see [Control.Reset]. A target that does not answer any more is no error:
// that its clock is true again the probe shows.
func (f *fault) Heal(ctx context.Context) (nemesis.Proof, error) {
	if len(f.touched) == 0 {
		return "no clock was changed", nil
	}
	var proofs []string
	var errs []error
	for _, t := range f.touched {
		proof, err := heal(ctx, t)
		if err != nil {
			errs = append(errs, fmt.Errorf("clock: heal %s: %w", t.Name(), err))
			continue
		}
		proofs = append(proofs, t.Name()+": "+proof)
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	f.touched = nil
	return nemesis.Proof(strings.Join(proofs, "; ")), nil
}

func heal(ctx context.Context, t nemesis.Target) (string, error) {
	c, err := control(t)
	if err != nil {
		return "", err
	}
	if err := c.Reset(); err != nil {
		return "", err
	}
	proof, err := c.probe(ctx, 20*time.Millisecond, Both)
	if err != nil {
		return "", err
	}
	proof = "probe shows " + proof
	if r, ok := t.(Reader); ok {
		said, err := read(ctx, c, r)
		if err != nil {
			said = err.Error()
		}
		proof += ", " + said
	}
	return proof, nil
}
