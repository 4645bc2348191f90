package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/harness"
)

const (
	redrawEvery = 100 * time.Millisecond
	plainEvery  = 30 * time.Second // of silence, where lines stay
	mostActive  = 8                // runs that are shown at once
)

// live shows on standard error what a long command is at: on a terminal in a few
// lines that are drawn again and again, elsewhere in lines that stay. Its methods
// may be called concurrently; those of a nil live do nothing.
type live struct {
	w     io.Writer
	width func() (columns int, redraw bool) // asked each time: windows change
	color bool
	now   func() time.Time
	liveOptions

	mu          sync.Mutex
	begun       time.Time
	made        int       // runs that have ended
	ended       time.Time // when the last of them did
	bad         int       // of these, those that are counted as liveOptions.counts says
	unproved    int       // and those that proved nothing
	wrote       time.Time // when a line was written last, where lines stay
	active      []*activity
	drawn       []string // what is on the terminal now
	interrupted bool

	quit, gone chan struct{}
	closing    sync.Once
}

// liveOptions say what there is to show.
type liveOptions struct {
	total    int       // runs to be made; 0 is unknown
	deadline time.Time // when no more are begun; zero is unknown
	each     string    // what runs are called: "run", if it is empty
	counts   string    // what is counted of them: "violation"
	// told says that each run is told on standard output anyway, as soon as it has
	// ended: no line tells here that it began or ended.
	told bool
}

// activity is a run that is going on.
type activity struct {
	live  *live
	title string
	place int // among all runs, from 1; 0 is not told

	mu      sync.Mutex // never held while something is written: the run waits for it
	begun   time.Time
	part    string // of the run, where it has several
	phase   string
	grants  int
	effects harness.Effects
}

// live starts to show what a command is at, until it is closed. An end of ctx is
// told.
func (a *app) live(ctx context.Context, o liveOptions) *live {
	if a.quiet {
		return nil
	}
	l := newLive(a.stderr, o, func() (int, bool) {
		columns, tty := terminal(a.stderr)
		return columns, tty && os.Getenv("TERM") != "dumb" && os.Getenv("CI") == ""
	}, time.Now)
	l.color = os.Getenv("NO_COLOR") == ""
	go func() {
		defer close(l.gone)
		ticks := time.NewTicker(redrawEvery)
		defer ticks.Stop()
		ended := ctx.Done()
		for {
			select {
			case <-ticks.C:
				l.tick()
			case <-ended:
				ended = nil
				l.interrupt()
			case <-l.quit:
				return
			}
		}
	}()
	return l
}

func newLive(w io.Writer, o liveOptions, width func() (int, bool), now func() time.Time) *live {
	return &live{w: w, liveOptions: o, width: width, now: now, begun: now(), wrote: now(), quit: make(chan struct{}), gone: make(chan struct{})}
}

// close ends it and leaves nothing on the terminal. It may be called again.
func (l *live) close() {
	if l == nil {
		return
	}
	l.closing.Do(func() {
		close(l.quit)
		<-l.gone
		l.mu.Lock()
		defer l.mu.Unlock()
		l.clear()
	})
}

// print has f write something that stays, above what is drawn.
func (l *live) print(f func()) {
	if l == nil {
		f()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	f()
	l.wrote = l.now()
}

// begin says that a run begins, the place-th of all; 0 is not told.
func (l *live) begin(title string, place int) *activity {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	act := &activity{live: l, title: printable(title), place: place, begun: now, phase: "starting"}
	l.active = append(l.active, act)
	if _, redraw := l.width(); !redraw && !l.told {
		l.line(act.name()+": started", "")
	}
	return act
}

// does says which part of a run that has several is going on.
func (act *activity) does(part string) {
	if act == nil {
		return
	}
	act.mu.Lock()
	defer act.mu.Unlock()
	act.part, act.begun = printable(part), act.live.now()
}

// observe takes an event of the run. It is harness.Options.Watch.
func (act *activity) observe(e history.Event) {
	if act == nil {
		return
	}
	act.mu.Lock()
	defer act.mu.Unlock()
	act.effects.Observe(e)
	switch {
	case e.Process != history.Harness:
		act.phase = "running"
		if e.F == history.Acquire && e.Type == history.OK {
			act.grants++
		}
	case e.F == history.Run: // some have many, such as a hunt
		act.phase, act.grants, act.effects = "starting", 0, harness.Effects{}
	case e.F == history.Close:
		act.phase = "ending"
	case e.F == harness.EndEvent:
		act.phase = "checking"
	}
}

// end says that the run has ended, and what came of it.
func (act *activity) end(word string, bad, unproved bool) {
	if act == nil {
		return
	}
	l := act.live
	l.count(bad, unproved)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = slices.DeleteFunc(l.active, func(o *activity) bool { return o == act })
	now := l.now()
	if _, redraw := l.width(); !redraw && !l.told {
		summary := l.summary(now)
		if l.total == 1 {
			summary = ""
		}
		l.line(act.name()+": "+printable(word), summary)
	}
}

// count counts a run that has ended.
func (l *live) count(bad, unproved bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	l.ended = l.now()
	if bad {
		l.bad++
	}
	if unproved {
		l.unproved++
	}
}

func (act *activity) name() string {
	switch {
	case act.place == 0 || act.live.total == 1:
		return act.title
	case act.live.total == 0:
		return fmt.Sprintf("%d %s", act.place, act.title)
	}
	return fmt.Sprintf("%d/%d %s", act.place, act.live.total, act.title)
}

// state is what the run does, and what disturbs it.
func (act *activity) state(now time.Time) string {
	act.mu.Lock()
	s := act.phase
	if act.part != "" {
		s = act.part + ", " + s
	}
	if d := now.Sub(act.begun).Round(time.Second); d > 0 {
		s += fmt.Sprintf(" for %v", d)
	}
	if act.grants > 0 {
		s += ", " + counted(act.grants, "grant")
	}
	faults := act.effects.Now()
	act.mu.Unlock()
	if len(faults) > 0 {
		s += ", under " + strings.Join(faults, ", ")
	}
	return printable(s)
}

// interrupt says that no more runs will begin.
func (l *live) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupted = true
	if _, redraw := l.width(); !redraw {
		l.line(interruptNote, "")
	}
}

