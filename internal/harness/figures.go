package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// Figures that need what servers count.
const (
	eventsPerRelease = "events-per-release"
	triesPerRelease  = "tries-per-release"
)

// countsEvent says what the servers have counted so far.
const countsEvent = "counts"

// counts is the value of such an event.
type counts struct {
	backends.Counts
	Asked int64 `json:"asked"` // time, as of an event: the answer is of then or later
}

// countServers records what the servers have counted, if they count anything and
// somebody wants to know. That they cannot be asked is recorded too.
func (r *run) countServers(ctx context.Context) {
	wanted := slices.ContainsFunc(r.scenario.Measures(r.Backend.Name, r.Resource), func(name string) bool {
		return name == eventsPerRelease || name == triesPerRelease
	})
	if r.observer == nil || !wanted {
		return
	}
	counter, ok := r.observer.Observer.(backends.Counter)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	e := history.Event{Process: history.Harness, Type: history.Info, F: countsEvent}
	asked := r.rec.Now()
	if n, err := counter.Counts(ctx); err != nil {
		e.Error = err.Error()
	} else {
		e.Value = encode(counts{n, asked})
	}
	r.rec.Record(e)
}

// countContention has the servers' counters read when all clients but one wait for
// the first time, and returns a function that has them read again. What happens
// until everybody has arrived would count few waiters as many.
func (r *run) countContention(ctx context.Context, camp *campaign) (end func(context.Context)) {
	reached := make(chan struct{})
	go func() {
		defer close(reached)
		_, err := camp.await(func(t *tracker) string {
			if len(t.waiting) < len(r.scenario.Clients)-1 {
				return ""
			}
			return "everybody"
		})
		if err == nil {
			r.countServers(ctx)
		}
	}()
	return func(ctx context.Context) {
		select {
		case <-reached:
			r.countServers(ctx)
		default: // they never all contended: there is nothing to count from
		}
	}
}

// Measure measures figures of a history, whether or not its scenario names them.
func Measure(h *history.History, names []string) []reports.Figure { return figures(h, names) }

// figures measures a history.
func figures(h *history.History, names []string) []reports.Figure {
	var all []reports.Figure
	for _, name := range names {
		def, ok := scenarios.FigureOf(name)
		if !ok {
			continue // of a later version
		}
		f := reports.Figure{Name: name, Unit: def.Unit}
		value, of, err := gauges[name](h)
		if err != nil {
			f.Missing = err.Error()
		} else {
			f.Value, f.Of = value, of
		}
		all = append(all, f)
	}
	return all
}

// gauge returns a figure and of how many observations it is, 0 for one.
type gauge func(*history.History) (value float64, of int, err error)

var gauges = map[string]gauge{
	"regranted-after":   regrantedAfter,
	"freed-after":       freedAfter,
	"losses":            losses,
	"acquire":           longestAcquire,
	"validity":          leastValidity,
	"grants-per-second": grantsPerSecond,
	"waiters":           meanWaiters,
	eventsPerRelease:    perRelease(func(c backends.Counts) int64 { return c.Events }),
	triesPerRelease:     perRelease(func(c backends.Counts) int64 { return c.Tries }),
	"lost-grants":       lostGrants,
	"lost-updates":      lostUpdates,
}

