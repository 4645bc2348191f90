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
	// Ran is told of each run, also of those that shrinking takes, what it came to:
	// whether it was a hit, and whether it proved nothing.
	Ran func(hit, unproved bool)
}

// Found is what a hunt found.
type Found struct {
	Runs         int // made until the violation, or in all
	Inconclusive int // of these
	Failed       int // of these, because the environment did
	Elapsed      time.Duration
	First        time.Duration // until a first run with a violation, by luck or not

	Run      *reports.Run        // the first with the violation; nil if there was none
	Property string              // that it violates
	Shrunk   *scenarios.Scenario // reproduces it
	File     string              // in which Shrunk was saved
	Hits, Of int                 // how often Shrunk did, and of how many runs
}

// How candidates are judged: one stands if it showed the violation in judgeRuns of
// as many runs; what is left in the end is run rateRuns times, of which rateHits
// must show it. What does not stand came by luck, and the hunt goes on.
const (
	judgeRuns = 3
	rateHits  = 9
	rateRuns  = 10
)

// shrinkLimit bounds the number of candidates.
const shrinkLimit = 60

// Hunt runs random schedules until one violates a property again and again,
// shrinks that schedule by running parts of it, and saves what is left as a
// scenario. If time runs out before, the last that came by luck is saved, with its
// hit rate. The error is of the kind that keeps runs from being made at all.
func Hunt(ctx context.Context, o HuntOptions) (*Found, error) {
	begin := time.Now()
	f := &Found{}
	for ctx.Err() == nil && time.Since(begin) < o.Time {
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
		violated := Violated(r, o.Properties)
		if ctx.Err() != nil && len(violated) == 0 {
			return f, os.RemoveAll(r.Dir) // it was cut short
		}
		f.Runs++
		f.Elapsed = time.Since(begin)
		o.ran(r, len(violated) > 0)
		o.Progress(fmt.Sprintf("run %d, seed %d, %d faults: %s", f.Runs, run.Seed, len(sc.Nemesis), f.count(r, violated)))
		if len(violated) == 0 {
			// Thousands of runs in which nothing was found are of no use.
			if err := os.RemoveAll(r.Dir); err != nil {
				return nil, err
			}
			continue
		}
		if f.Run == nil {
			f.First = f.Elapsed
		}
		f.Run, f.Property = r, violated[0]
		stands, err := f.shrink(ctx, o, sc, run.Seed)
		if err != nil || stands {
			return f, err
		}
		o.Progress(fmt.Sprintf("that came by luck (%d of %d runs): on", f.Hits, f.Of))
	}
	return f, nil
}

func (o HuntOptions) ran(r *reports.Run, hit bool) {
	if o.Ran != nil {
		o.Ran(hit, !hit && r.Status != reports.Pass)
	}
}

// count counts what a run came to, and says it.
func (f *Found) count(r *reports.Run, violated []string) string {
	switch {
	case len(violated) > 0:
		return strings.Join(violated, ", ") + " violated"
	case r.Status == reports.Error:
		f.Failed++
		return "failed: " + strings.Join(r.Reasons, "; ")
	case r.Status == reports.Inconclusive:
		f.Inconclusive++
		return "inconclusive: " + strings.Join(r.Reasons, "; ")
	}
	return "nothing"
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

// shrink shrinks the schedule in which a violation was found, measures how often
// what is left shows it, saves it, and reports whether it stands.
func (f *Found) shrink(ctx context.Context, o HuntOptions, sc *scenarios.Scenario, seed int64) (bool, error) {
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
		hit := slices.Contains(Violated(r, []string{f.Property}), f.Property)
		o.ran(r, hit)
		return hit, os.RemoveAll(r.Dir)
	}
	judge := func(c candidate) (bool, error) {
		hits, _, err := repeated(ctx, func() (bool, error) { return once(c) }, judgeRuns, judgeRuns)
		return hits == judgeRuns, err
	}
	whole := candidate{entries: sc.Nemesis, length: sc.Workload.For}
	trail := []candidate{whole}
	again, err := judge(whole)
	if err != nil {
		return false, err
	}
	if again {
		if trail, err = shrink(ctx, whole, ttl, judge, o.Progress); err != nil {
			return false, err
		}
	}
	best, err := f.rate(ctx, trail, once)
	if err != nil {
		return false, err
	}
	return f.Hits >= rateHits, f.save(o, best, sc, ttl, seed)
}

