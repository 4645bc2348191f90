package scenarios

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Figure is something that a run can measure, beside its verdicts.
type Figure struct {
	Name string
	Unit string // "ms", "1/s", "%", or "" for a plain number
	Doc  string // what is measured, in one line
}

// Figures returns all figures, in the order in which they are shown.
func Figures() []Figure {
	return []Figure{
		{"regranted-after", "ms", "from a client's grant to the next one of the same lock to another client, the first time"},
		{"freed-after", "ms", "from the moment at which the first fault was proved to be in effect to the next grant"},
		{"losses", "", "loss notices that clients were given"},
		{"acquire", "ms", "the longest acquire that was granted"},
		{"validity", "ms", "for how long a client believes that it holds, from the answer to its acquire: the least of all grants that say it"},
		{"grants-per-second", "1/s", "grants from the first to the last, by the time between them"},
		{"waiters", "", "clients that wait when the lock is released, on average"},
		{"events-per-release", "", "events that the servers of an etcd cluster send to those who watch, by releases"},
		{"tries-per-release", "", "SET commands that a Redis server executes, by releases"},
		{"lost-grants", "%", "grants that were forgotten: another client that asked for the lock within the lease was granted it"},
		{"lost-updates", "%", "acknowledged updates, a write after a read of the same section, that a later write overwrote without having read them"},
	}
}

// FigureOf returns the figure of that name.
func FigureOf(name string) (Figure, bool) {
	for _, f := range Figures() {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}

func figureNames() []string {
	var all []string
	for _, f := range Figures() {
		all = append(all, f.Name)
	}
	return all
}

// Measures returns the names of the figures that the scenario asks for, or
// expects of the backend with the resource, in the order of Figures.
func (s *Scenario) Measures(backend, resource string) []string {
	want := s.ExpectedFigures(Subject{Backend: backend, Resource: resource})
	var all []string
	for _, name := range figureNames() {
		if _, expected := want[name]; expected || slices.Contains(s.Figures, name) {
			all = append(all, name)
		}
	}
	return all
}

// ExpectedFigures returns between what the scenario expects figures of a subject to
// be. Later entries override earlier ones.
func (s *Scenario) ExpectedFigures(of Subject) map[string]Range {
	want := map[string]Range{}
	for _, e := range s.Expect {
		if !e.matches(of) {
			continue
		}
		for name, text := range e.Figures {
			if r, err := ParseRange(text); err == nil { // validated before
				want[name] = r
			}
		}
	}
	return want
}

// Range is between what a figure is expected to be, both ends included.
type Range struct {
	low, high bound
	text      string
}

// bound is an end of a range: a number, or a time.
type bound struct {
	given  bool
	timed  bool
	number float64
	time   Duration
}

// ParseRange reads "1", "1..1.2", "..1.5 ttl" or "900ms..".
func ParseRange(s string) (Range, error) {
	low, high, isRange := strings.Cut(s, "..")
	if !isRange {
		high = low
	}
	r := Range{text: s}
	var err1, err2 error
	r.low, err1 = parseBound(low)
	r.high, err2 = parseBound(high)
	if err1 != nil || err2 != nil || !r.low.given && !r.high.given {
		return Range{}, fmt.Errorf("%s is no range: write 1, 1..1.2, ..1.5 ttl or 900ms.. for at least that", quote(s))
	}
	if r.low.given && r.high.given && r.low.timed != r.high.timed {
		return Range{}, fmt.Errorf("%s goes from a number to a time", quote(s))
	}
	if r.low.given && r.high.given && (r.low.number > r.high.number || r.low.time.Time > r.high.time.Time && r.high.time.TTLs == 0) {
		return Range{}, fmt.Errorf("%s ends before it begins", quote(s))
	}
	return r, nil
}

func parseBound(s string) (bound, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return bound{}, nil
	}
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return bound{}, errors.New("no number")
		}
		return bound{given: true, number: n}, nil
	}
	d, err := ParseDuration(s)
	return bound{given: true, timed: true, time: d}, err
}

// fits reports whether the range is one of times, as the figure is.
func (r Range) fits(f Figure) bool {
	timed := f.Unit == "ms"
	return (!r.low.given || r.low.timed == timed) && (!r.high.given || r.high.timed == timed)
}

// Contains reports whether the value, which is in milliseconds if it is a time,
// is in the range. A hundredth of a millisecond more or less does not count.
func (r Range) Contains(value float64, ttl time.Duration) bool {
	const slack = 0.01
	low, high := r.low.of(ttl), r.high.of(ttl)
	return (!r.low.given || value >= low-slack) && (!r.high.given || value <= high+slack)
}

func (b bound) of(ttl time.Duration) float64 {
	if b.timed {
		return float64(b.time.Of(ttl)) / float64(time.Millisecond)
	}
	return b.number
}

// String returns the range as it is written in a file.
func (r Range) String() string { return r.text }

// figures checks the names of figures, and the ranges in which they are expected.
func (v *validator) figures() {
	for _, name := range v.scenario.Figures {
		if _, ok := FigureOf(name); !ok {
			v.errorf(v.scenario.lines["figures"], "unknown figure %s%s", quote(name), suggest(name, figureNames()))
		}
	}
	for _, e := range v.scenario.Expect {
		for _, name := range figureNames() {
			text, ok := e.Figures[name]
			if !ok {
				continue
			}
			f, _ := FigureOf(name)
			r, err := ParseRange(text)
			if err == nil && !r.fits(f) {
				err = fmt.Errorf("%s is a time, which the figure is not", quote(text))
				if f.Unit == "ms" {
					err = fmt.Errorf("%s is no time, which the figure is: write it with a unit or as a multiple of the TTL", quote(text))
				}
			}
			if err != nil {
				v.errorf(e.Line, "figure %s: %v", name, err)
			}
		}
	}
}
