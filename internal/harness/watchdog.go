package harness

import (
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// watchdog notices what makes a run's own timing worthless: that this process did
// not get to run for as long as a lease, on a machine that is overloaded or because
// somebody stopped it, and that the machine's clock was stepped or the machine
// suspended. Such a run may have missed what it was to see. What it did see it saw:
// a violation stays one.
type watchdog struct {
	ttl  time.Duration
	stop chan struct{}
	done chan stalls
}

// stalls are what the ticks of a clock showed.
type stalls struct {
	every      time.Duration // from one tick to the next
	mono, wall time.Duration // of the last tick, since the start
	late       time.Duration // the longest that a tick came late
	at         time.Duration // when it came
	off        time.Duration // by how much the machine's clock has moved, other than with time
	stepped    time.Duration // the farthest that it was off
}

// tick takes the time since the start at a tick, by the clock that is never set and by
// the one that is.
func (s *stalls) tick(mono, wall time.Duration) {
	if late := mono - s.mono - s.every; late > s.late {
		s.late, s.at = late, mono
	}
	// Both are read at once: a difference of a millisecond is none of reading.
	if step := wall - s.wall - (mono - s.mono); step.Abs() > time.Millisecond {
		s.off += step
	}
	if s.off.Abs() > s.stepped.Abs() {
		s.stepped = s.off
	}
	s.mono, s.wall = mono, wall
}

// Parts of a lease that matter: a step of the clock that shortens or lengthens it
// noticeably, and how often it is looked.
const (
	stepPart = 10
	tickPart = 20
)

func startWatchdog(ttl time.Duration) *watchdog {
	w := &watchdog{ttl: ttl, stop: make(chan struct{}), done: make(chan stalls, 1)}
	go w.watch()
	return w
}

func (w *watchdog) watch() {
	s := stalls{every: min(max(w.ttl/tickPart, time.Millisecond), 50*time.Millisecond)}
	start := time.Now()
	for over := false; !over; {
		t := time.NewTimer(s.every)
		select {
		case <-t.C:
		case <-w.stop:
			t.Stop()
			over = true
		}
		now := time.Now()
		s.tick(now.Sub(start), now.Round(0).Sub(start.Round(0)))
	}
	w.done <- s
}

// doubt ends the watch and says why the run proves nothing, or "".
func (w *watchdog) doubt() string {
	close(w.stop)
	return (<-w.done).doubt(w.ttl)
}

func (s stalls) doubt(ttl time.Duration) string {
	switch {
	case s.late >= ttl:
		return fmt.Sprintf("lockcheck itself did not run for %v, which is as long as a lease (%v), until %v after the clients had started: "+
			"the machine is overloaded, or somebody stopped it. Run less beside it, or choose a longer --ttl",
			s.late.Round(time.Millisecond), ttl, s.at.Round(time.Millisecond))
	case s.stepped.Abs() > ttl/stepPart:
		return fmt.Sprintf("the machine's clock was set %+.3f s away from the time that passed, or the machine was suspended: "+
			"leases on it did not last as long as they were to. Run it again", s.stepped.Seconds())
	}
	return ""
}

// watched does what is done while the harness's own timing counts.
func (r *run) watched(do func() error) error {
	w := startWatchdog(r.ttl)
	err := do()
	if why := w.doubt(); why != "" {
		r.rec.Record(history.Event{Process: history.Harness, Type: history.Info, F: inconclusiveEvent, Error: why})
	}
	return err
}
