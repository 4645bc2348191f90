package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
)

// pace says how the runs of a plan follow each other.
type pace struct {
	parallel int           // at a time
	failFast bool          // none is begun after one that fails
	budget   time.Duration // as many repeats as fit; 0 is as many as --repeat says
}

func (p *pace) add(c *cobra.Command) {
	c.Flags().IntVar(&p.parallel, "parallel", 1, "how many runs are made at a time, each with servers of its own")
	c.Flags().BoolVar(&p.failFast, "fail-fast", false, "begin no more runs after one that fails")
}

// setPace checks the pace of a plan, and sets it.
func (p *plan) setPace(how pace) error {
	if how.parallel < 1 {
		return usagef("--parallel %d: must be at least 1", how.parallel)
	}
	p.pace = how
	return nil
}

// job is a run to be made.
type job struct {
	unit unit
	of   int // the unit's place among all
	n    int // which repeat, from 0
	at   int // the run's place among all, from 0
}

// queue hands out the runs of a plan. Its methods may be called concurrently.
type queue struct {
	units  []unit
	repeat int           // of each
	budget time.Duration // instead of repeat, if it is not 0
	now    func() time.Time
	end    time.Time // of the budget

	mu      sync.Mutex
	at      int             // runs handed out
	turn    int             // with a budget: whose turn it is, and in which round
	longest []time.Duration // of each unit's runs so far
	stopped bool
}

func newQueue(units []unit, repeat int, budget time.Duration, now func() time.Time) *queue {
	return &queue{units: units, repeat: repeat, budget: budget, now: now, end: now().Add(budget), longest: make([]time.Duration, len(units))}
}

// take returns the next run, and reports whether there is one.
func (q *queue) take() (job, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return job{}, false
	}
	return q.next()
}

// next is take with mu.
func (q *queue) next() (job, bool) {
	var of, n int
	if q.budget == 0 {
		if of, n = q.at/q.repeat, q.at%q.repeat; of == len(q.units) {
			return job{}, false
		}
	} else {
		skipped := 0
		for ; q.turn >= len(q.units) && !q.fits(q.turn%len(q.units)); q.turn++ {
			if skipped++; skipped == len(q.units) {
				return job{}, false
			}
		}
		of, n = q.turn%len(q.units), q.turn/len(q.units)
		q.turn++
	}
	q.at++
	return job{q.units[of], of, n, q.at - 1}, true
}

// fits reports whether another run of a unit would end in the budget, if it took as
// long as the longest.
func (q *queue) fits(of int) bool {
	left := q.end.Sub(q.now())
	return left > 0 && q.longest[of] <= left
}

// took says how long a run took.
func (q *queue) took(j job, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.longest[j.of] = max(q.longest[j.of], d)
}

// stop has no more runs begun.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
}

// cut reports whether there would be more runs if it had not been stopped.
func (q *queue) cut() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.stopped {
		return false
	}
	q.stopped = false
	_, more := q.next()
	return more
}

// made is a run that has ended, or could not be made.
type made struct {
	job
	run *reports.Run
	err error
}

// run makes the runs of the plan. judge says what each means, as soon as it has
// ended, and done is handed them in order, one at a time. When ctx ends no more are
// begun, and none after one that fails if the pace is so: p.cut says that this kept
// some from being made. The error is of the kind that keeps runs from being made.
func (p *plan) run(ctx context.Context, l *live, judge func(unit, *reports.Run) judgement, done func(unit, *reports.Run)) error {
	cache := deploy.NewCache()
	defer cache.Close()
	out, err := filepath.Abs(p.flags.out)
	if err != nil {
		return environment(err)
	}
	q := newQueue(p.units, p.flags.repeat, p.pace.budget, time.Now)
	ended := make(chan made)
	var workers sync.WaitGroup
	for range p.pace.parallel {
		workers.Go(func() {
			for ctx.Err() == nil {
				j, ok := q.take()
				if !ok {
					return
				}
				act := l.begin(p.title(j.unit), j.at+1)
				r, err := p.make(ctx, j, cache, out, act)
				if err != nil {
					q.stop()
					act.end("failed: "+err.Error(), false, true)
				} else {
					q.took(j, r.Duration)
					is := judge(j.unit, r)
					if p.pace.failFast && !is.ok {
						q.stop()
					}
					proved := r.Status == reports.Pass || r.Status == reports.Violation
					act.end(fmt.Sprintf("%s in %v", is.word, r.Duration.Round(time.Millisecond)), proved && !is.ok, !proved)
				}
				ended <- made{j, r, err}
			}
		})
	}
	go func() { workers.Wait(); close(ended) }()
	var errs []error
	early := map[int]made{}
	next := 0
	for m := range ended {
		if m.err != nil {
			errs = append(errs, environment(m.err))
		}
		early[m.at] = m
		for ; ; next++ {
			m, ok := early[next]
			if !ok {
				break
			}
			delete(early, next)
			if m.err == nil {
				done(m.unit, m.run)
			}
		}
	}
	p.cut = q.cut()
	return errors.Join(errs...)
}

// make makes one run.
func (p *plan) make(ctx context.Context, j job, cache *deploy.Cache, out string, act *activity) (*reports.Run, error) {
	sc, err := p.scenario(j.unit, j.n)
	if err != nil {
		return nil, err
	}
	o := p.options(j.unit)
	o.Seed, o.Repeat = p.flags.seed+int64(j.n), j.n+1
	o.Known = p.known.of(sc.Name, j.unit.backend.Name, p.resourceOf(j.unit))
	o.Cache, o.Out, o.Replay, o.Watch = cache, out, p.replay(j.unit, j.n), act.observe
	return harness.Run(ctx, sc, o)
}