const interruptNote = "interrupted: what is going on is ended in order and kept (a second signal ends it at once)"

// tick shows what has changed.
func (l *live) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if columns, redraw := l.width(); redraw {
		l.draw(l.picture(now), columns)
		return
	}
	if now.Sub(l.wrote) < plainEvery {
		return
	}
	for _, act := range l.active[:min(len(l.active), mostActive)] {
		l.line(act.name()+": "+act.state(now), "")
	}
	if s := l.summary(now); s != "" && len(l.active) > 0 {
		l.line(s, "")
	}
}

// line writes a line that stays.
func (l *live) line(text, summary string) {
	if summary != "" {
		text += "; " + summary
	}
	fmt.Fprintln(l.w, text)
	l.wrote = l.now()
}

// picture is what is to be on a terminal.
func (l *live) picture(now time.Time) []string {
	var lines []string
	for i, act := range l.active {
		if i == mostActive {
			lines = append(lines, fmt.Sprintf("  and %d more", len(l.active)-i))
			break
		}
		lines = append(lines, "  "+act.name()+": "+act.state(now))
	}
	if s := l.summary(now); s != "" {
		lines = append(lines, "  "+s)
	}
	if l.interrupted {
		lines = append(lines, "  "+interruptNote)
	}
	return lines
}

// summary is what came out so far, and the time left.
func (l *live) summary(now time.Time) string {
	var parts []string
	switch {
	case l.made > 0 && l.counts == "":
		parts = append(parts, counted(l.made, cmp.Or(l.each, "run"))+" so far")
	case l.made > 0:
		parts = append(parts, fmt.Sprintf("%s in %s so far", counted(l.bad, l.counts), counted(l.made, cmp.Or(l.each, "run"))))
	}
	if l.unproved > 0 {
		parts = append(parts, fmt.Sprintf("%d proved nothing", l.unproved))
	}
	if left := l.left(now); left > 0 {
		parts = append(parts, roughly(left)+" left")
	}
	return strings.Join(parts, ", ")
}

// left is how long it will take: until the deadline, or else as long as it took so
// far for each. 0 is unknown.
func (l *live) left(now time.Time) time.Duration {
	if !l.deadline.IsZero() {
		return l.deadline.Sub(now)
	}
	if l.made == 0 || l.total == 0 {
		return 0
	}
	took := l.ended.Sub(l.begun)
	return took*time.Duration(l.total-l.made)/time.Duration(l.made) - now.Sub(l.ended)
}

// draw puts lines where those before were.
func (l *live) draw(lines []string, columns int) {
	for i, line := range lines {
		if cut := []rune(line); len(cut) >= columns {
			lines[i] = string(cut[:max(columns-1, 0)])
		}
	}
	if slices.Equal(lines, l.drawn) {
		return
	}
	var b strings.Builder
	b.WriteString(l.back())
	for _, line := range lines {
		if l.color {
			line = "\x1b[2m" + line + "\x1b[0m"
		}
		b.WriteString(line + "\n")
	}
	fmt.Fprint(l.w, b.String())
	l.drawn = lines
}

// clear takes away what is drawn.
func (l *live) clear() {
	fmt.Fprint(l.w, l.back())
	l.drawn = nil
}

// back is what takes a terminal to where the drawing begins, with nothing behind it.
func (l *live) back() string {
	if len(l.drawn) == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", len(l.drawn))
}

// roughly rounds a time up, for people.
func roughly(d time.Duration) string {
	step := time.Second
	if d > 10*time.Minute {
		step = time.Minute
	}
	d = (d + step - 1).Truncate(step)
	if d > 10*time.Minute {
		return strings.TrimSuffix(d.String(), "0s")
	}
	return d.String()
}

// counted is a number of things.
func counted(n int, thing string) string {
	switch {
	case n == 0:
		return "no " + thing
	case n == 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// printable is text without what would move a cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
