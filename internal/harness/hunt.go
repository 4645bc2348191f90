package harness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// HuntOptions say what to hunt for, and for how long.
type HuntOptions struct {
	Scenario   *scenarios.Scenario // whose workload is disturbed
	Run        Options             // of each run; Seed is the first one's
	Faults     []Weighted
	Properties []string      // whose violation is hunted for; empty means all
	Time       time.Duration // for finding; shrinking comes on top
	Servers    []string      // names of the backend's servers
	Leader     bool          // they are a cluster with a leader
	Save       string        // file for the shrunk scenario
	// Progress is told what happens, a line each.
	Progress func(line string)
}

// Found is what a hunt found.
type Found struct {
	Runs         int // made until the violation, or in all
	Inconclusive int // of these
	Failed       int // of these, because the environment did
	Elapsed      time.Duration

	Run      *reports.Run        // the first with the violation; nil if there was none
	Property string              // that it violates
	Shrunk   *scenarios.Scenario // reproduces it
	File     string              // in which Shrunk was saved
	Hits, Of int                 // how often Shrunk did, and of how many runs
}

// How candidates are judged when a schedule is shrunk: one stands if it showed
// the violation in shrinkHits of shrinkRuns, the result is run rateRuns times.
const (
	shrinkHits = 3
	shrinkRuns = 3
	rateRuns   = 10
)

// shrinkLimit bounds the number of candidates.
const shrinkLimit = 60

// Hunt runs random schedules until one violates a property, shrinks that schedule
// by running parts of it, and saves what is left as a scenario. The error is of
// the kind that keeps runs from being made at all.
func Hunt(ctx context.Context, o HuntOptions) (*Found, error) {
	begin := time.Now()
	f := &Found{}
	var hit *scenarios.Scenario
	var seed int64
	for f.Run == nil {
		if ctx.Err() != nil || time.Since(begin) >= o.Time {
			f.Elapsed = time.Since(begin)
			return f, nil
		}
		run := o.Run
		run.Seed += int64(f.Runs)
		sc, err := Compose(o.Scenario, run.Seed, o.Faults, leaseOf(run, o.Scenario), Topology{Servers: o.Servers, Leader: o.Leader})
		if err != nil {
			return nil, err
		}
		r, err := Run(ctx, sc, run)
		if err != nil {
			return nil, err
		}
		f.Runs++
		violated := Violated(r, o.Properties)
		word := strings.Join(violated, ", ") + " violated"
		switch {
		case len(violated) > 0:
			f.Run, f.Property = r, violated[0]
			hit, seed = sc, run.Seed
		case r.Status == reports.Error:
			f.Failed++
			word = "failed: " + strings.Join(r.Reasons, "; ")
		case r.Status == reports.Inconclusive:
			f.Inconclusive++
			word = "inconclusive: " + strings.Join(r.Reasons, "; ")
		default:
			word = "nothing"
		}
		o.Progress(fmt.Sprintf("run %d, seed %d, %d faults: %s", f.Runs, run.Seed, len(sc.Nemesis), word))
		if f.Run == nil {
			// Thousands of runs in which nothing was found are of no use.
			if err := os.RemoveAll(r.Dir); err != nil {
				return nil, err
			}
		}
	}
	f.Elapsed = time.Since(begin)
	return f, f.shrink(ctx, o, hit, seed)
}

// leaseOf is the lease that a run asks for.
func leaseOf(o Options, sc *scenarios.Scenario) time.Duration {
	ttl := o.TTL
	if ttl == 0 {
		ttl = sc.TTL.Of(0)
	}
	if o.Backend.MinTTL != nil {
		ttl = max(ttl, o.Backend.MinTTL(backends.Options{Nodes: o.Nodes, TTL: ttl}))
	}
	return ttl
}

