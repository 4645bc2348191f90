package matrix

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
)

// Add takes in a run of the trials of a unit, which are all made of the same runs. Its
// folder is told relative to base.
func (r *Row) Add(unit []*Trial, run *reports.Run, base string) error {
	var asks []Question
	for _, t := range unit {
		asks = append(asks, t.Asks...)
	}
	o, err := observe(run, asks, base)
	if err != nil {
		return err
	}
	for _, t := range unit {
		t.Runs = append(t.Runs, o)
	}
	if unit[0].Backend == r.Backend && o.Conclusive() {
		if r.Versions == nil {
			r.Versions = map[string]string{}
		}
		for name, v := range run.Versions {
			if !strings.HasPrefix(name, "client ") {
				r.Versions[name] = v
			}
		}
	}
	return nil
}

// observe reads what a table needs from a run and its history.
func observe(r *reports.Run, asks []Question, base string) (Run, error) {
	o := Run{
		Dir: r.Dir, Seed: r.Seed, Status: r.Status, Reasons: r.Reasons, Replay: r.Replay,
		Properties: map[string]checker.Verdict{},
	}
	if rel, err := filepath.Rel(base, r.Dir); err == nil {
		o.Dir = filepath.ToSlash(rel)
	}
	for name, p := range r.Properties {
		if p.Verdict == checker.Held || p.Verdict == checker.Violated {
			o.Properties[name] = p.Verdict
		}
	}
	if !o.Conclusive() {
		return o, nil
	}
	h, err := history.Open(filepath.Join(r.Dir, harness.HistoryFile), history.ReadOptions{})
	if err != nil {
		return o, err
	}
	o.Stale = staleOf(h, o.violated(checker.Fence))
	o.measure(h, asks)
	return o, nil
}

// measure fills in the figures that questions need.
func (r *Run) measure(h *history.History, asks []Question) {
	for _, q := range asks {
		if q.figure() == "" {
			continue
		}
		for _, f := range harness.Measure(h, []string{q.figure()}) {
			if f.Missing != "" {
				continue
			}
			if r.Values == nil {
				r.Values = map[string]float64{}
			}
			r.Values[f.Name] = f.Value
		}
		if q == Rate {
			r.Series = series(h)
		}
	}
}

// parts is into how many parts a run is divided to see how its rate varies.
const parts = 20

// series counts the grants in each part of the time from the first to the last.
func series(h *history.History) []float64 {
	granted := h.Grants()
	if len(granted) < 2 {
		return nil
	}
	first, last := granted[0].Ret, granted[len(granted)-1].Ret
	all := make([]float64, parts)
	for _, g := range granted {
		all[min(int((g.Ret-first)*parts/max(last-first, 1)), parts-1)]++
	}
	return all
}

// staleOf says what became of writes of a client after another had been granted the
// lock. What was accepted in time, though it came late, shows nothing.
func staleOf(h *history.History, violated bool) Stale {
	if violated {
		return Accepted
	}
	accepted := map[int32]bool{} // by the index of the invocation
	for _, a := range h.Applied {
		if a.Kind == history.KindWrite && a.Accepted {
			accepted[a.Op] = true
		}
	}
	granted := h.Grants()
	others := false
	for i, g := range granted {
		others = others || slices.ContainsFunc(granted[:i], func(b history.Op) bool { return b.Key == g.Key && b.Process != g.Process })
	}
	wrote := false
	for _, w := range h.Ops {
		if w.Kind != history.KindWrite {
			continue
		}
		wrote = true
		own := int64(-1) // when the writer was granted the lock last
		for _, g := range granted {
			if g.Process == w.Process && g.Key == w.Key && g.Ret <= w.Call {
				own = g.Ret
			}
		}
		late := slices.ContainsFunc(granted, func(g history.Op) bool {
			return g.Process != w.Process && g.Key == w.Key && own >= 0 && g.Ret > own && g.Ret < w.Ret
		})
		if late && !accepted[w.Index] {
			return Rejected
		}
	}
	switch {
	case others:
		return NotSent
	case wrote:
		return NoneOther
	}
	return ""
}