// rate measures how often a schedule shows the violation. Of the trail that
// shrinking has left it takes the last that does so often enough: what luck has
// let through on the way is given up, by halves.
func (f *Found) rate(ctx context.Context, trail []candidate, once func(candidate) (bool, error)) (c candidate, err error) {
	for at := len(trail) - 1; ; at /= 2 {
		c = trail[at]
		f.Hits, f.Of, err = repeated(ctx, func() (bool, error) { return once(c) }, rateHits, rateRuns)
		if err != nil || f.Hits >= rateHits || at == 0 || ctx.Err() != nil {
			return c, err
		}
	}
}

// save saves a schedule as a scenario, with its hit rate.
func (f *Found) save(o HuntOptions, c candidate, sc *scenarios.Scenario, ttl time.Duration, seed int64) (err error) {
	comment := fmt.Sprintf("Found by a hunt on %s (resource %s, TTL %v, seed %d) and shrunk from %d faults to %d:\n%s is violated. %s.",
		f.Run.Backend, f.Run.Resource, ttl, seed, len(sc.Nemesis), len(c.entries), f.Property, f.Rated())
	if f.Shrunk, err = c.scenario(sc, comment); err != nil {
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

// Rated says how often the shrunk scenario showed the violation.
func (f *Found) Rated() string {
	if f.Of == 0 {
		return "It was not run again, since the hunt was interrupted"
	}
	return fmt.Sprintf("Reproduced in %d of %d runs", f.Hits, f.Of)
}

// repeated runs n times, or until fewer than k hits have become certain, or ctx ends,
// and returns the hits and the number of runs. One that was cut short is not counted.
func repeated(ctx context.Context, run func() (bool, error), k, n int) (hits, of int, err error) {
	for of < n && hits+n-of >= k && ctx.Err() == nil {
		hit, err := run()
		if err != nil {
			return hits, of, err
		}
		if ctx.Err() != nil {
			break
		}
		of++
		if hit {
			hits++
		}
	}
	return hits, of, nil
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
// first candidate, the whole, is taken to show it. It is greedy: the last of the
// trail that it returns, of candidates each smaller than the one before, was judged,
// but need not be the smallest.
func shrink(ctx context.Context, whole candidate, ttl time.Duration, judge func(candidate) (bool, error), tell func(string)) (trail []candidate, err error) {
	best, tried := whole, 0
	trail = []candidate{whole}
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
		trail = append(trail, c)
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
					return trail, err
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
				return trail, err
			}
		}
	}
	for best.length.Of(ttl) > 2*ttl {
		half := best
		half.length = scenarios.Duration{TTLs: tenth(float64(best.length.Of(ttl)) / float64(ttl) / 2)}
		if ok, err := try(half, "shorter workload"); err != nil || !ok {
			return trail, err
		}
	}
	return trail, nil
}

// simplifications make an entry simpler, one thing at a time. They change nothing
// where it is so already.
func simplifications(ttl time.Duration) []func(*scenarios.Injection) {
	return []func(*scenarios.Injection){
		func(e *scenarios.Injection) {
			if e.When == "" { // events return more reliably than times
				e.At, e.When, e.Nth = scenarios.Duration{}, "grant", 1
			}
		},
		func(e *scenarios.Injection) { e.Nth = min(e.Nth, 1) },
		func(e *scenarios.Injection) { e.After = scenarios.Duration{} },
		func(e *scenarios.Injection) {
			if d := e.For.Of(ttl); d > 3*ttl/2 {
				e.For = scenarios.Duration{TTLs: tenth(float64(d) / float64(ttl) / 2)}
			}
		},
	}
}
