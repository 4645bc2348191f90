package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/plot"
)

func (a *app) sweepCommand() *cobra.Command {
	var f runFlags
	var ttls []time.Duration
	s := harness.Sweep{}
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Measure what a short and a long lease cost: violations by pauses, and recovery from deaths",
		Long: `Pause holders of a lock for random times, and kill some, with one lease after
the other. The pauses are drawn from a Pareto distribution by the seed, and are the
same for every lease. The table has, for each lease, the part of the pauses in which
another client was granted the lock, which the frozen holder is not told before it
goes on, and the time from a holder's death to the next grant. The folder for runs
gets sweep.json, and both curves as sweep.svg. The exit status is 0 if all runs
could be made.`,
		Example: `  lockcheck sweep --backend redis --seed 1
  lockcheck sweep --backend redis --leases 100ms,1s,10s --pauses 200 --tail 1.5`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s.TTLs = ttls
			if err := s.Check(); err != nil {
				return usage(err)
			}
			// What a plan needs is a workload; each lease has its own.
			p, err := newPlan("sweep", f, []string{"contention"}, false)
			if err != nil {
				return err
			}
			if len(p.units) != 1 {
				return usagef("sweep on one backend with one resource, not on %d combinations", len(p.units))
			}
			return a.sweep(c, p, s)
		},
	}
	fs := c.Flags()
	f.add(c)
	for _, name := range []string{"repeat", "json", "gate", "ttl"} {
		_ = fs.MarkHidden(name) // they are about single runs
	}
	fs.DurationSliceVar(&ttls, "leases", []time.Duration{
		50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond,
		800 * time.Millisecond, 1600 * time.Millisecond,
	}, "leases to measure")
	fs.IntVar(&s.Pauses, "pauses", 60, "pauses for each lease")
	fs.IntVar(&s.Deaths, "deaths", 5, "deaths of holders for each lease")
	fs.DurationVar(&s.Least, "least", 20*time.Millisecond, "shortest pause")
	fs.DurationVar(&s.Most, "most", 5*time.Second, "longest pause: those that are longer are cut")
	fs.Float64Var(&s.Tail, "tail", 1, "index of the Pareto distribution: (least/t)^tail of the pauses are longer than t")
	return c
}

func (a *app) sweep(c *cobra.Command, p *plan, s harness.Sweep) error {
	out, err := filepath.Abs(p.flags.out)
	if err != nil {
		return environment(err)
	}
	u := p.units[0]
	cache := deploy.NewCache()
	defer cache.Close()
	l := a.live(c.Context(), liveOptions{total: len(s.TTLs), each: "lease", told: true})
	defer l.close()
	// What is measured of a lease takes many pauses: they are told as they go.
	var act *activity
	n := 0
	o := p.options(u)
	o.Seed, o.Repeat, o.Cache, o.Out = p.flags.seed, 1, cache, out
	o.Watch = func(e history.Event) { act.observe(e) }
	points, err := harness.RunSweep(c.Context(), s, o, func(ttl time.Duration) {
		n++
		act = l.begin(fmt.Sprintf("lease %v on %s", ttl, u.backend.Name), n)
	}, func(pt harness.SweepPoint) {
		l.print(func() {
			fmt.Fprintf(a.stderr, "lease %v: %d of %d pauses violated it, recovery %v, in %v\n",
				pt.TTL, pt.Violations, pt.Pauses, pt.Recovery().Round(time.Millisecond), pt.Run.Duration.Round(time.Millisecond))
		})
		act.end("", false, pt.Run.Status == reports.Error || pt.Run.Status == reports.Inconclusive)
	})
	l.close()
	if err != nil {
		return environment(err)
	}
	interrupted := exitError{exitInterrupted, fmt.Errorf("interrupted: %d of %d leases measured", len(points), len(s.TTLs))}
	if c.Context().Err() != nil && len(points) == 0 {
		return interrupted
	}
	if err := a.writeSweep(out, p, s, points); err != nil {
		return environment(err)
	}
	if c.Context().Err() != nil {
		return interrupted
	}
	for _, pt := range points {
		if pt.Run.Status == reports.Error || pt.Run.Status == reports.Inconclusive {
			return exitError{exitInconclusive, fmt.Errorf("lease %v: %s: %v; see %s", pt.TTL, pt.Run.Status, pt.Run.Reasons, pt.Run.Dir)}
		}
	}
	return nil
}

// writeSweep prints the table, and writes the figures and the picture.
func (a *app) writeSweep(out string, p *plan, s harness.Sweep, points []harness.SweepPoint) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "lease\tpauses\tlonger than it\tviolations\trate\trecovery, median\tof deaths")
	var leases []plot.Lease
	for _, pt := range points {
		fmt.Fprintf(w, "%v\t%d\t%d\t%d\t%.1f %%\t%v\t%d\n", pt.TTL, pt.Pauses, pt.Longer, pt.Violations, 100*pt.Rate(),
			pt.Recovery().Round(100*time.Microsecond), len(pt.Recoveries))
		leases = append(leases, plot.Lease{TTL: ms(pt.TTL), Rate: pt.Rate(), Recovery: ms(pt.Recovery())})
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b, err := json.MarshalIndent(map[string]any{
		"schema": reports.Schema, "backend": p.units[0].backend.Name, "seed": p.flags.seed,
		"least_ns": s.Least, "most_ns": s.Most, "tail": s.Tail, "points": points,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "sweep.json"), append(b, '\n'), 0o600); err != nil {
		return err
	}
	var picture bytes.Buffer
	drawn, err := plot.DrawLeases(&picture, leases, plot.Options{})
	if err != nil || !drawn {
		return err
	}
	path := filepath.Join(out, "sweep.svg")
	if err := os.WriteFile(path, picture.Bytes(), 0o600); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, path)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