// shrink shrinks the schedule in which a violation was found, and measures how
// often what is left shows it.
func (f *Found) shrink(ctx context.Context, o HuntOptions, sc *scenarios.Scenario, seed int64) error {
	ttl := leaseOf(o.Run, sc)
	run := o.Run
	run.Seed = seed
	once := func(c candidate) (bool, error) {
		part, err := c.scenario(sc, "")
		if err != nil {
			return false, err
		}
		r, err := Run(ctx, part, run)
		if err != nil {
			return false, err
		}
		return slices.Contains(Violated(r, []string{f.Property}), f.Property), os.RemoveAll(r.Dir)
	}
	judge := func(c candidate) (bool, error) {
		return judged(func() (bool, error) { return once(c) }, shrinkHits, shrinkRuns)
	}
	whole := candidate{entries: sc.Nemesis, length: sc.Workload.For}
	best, err := shrink(ctx, whole, ttl, judge, o.Progress)
	if err != nil {
		return err
	}
	for range rateRuns {
		if ctx.Err() != nil {
			break
		}
		again, err := once(best)
		if err != nil {
			return err
		}
		f.Of++
		if again {
			f.Hits++
		}
	}
	comment := fmt.Sprintf("Found by a hunt on %s (resource %s, TTL %v, seed %d) and shrunk from %d faults to %d:\n%s is violated. Reproduced in %d of %d runs.",
		f.Run.Backend, f.Run.Resource, ttl, seed, len(sc.Nemesis), len(best.entries), f.Property, f.Hits, f.Of)
	if f.Shrunk, err = best.scenario(sc, comment); err != nil {
		return err
	}
	f.Shrunk.Name = fmt.Sprintf("hunt-%s-%d", f.Run.Backend, seed)
	f.Shrunk.Violates = f.Property
	f.Shrunk.Backends = []string{f.Run.Backend}
	f.Shrunk.TTL = scenarios.Duration{Time: ttl}
	f.Shrunk.Summary = fmt.Sprintf("A schedule under which %s is violated", f.Property)
	f.Shrunk.Source = scenarios.Format(f.Shrunk, comment)
	if err := os.WriteFile(o.Save, f.Shrunk.Source, 0o644); err != nil {
		return fmt.Errorf("save the scenario: %w", err)
	}
	f.File = o.Save
	return nil
}

// judged runs until it is certain whether a candidate shows the violation in k
// of n runs.
func judged(run func() (bool, error), k, n int) (bool, error) {
	hits := 0
	for i := range n {
		hit, err := run()
		if err != nil {
			return false, err
		}
		if hit {
			hits++
		}
		if hits == k || hits+n-1-i < k {
			break
		}
	}
	return hits == k, nil
}

// candidate is a schedule that might do.
type candidate struct {
	entries []scenarios.Injection
	length  scenarios.Duration // of the workload
}

func (c candidate) scenario(of *scenarios.Scenario, comment string) (*scenarios.Scenario, error) {
	sc := *of
	w := *of.Workload
	w.For = c.length
	sc.Workload = &w
	return disturbed(&sc, c.entries, comment)
}

// shrink finds a smaller schedule that still shows the violation, by judging
// candidates: first halves and then single entries are left out, then what is left is made
// to begin earlier and to last shorter, and the workload to be shorter. The
// first candidate, the whole, is taken to show it. It is greedy: what it returns
// was judged, but need not be the smallest.
func shrink(ctx context.Context, whole candidate, ttl time.Duration, judge func(candidate) (bool, error), tell func(string)) (candidate, error) {
	best, tried := whole, 0
	try := func(c candidate, what string) (bool, error) {
		if ctx.Err() != nil || tried >= shrinkLimit {
			return false, nil
		}
		tried++
		ok, err := judge(c)
		if err != nil || !ok {
			return false, err
		}
		best = c
		tell(fmt.Sprintf("shrunk to %d faults in %v: %s", len(c.entries), c.length.Of(ttl), what))
		return true, nil
	}
	for size := (len(best.entries) + 1) / 2; size >= 1; size /= 2 {
		for at := 0; at < len(best.entries) && len(best.entries) > 1; {
			end := min(at+size, len(best.entries))
			c := best
			c.entries = slices.Delete(slices.Clone(best.entries), at, end)
			ok := false
			if len(c.entries) > 0 {
				var err error
				if ok, err = try(c, "left out "+best.entries[at].Fault); err != nil {
					return best, err
				}
			}
			if !ok {
				at = end
			}
		}
	}
	for i := range best.entries {
		for _, simplify := range simplifications(ttl) {
			c := best
			c.entries = slices.Clone(best.entries)
			simplify(&c.entries[i])
			if c.entries[i].String() == best.entries[i].String() {
				continue
			}
			if _, err := try(c, c.entries[i].String()); err != nil {
				return best, err
			}
		}
	}
	for best.length.Of(ttl) > 2*ttl {
		half := best
		half.length = scenarios.Duration{TTLs: tenth(float64(best.length.Of(ttl)) / float64(ttl) / 2)}
		if ok, err := try(half, "shorter workload"); err != nil || !ok {
			return best, err
		}
	}
	return best, nil
}

// simplifications make an entry simpler, one thing at a time. They change nothing
// where it is so already.
func simplifications(ttl time.Duration) []func(*scenarios.Injection) {
	return []func(*scenarios.Injection){
		func(e *scenarios.Injection) { e.Nth = min(e.Nth, 1) },
		func(e *scenarios.Injection) { e.After = scenarios.Duration{} },
		func(e *scenarios.Injection) {
			if d := e.For.Of(ttl); d > 3*ttl/2 {
				e.For = scenarios.Duration{TTLs: tenth(float64(d) / float64(ttl) / 2)}
			}
		},
	}
}
