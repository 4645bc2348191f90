package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/harness"
)

// screen is a live that writes to a buffer, with a clock and a width of its own.
type screen struct {
	*live
	out bytes.Buffer
	at  time.Time
}

func newScreen(o liveOptions, columns int) *screen {
	s := &screen{at: time.Unix(1000, 0)}
	s.live = newLive(&s.out, o, func() (int, bool) { return columns, columns > 0 }, func() time.Time { return s.at })
	return s
}

// shown ticks so much later, and returns what was written.
func (s *screen) shown(after time.Duration) string {
	s.at = s.at.Add(after)
	s.tick()
	return s.written()
}

func (s *screen) written() string {
	defer s.out.Reset()
	return s.out.String()
}

func event(process string, t history.Type, f string, value any) history.Event {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // of a test's own value
	}
	return history.Event{Process: process, Type: t, F: f, Value: b}
}

func TestLiveDrawsWhatGoesOn(t *testing.T) {
	s := newScreen(liveOptions{total: 3, counts: "violation"}, 100)
	first := s.begin("gc-pause on redis", 1)
	first.observe(event(history.Harness, history.Info, history.Run, nil))
	if got, want := s.shown(0), "  1/3 gc-pause on redis: starting\n"; got != want {
		t.Errorf("at first %q, want %q", got, want)
	}
	if got := s.shown(100 * time.Millisecond); got != "" {
		t.Errorf("what has not changed is drawn again: %q", got)
	}

	pause := map[string]any{"on": []string{"A"}}
	first.observe(event("A", history.OK, history.Acquire, nil))
	first.observe(event(history.Nemesis, history.Invoke, "pause", pause))
	first.observe(event(history.Nemesis, history.OK, "pause", pause))
	want := "\x1b[1A\r\x1b[J  1/3 gc-pause on redis: running for 1s, 1 grant, under pause on A\n"
	if got := s.shown(900 * time.Millisecond); got != want {
		t.Errorf("under a fault %q, want %q", got, want)
	}
	pause["fault"] = "pause"
	first.observe(event(history.Nemesis, history.Info, history.Heal, pause))
	if got := s.shown(0); strings.Contains(got, "under") {
		t.Errorf("healed, but %q", got)
	}
	first.observe(event(history.Harness, history.Info, harness.EndEvent, nil))
	if got := s.shown(0); !strings.Contains(got, "checking for 1s") {
		t.Errorf("after its end %q", got)
	}

	s.at = s.at.Add(time.Second)
	first.end("violation", true, false)
	s.begin("no-fault on redis", 2)
	want = "\x1b[1A\r\x1b[J  2/3 no-fault on redis: starting\n  1 violation in 1 run so far, 4s left\n"
	if got := s.shown(0); got != want {
		t.Errorf("with one run made %q, want %q", got, want)
	}

	s.print(func() { s.out.WriteString("a line that stays\n") })
	if got, want := s.written(), "\x1b[2A\r\x1b[Ja line that stays\n"; got != want {
		t.Errorf("a line is written as %q, want %q", got, want)
	}
	s.interrupt()
	if got := s.shown(0); !strings.Contains(got, "interrupted: ") {
		t.Errorf("after an interrupt %q", got)
	}
	close(s.gone)
	s.close()
	if got, want := s.written(), "\x1b[3A\r\x1b[J"; got != want {
		t.Errorf("closing writes %q, want %q", got, want)
	}
}

// Where lines stay, there are few.
func TestLiveWritesPlainLines(t *testing.T) {
	s := newScreen(liveOptions{total: 2, counts: "violation"}, 0)
	act := s.begin("gc-pause on redis", 1)
	if got, want := s.written(), "1/2 gc-pause on redis: started\n"; got != want {
		t.Errorf("begin writes %q, want %q", got, want)
	}
	act.observe(event("A", history.OK, history.Acquire, nil))
	if got := s.shown(plainEvery - time.Second); got != "" {
		t.Errorf("too early: %q", got)
	}
	if got, want := s.shown(time.Second), "1/2 gc-pause on redis: running for 30s, 1 grant\n"; got != want {
		t.Errorf("after silence %q, want %q", got, want)
	}
	if got := s.shown(time.Second); got != "" {
		t.Errorf("again at once: %q", got)
	}
	act.end("violation in 31s", true, false)
	if got, want := s.written(), "1/2 gc-pause on redis: violation in 31s; 1 violation in 1 run so far, 31s left\n"; got != want {
		t.Errorf("end writes %q, want %q", got, want)
	}
	s.interrupt()
	if got, want := s.written(), interruptNote+"\n"; got != want {
		t.Errorf("an interrupt writes %q, want %q", got, want)
	}
}

// What is told on standard output is not told here again.
func TestLiveIsSilentAboutWhatIsTold(t *testing.T) {
	s := newScreen(liveOptions{total: 2, counts: "violation", told: true}, 0)
	s.begin("gc-pause on redis", 1).end("pass", false, false)
	if got := s.written(); got != "" {
		t.Errorf("it writes %q", got)
	}
}

func TestLiveFitsTheTerminal(t *testing.T) {
	for _, columns := range []int{1, 2, 10, 20} {
		s := newScreen(liveOptions{total: 12, counts: "violation"}, columns)
		for range 12 {
			s.begin("a long name\x1b[2J\r\n of a scenario", 1)
		}
		lines := strings.Split(strings.TrimSuffix(s.shown(0), "\n"), "\n")
		if len(lines) > mostActive+2 {
			t.Errorf("%d columns: %d lines", columns, len(lines))
		}
		for _, line := range lines {
			if len(line) >= columns || strings.ContainsAny(line, "\x1b\r") {
				t.Errorf("%d columns: %q", columns, line)
			}
		}
	}
}

func TestTimeLeft(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	for _, c := range []struct {
		what string
		l    *live
		now  int
		want time.Duration
	}{
		{"nothing made", &live{begun: at(0), liveOptions: liveOptions{total: 4}}, 9, 0},
		{"no total", &live{begun: at(0), made: 3, ended: at(3)}, 9, 0},
		{"one of four", &live{begun: at(0), made: 1, ended: at(5), liveOptions: liveOptions{total: 4}}, 5, 15 * time.Second},
		{"and a while later", &live{begun: at(0), made: 1, ended: at(5), liveOptions: liveOptions{total: 4}}, 7, 13 * time.Second},
		{"a budget", &live{begun: at(0), made: 1, ended: at(5), liveOptions: liveOptions{deadline: at(60)}}, 7, 53 * time.Second},
	} {
		if got := c.l.left(at(c.now)); got != c.want {
			t.Errorf("%s: %v left, want %v", c.what, got, c.want)
		}
	}
	for d, want := range map[time.Duration]string{
		time.Millisecond: "1s", 59*time.Second + 1: "1m0s", 10 * time.Minute: "10m0s", 10*time.Minute + 1: "11m", 90 * time.Minute: "1h30m",
	} {
		if got := roughly(d); got != want {
			t.Errorf("%v is told as %s, want %s", d, got, want)
		}
	}
}

// A command that was told to be quiet has none.
func TestNoLive(t *testing.T) {
	l := (&app{quiet: true}).live(context.Background(), liveOptions{})
	act := l.begin("x", 1)
	act.does("y")
	act.observe(history.Event{})
	act.end("z", true, true)
	l.count(true, true)
	printed := false
	l.print(func() { printed = true })
	l.close()
	if l != nil || !printed {
		t.Errorf("live is %v, and printed %v", l, printed)
	}
}
