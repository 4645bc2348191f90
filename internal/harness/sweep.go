package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// Sweep says what is measured over a range of leases: how often a pause of the
// holder is a violation, and how long the lock stays taken after the holder's
// death.
type Sweep struct {
	TTLs   []time.Duration
	Pauses int // of holders, for each lease
	Deaths int // of holders, for each lease
	// Least is the shortest pause and Tail the index of the Pareto distribution
	// of which pauses are: the part that is longer than t is (Least/t)^Tail.
	// With a Tail of 1 or less it has no mean. Most cuts it off.
	Least, Most time.Duration
	Tail        float64
}

// Check says what is wrong with a sweep.
func (s Sweep) Check() error {
	switch {
	case len(s.TTLs) == 0:
		return fmt.Errorf("a sweep needs leases")
	case slices.Min(s.TTLs) < time.Millisecond:
		return fmt.Errorf("lease %v: must be a millisecond at least", slices.Min(s.TTLs))
	case s.Pauses < 1 || s.Pauses > 10_000:
		return fmt.Errorf("%d pauses: must be from 1 to 10000", s.Pauses)
	case s.Deaths < 0 || s.Deaths > 100:
		return fmt.Errorf("%d deaths: must be from 0 to 100", s.Deaths)
	case s.Least < time.Millisecond || s.Most < s.Least:
		return fmt.Errorf("pauses from %v to %v: must be a millisecond at least, and in order", s.Least, s.Most)
	case !(s.Tail > 0 && s.Tail < 100):
		return fmt.Errorf("tail %v: must be above 0 and below 100", s.Tail)
	}
	return nil
}

// Draw returns the pauses, which are a function of the seed: they are the same
// for every lease, so that nothing but the lease differs.
func (s Sweep) Draw(seed int64) []time.Duration {
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	all := make([]time.Duration, s.Pauses)
	for i := range all {
		all[i] = min(time.Duration(float64(s.Least)*math.Pow(1-rng.Float64(), -1/s.Tail)), s.Most)
	}
	return all
}

// SweepPoint is what was measured with one lease.
type SweepPoint struct {
	TTL        time.Duration   `json:"ttl_ns"`
	Pauses     int             `json:"pauses"`        // that took effect
	Longer     int             `json:"longer"`        // of those drawn, longer than the lease
	Violations int             `json:"violations"`    // pauses in which another client was granted the lock
	Recoveries []time.Duration `json:"recoveries_ns"` // from the holder's death to the next grant
	Run        *reports.Run    `json:"run"`
}

// Rate is the part of pauses that were a violation.
func (p SweepPoint) Rate() float64 { return float64(p.Violations) / float64(max(p.Pauses, 1)) }

// Recovery is the median time to recover, 0 if none was measured.
func (p SweepPoint) Recovery() time.Duration {
	if len(p.Recoveries) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(p.Recoveries))[len(p.Recoveries)/2]
}

// Of the sections of a sweep's workload, one in so many is disturbed.
const sweepEvery = 4

// scenario is the workload of one lease. Holders are paused between their check
// and their write, as in gc-pause, and killed after their grant.
func (s Sweep) scenario(ttl time.Duration, pauses []time.Duration) (*scenarios.Scenario, error) {
	sc := &scenarios.Scenario{
		Name:    "sweep",
		Summary: "Holders are paused for random times, and killed",
		Why:     "No lease is right: a short one is lost in pauses, a long one outlives its holder.\n",
		Claims:  []string{"L3"},
		TTL:     scenarios.Duration{Time: ttl},
		Workload: &scenarios.Workload{
			Clients: 3 + s.Deaths, Check: true, Wait: scenarios.Duration{Time: s.Most + ttl + time.Minute},
			Operations: sweepEvery * (len(pauses) + s.Deaths + 1),
		},
	}
	for i, d := range pauses {
		sc.Nemesis = append(sc.Nemesis, scenarios.Injection{
			Fault: "pause", On: []string{"holder"}, When: history.Check, Nth: sweepEvery * (i + 1), For: scenarios.Duration{Time: d},
		})
	}
	for i := range s.Deaths {
		sc.Nemesis = append(sc.Nemesis, scenarios.Injection{
			Fault: "kill", On: []string{"holder"}, When: "grant", Nth: sweepEvery*(len(pauses)+i) + 2,
		})
	}
	if err := sc.Validate(); err != nil {
		return nil, err
	}
	sc.Source = scenarios.Format(sc, "Made by lockcheck sweep.")
	return sc, nil
}

// RunSweep measures one point after the other: begin is told its lease, and done what
// was measured. When ctx ends it makes no more; a point that was cut short is not
// one.
func RunSweep(ctx context.Context, s Sweep, o Options, begin func(ttl time.Duration), done func(SweepPoint)) ([]SweepPoint, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	pauses := s.Draw(o.Seed)
	var points []SweepPoint
	for _, ttl := range s.TTLs {
		if ctx.Err() != nil {
			break
		}
		sc, err := s.scenario(ttl, pauses)
		if err != nil {
			return points, err
		}
		o.TTL = ttl
		begin(ttl)
		r, err := Run(ctx, sc, o)
		if err != nil {
			return points, err
		}
		if ctx.Err() != nil {
			break
		}
		p, err := measure(r.Dir)
		if err != nil {
			return points, err
		}
		p.TTL, p.Run = r.TTL, r
		for _, d := range pauses {
			if d > p.TTL {
				p.Longer++
			}
		}
		points = append(points, p)
		done(p)
	}
	return points, nil
}

// measure reads the figures of a point from the run's history: a pause is a
// violation if another client is granted the lock while the holder is
// frozen, since that still believes that it holds when it wakes up.
func measure(dir string) (SweepPoint, error) {
	h, err := history.Open(filepath.Join(dir, HistoryFile), history.ReadOptions{})
	if err != nil {
		return SweepPoint{}, err
	}
	var p SweepPoint
	type grant struct {
		at      int64
		process string
	}
	var grants []grant
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.KindAcquire && op.Outcome == history.Done {
			grants = append(grants, grant{op.Ret, h.Processes[op.Process]})
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return int(a.at - b.at) })
	frozen := map[string]int64{} // since when
	for _, e := range h.Other {
		if e.Process != history.Nemesis {
			continue
		}
		on := targetsOf(e)
		if len(on) != 1 {
			continue
		}
		switch {
		case e.F == "pause" && e.Type == history.OK:
			frozen[on[0]] = e.Time
		case e.F == history.Heal && frozen[on[0]] > 0:
			p.Pauses++
			if slices.ContainsFunc(grants, func(g grant) bool {
				return g.process != on[0] && g.at > frozen[on[0]] && g.at < e.Time
			}) {
				p.Violations++
			}
			delete(frozen, on[0])
		case e.F == "kill" && e.Type == history.OK:
			if i := slices.IndexFunc(grants, func(g grant) bool { return g.at > e.Time }); i >= 0 {
				p.Recoveries = append(p.Recoveries, time.Duration(grants[i].at-e.Time))
			}
		}
	}
	return p, nil
}

// targetsOf are the targets that an event of the nemesis names.
func targetsOf(e history.Event) []string {
	var v struct {
		On []string `json:"on"`
	}
	_ = json.Unmarshal(e.Value, &v) // one that names none has none
	return v.On
}
