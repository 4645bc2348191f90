// Package clock gives single processes a clock of their own, which can jump,
// drift and strobe while they run. It works for any program, static or not;
// neither the machine's clock nor any other process is touched.
//
// A process that is started with a [Control] as a patch (see
// [github.com/lockcheck/lockcheck/internal/execstop]) finds our functions where
// it looks up the vDSO's clock_gettime, gettimeofday and time. They call the
// kernel's and convert the answer as a page of memory says that is shared with
// the Control. All that the process forks follows too, at once.
//
// Limits: linux/amd64 only. Not changed are system calls that don't go through
// the vDSO, timers and time-outs that run in the kernel, file times, and
// programs that the process executes in its turn. [Control.Follows] tells.
package clock

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// page is the control page. Its layout is that of clock_amd64.S.
//
// A row that is all zero is the true clock, so a new page changes nothing.
type page struct {
	// seq is odd while rows change. The writer reads the true clocks
	// while it is odd, so all earlier readings were taken before.
	seq  uint32
	_    [60]byte
	rows [rowCount]row
}

type row struct {
	base   int64  // true time from which the row holds, ns
	value  int64  // the row's clock at that time, ns
	rate   fixed  // since then
	period int64  // of the strobe, ns; 0 for none
	swing  int64  // added in every second period, ns
	active uint64 // 0: the true clock
	_      [16]byte
}

// The rows. CLOCK_REALTIME_COARSE, gettimeofday and time use that of realtime,
// CLOCK_MONOTONIC_COARSE that of monotonic. Coarse clocks, once changed, are fine.
const (
	realtime = iota
	tai
	monotonic
	raw
	boottime
	rowCount
)

func wallRow(r int) bool { return r <= tai }

// fixed is a rate as a 32.32 fixed point number.
type fixed int64

const one fixed = 1 << 32

func toFixed(rate float64) fixed { return fixed(math.Round(rate * float64(one))) }

// times returns the time that passes at rate f in d. It rounds down, as the
// assembly does, and drops what does not fit, which no valid row gets to.
func (f fixed) times(d int64) int64 {
	hi, lo := bits.Mul64(uint64(d), uint64(f))
	if d < 0 { // f is not negative
		hi -= uint64(f)
	}
	return int64(hi<<32 | lo>>32)
}

// at returns what the row's clock shows at true time t. It mirrors convert in
// clock_amd64.S.
func (r *row) at(t int64) int64 {
	if r.active == 0 {
		return t
	}
	since := t - r.base
	v := r.value + r.rate.times(since)
	if r.period != 0 && since >= 0 && since/r.period%2 == 1 {
		v += r.swing
	}
	return v
}

// from returns the row that goes on at true time t from what this one shows,
// without its strobe.
func (r *row) from(t int64) row {
	if r.active == 0 {
		return row{base: t, value: t, rate: one, active: 1}
	}
	return row{base: t, value: r.value + r.rate.times(t-r.base), rate: r.rate, active: 1}
}

// Limits of what a clock can be told.
const (
	MaxJump   = 10 * 365 * 24 * time.Hour // either way
	MaxRate   = 1000.0
	MinRate   = 0.001
	MinPeriod = time.Millisecond
	MaxPeriod = time.Second

	maxValue = int64(230 * 365 * 24 * time.Hour) // fits with room for a strobe
)

// ErrBackwards is the error for what would turn a monotonic clock back. Programs
// rely on it never doing so: the timers of a Go process freeze, for one.
var ErrBackwards = errors.New("a monotonic clock never goes back")

// Control is the clock of the processes that were started with it. It may be
// used concurrently. A change is seen by all of them at once, and by each
// either in full or not at all.
//
// There are two families: wall (CLOCK_REALTIME, CLOCK_TAI, gettimeofday, time)
// and monotonic (CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME). CPU time
// stays true.
type Control struct {
	mu     sync.Mutex
	file   *os.File
	page   *page
	unmap  func() error
	closed bool
}

// Close frees the control. Processes that use it keep the clock that they have.
func (c *Control) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return errors.Join(c.unmap(), c.file.Close())
}