func ms(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

func regrantedAfter(h *history.History) (float64, int, error) {
	last := map[int32]history.Op{} // by key
	for _, g := range h.Grants() {
		if before, ok := last[g.Key]; ok && before.Process != g.Process {
			return ms(g.Ret - before.Ret), 0, nil
		}
		last[g.Key] = g
	}
	return 0, 0, errors.New("no lock was granted to one client after another")
}

func freedAfter(h *history.History) (float64, int, error) {
	at := slices.IndexFunc(h.Other, func(e history.Event) bool {
		return e.Process == history.Nemesis && e.Type == history.OK
	})
	if at < 0 {
		return 0, 0, errors.New("no fault was in effect")
	}
	for _, g := range h.Grants() {
		if g.Ret > h.Other[at].Time {
			return ms(g.Ret - h.Other[at].Time), 0, nil
		}
	}
	return 0, 0, errors.New("no lock was granted after the fault")
}

// losses is 0 also where no client would be told.
func losses(h *history.History) (float64, int, error) { return float64(len(h.Notices)), 0, nil }

func longestAcquire(h *history.History) (float64, int, error) {
	all := h.Grants()
	if len(all) == 0 {
		return 0, 0, errors.New("no lock was granted")
	}
	var longest int64
	for _, g := range all {
		longest = max(longest, g.Ret-g.Call)
	}
	return ms(longest), len(all), nil
}

func leastValidity(h *history.History) (float64, int, error) {
	least, n := int64(history.Never), 0
	for _, g := range h.Grants() {
		if until := h.Terms[g.Term].Until; until != 0 {
			least = min(least, until-g.Ret)
			n++
		}
	}
	if n == 0 {
		return 0, 0, errors.New("no grant says for how long it is valid")
	}
	return ms(least), n, nil
}

func grantsPerSecond(h *history.History) (float64, int, error) {
	all := h.Grants()
	if len(all) < 2 {
		return 0, 0, fmt.Errorf("%d grants: a rate needs two", len(all))
	}
	took := time.Duration(all[len(all)-1].Ret - all[0].Ret)
	return float64(len(all)-1) / took.Seconds(), len(all), nil
}

// reading is what the servers had counted at a time. They were asked before it and
// answered after it.
type reading struct {
	counts
	at int64
}

// readings returns the first and the last of a history.
func readings(h *history.History) (first, last reading, err error) {
	var all []history.Event
	for _, e := range h.Other {
		if e.Process == history.Harness && e.F == countsEvent {
			all = append(all, e)
		}
	}
	if len(all) < 2 {
		return first, last, errors.New("what the servers did was not counted: they do not count it, or the clients never all waited")
	}
	if first, err = read(all[0]); err != nil {
		return first, last, err
	}
	last, err = read(all[len(all)-1])
	return first, last, err
}

func read(e history.Event) (reading, error) {
	if e.Error != "" {
		return reading{}, errors.New(e.Error)
	}
	var r reading
	if err := json.Unmarshal(e.Value, &r.counts); err != nil {
		return r, fmt.Errorf("event %d: %w", e.Index, err)
	}
	r.at = r.Asked + (e.Time-r.Asked)/2
	return r, nil
}

// releases are those that were asked for while the servers were counting, or all
// if they were not.
func releases(h *history.History) []history.Op {
	first, last, err := readings(h)
	var all []history.Op
	for _, op := range h.Ops {
		if op.Kind == history.KindRelease && (err != nil || op.Call >= first.at && op.Call < last.at) {
			all = append(all, op)
		}
	}
	return all
}

func meanWaiters(h *history.History) (float64, int, error) {
	waiters := 0
	all := releases(h)
	for _, release := range all {
		for _, op := range h.Ops {
			if op.Call > release.Call {
				break // they are in the order of their calls
			}
			if op.Kind == history.KindAcquire && op.Key == release.Key && op.Ret > release.Call {
				waiters++
			}
		}
	}
	if len(all) == 0 {
		return 0, 0, errors.New("the lock was never released")
	}
	return float64(waiters) / float64(len(all)), len(all), nil
}

// perRelease divides what the servers have counted by the releases meanwhile.
func perRelease(of func(backends.Counts) int64) gauge {
	return func(h *history.History) (float64, int, error) {
		first, last, err := readings(h)
		if err != nil {
			return 0, 0, err
		}
		n := len(releases(h))
		switch {
		case of(last.Counts) == 0:
			return 0, 0, errors.New("the servers do nothing of this kind")
		case n == 0:
			return 0, 0, errors.New("the lock was never released while it was counted")
		}
		return float64(of(last.Counts)-of(first.Counts)) / float64(n), n, nil
	}
}
