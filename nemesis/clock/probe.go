package clock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// probeRole is a process that says what its clocks show, and what they should.
const probeRole = "clock-probe"

func init() { selfexec.Register(probeRole, probeMain) }

// sample is one look at a clock, in ns: what it showed, and the true time
// before and after by system calls, which nothing changes.
type sample struct {
	Before int64 `json:"before"`
	Shown  int64 `json:"shown"`
	After  int64 `json:"after"`
}

// sampled is what the probe prints: looks at both families, first to last.
type sampled struct {
	Wall []sample `json:"wall"`
	Mono []sample `json:"mono"`
}

const looks = 64 // of the probe at each clock, at least

// nanotime is CLOCK_MONOTONIC as this process sees it, which the time package
// shows only the differences of.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

// probeLimit bounds how long the probe looks for both positions of a strobe,
// which on a busy machine it may miss for a while.
const probeLimit = 20 * time.Second

// probeMain looks at the clocks for as many ns as its first argument says, and
// on until the wall clock was seen to swing by the second.
func probeMain(args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, probeRole+":", err)
		return 1
	}
	if len(args) != 2 {
		return fail(errors.New("want two arguments: how long to look, and a swing to look for, both in ns"))
	}
	span, err1 := strconv.ParseInt(args[0], 10, 64)
	swing, err2 := strconv.ParseInt(args[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return fail(err)
	}
	start, err := now(monotonic)
	if err != nil {
		return fail(err)
	}
	var s sampled
	var least, most int64 // offset of the wall clock
	for i := int64(0); i < looks || most-least < swing/2; i++ {
		// The sleep is by the true monotonic clock, in the kernel: what
		// this process takes for a ms may be another time.
		if err := sleepUntil(start + span*i/(looks-1)); err != nil {
			return fail(err)
		}
		if t, err := now(monotonic); err != nil || t > start+int64(probeLimit) {
			return fail(errors.Join(err, fmt.Errorf("not done after %v", probeLimit)))
		}
		for _, clock := range []struct {
			row  int
			show func() int64
			to   *[]sample
		}{
			{realtime, func() int64 { return time.Now().UnixNano() }, &s.Wall},
			{monotonic, nanotime, &s.Mono},
		} {
			look, err := lookAt(clock.row, clock.show)
			if err != nil {
				return fail(err)
			}
			*clock.to = append(*clock.to, look)
		}
		last := s.Wall[len(s.Wall)-1]
		if off := last.Shown - last.Before; i == 0 {
			least, most = off, off
		} else {
			least, most = min(least, off), max(most, off)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return fail(err)
	}
	return 0
}

// blurred is a look that took so long that a strobe may have come and gone in it:
// this process was interrupted, as it may be on a busy machine.
const blurred = MinPeriod / 2

// lookAt looks at a clock, again if that was blurred.
func lookAt(row int, show func() int64) (sample, error) {
	for range 100 {
		before, err1 := now(row)
		shown := show()
		after, err2 := now(row)
		if err := errors.Join(err1, err2); err != nil {
			return sample{}, err
		}
		if after-before < int64(blurred) {
			return sample{before, shown, after}, nil
		}
	}
	return sample{}, fmt.Errorf("each of 100 looks took more than %v: the machine is too busy", blurred)
}

// probe runs a process with the control's clock that looks at it for span, and
// returns an error unless the clocks show, to the ns, what c says. So it proves
// the whole way from the control to a program. The proof is of the wall clock
// or the monotonic one.
func (c *Control) probe(ctx context.Context, span time.Duration, f Family) (string, error) {
	wrap := func(err error) error { return fmt.Errorf("probe of the clock: %w", err) }
	rows, err := c.rows()
	if err != nil {
		return "", wrap(err)
	}
	argv, err := selfexec.Command(probeRole, strconv.FormatInt(int64(span), 10),
		strconv.FormatInt(int64(time.Duration(rows[realtime].swing).Abs()), 10))
	if err != nil {
		return "", wrap(err)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", wrap(err)
	}
	if err := guard.StartBy(cmd, func() error { return execstop.Start(cmd, execstop.Options{}, c) }); err != nil {
		return "", wrap(err)
	}
	var s sampled
	defer guard.Forget(cmd)
	err = json.NewDecoder(out).Decode(&s)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return "", wrap(err)
	}
	if len(s.Wall) < looks || len(s.Mono) < looks {
		return "", wrap(fmt.Errorf("it looked %d and %d times, want at least %d", len(s.Wall), len(s.Mono), looks))
	}
	wall, err := judge(&rows[realtime], s.Wall)
	if err != nil {
		return "", wrap(fmt.Errorf("wall: %w", err))
	}
	mono, err := judge(&rows[monotonic], s.Mono)
	if err != nil {
		return "", wrap(fmt.Errorf("monotonic: %w", err))
	}
	switch f {
	case Wall:
		return "wall " + wall, nil
	case Monotonic:
		return "monotonic " + mono, nil
	default:
		return "wall " + wall + ", monotonic " + mono, nil
	}
}

// judge compares samples with what the row says they must be, and describes
// them: the offset from the true time, the rate, and the strobe if there is one.
func judge(r *row, samples []sample) (string, error) {
	seen := map[bool]bool{} // positions of the strobe
	for _, s := range samples {
		lo, hi := r.at(s.Before), r.at(s.After)
		if s.Shown < min(lo, hi) || s.Shown > max(lo, hi) {
			return "", fmt.Errorf("shows %v, want %v to %v", time.Duration(s.Shown), time.Duration(lo), time.Duration(hi))
		}
		if r.period != 0 {
			still := *r
			still.period = 0
			swung := time.Duration(s.Shown - still.at(s.Before)).Abs()
			seen[swung > time.Duration(r.swing).Abs()/2] = true
		}
	}
	if r.period != 0 {
		if len(seen) < 2 {
			return "", errors.New("the strobe was not seen in both positions")
		}
		return fmt.Sprintf("strobes by %v every %v", time.Duration(r.swing), time.Duration(r.period)), nil
	}
	first, last := sharpest(samples[:len(samples)/4]), sharpest(samples[len(samples)*3/4:])
	offset := time.Duration(first.Shown - first.Before)
	rate := float64(last.Shown-first.Shown) / float64(last.Before-first.Before)
	return fmt.Sprintf("%+.3fs at rate %.3f", offset.Seconds(), rate), nil
}

// sharpest returns the sample that took the least time.
func sharpest(samples []sample) sample {
	return slices.MinFunc(samples, func(a, b sample) int { return cmp.Compare(a.After-a.Before, b.After-b.Before) })
}