// Jump moves the clocks on by wall and mono, which may be 0. Only wall may be
// negative.
func (c *Control) Jump(wall, mono time.Duration) error {
	if mono < 0 {
		return fmt.Errorf("jump of the monotonic clock by %v: %w", mono, ErrBackwards)
	}
	for _, d := range []time.Duration{wall, mono} {
		if d.Abs() > MaxJump {
			return fmt.Errorf("jump of a clock by %v: at most %v", d, MaxJump)
		}
	}
	return c.change(func(i int, old row, t int64) row {
		d := mono
		if wallRow(i) {
			d = wall
		}
		if d == 0 {
			return old
		}
		next := old.from(t)
		next.value += int64(d)
		return next
	})
}

// Rate sets how fast the clocks run from what they show now: 1 is true, 1.1
// gains 100 ms a second. A strobe of the wall clock ends.
func (c *Control) Rate(wall, mono float64) error {
	for _, r := range []float64{wall, mono} {
		if !(r >= MinRate && r <= MaxRate) { // also NaN
			return fmt.Errorf("rate %v of a clock: it must be from %v to %v", r, MinRate, MaxRate)
		}
	}
	return c.change(func(i int, old row, t int64) row {
		rate := toFixed(mono)
		if wallRow(i) {
			rate = toFixed(wall)
		}
		if old.active == 0 && rate == one {
			return old
		}
		next := old.from(t)
		next.rate = rate
		return next
	})
}

// Strobe has the wall clock jump by swing, which may be negative, and back, in
// turn, each time a period has passed: first after one period from now. It can
// do nothing of the kind to the monotonic clock, see [ErrBackwards].
func (c *Control) Strobe(period, swing time.Duration) error {
	if period < MinPeriod || period > MaxPeriod {
		return fmt.Errorf("strobe with a period of %v: it must be from %v to %v", period, MinPeriod, MaxPeriod)
	}
	if swing == 0 || swing.Abs() > MaxJump {
		return fmt.Errorf("strobe by %v: it must not be 0, and at most %v", swing, MaxJump)
	}
	return c.change(func(i int, old row, t int64) row {
		if !wallRow(i) {
			return old
		}
		next := old.from(t)
		next.period, next.swing = int64(period), int64(swing)
		return next
	})
}

// Reset makes the wall clock true again. The monotonic clock, if it was
// changed, can't be set back: it goes on from what it shows, at the true rate.
func (c *Control) Reset() error {
	return c.change(func(i int, old row, t int64) row {
		if wallRow(i) || old.active == 0 {
			return row{}
		}
		next := old.from(t)
		next.rate = one
		return next
	})
}

// change replaces the rows by what next makes of each of them and of the true
// time of its clock.
func (c *Control) change(next func(i int, old row, t int64) row) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return os.ErrClosed
	}
	atomic.AddUint32(&c.page.seq, 1)
	// From here to the last line readers spin, so do no more than needed.
	defer atomic.AddUint32(&c.page.seq, 1)
	rows := c.page.rows
	for i := range rows {
		t, err := now(i)
		if err != nil {
			return err
		}
		rows[i] = next(i, rows[i], t)
		if v := rows[i].value; v < 0 || v > maxValue {
			return fmt.Errorf("a clock would show %v after its start: it must be from 0 to %v", time.Duration(v), time.Duration(maxValue))
		}
	}
	c.page.rows = rows
	return nil
}

// Now returns what the clocks show.
func (c *Control) Now() (wall time.Time, mono time.Duration, err error) {
	rows, err := c.rows()
	if err != nil {
		return time.Time{}, 0, err
	}
	w, err := now(realtime)
	if err != nil {
		return time.Time{}, 0, err
	}
	m, err := now(monotonic)
	if err != nil {
		return time.Time{}, 0, err
	}
	return time.Unix(0, rows[realtime].at(w)), time.Duration(rows[monotonic].at(m)), nil
}

func (c *Control) rows() ([rowCount]row, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return [rowCount]row{}, os.ErrClosed
	}
	return c.page.rows, nil
}
