package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
)

func (a *app) replayCommand() *cobra.Command {
	var repeat int
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use:   "replay RUNDIR",
		Short: "Run again what a run's folder holds, and say how often the violation returned",
		Long: `Run the scenario or random schedule of a run's folder again, with the same seed,
backend and options, and count the runs in which a property that it violated is
violated again. The exit status is 0 if that is so in every run, and 1 if not.
Of a run that violated nothing, it is that the status is the same.`,
		Example: "  lockcheck replay lockcheck-runs/20260102T150405.000-contention-redis-unfenced --repeat 10",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if repeat < 1 {
				return usagef("--repeat %d: must be at least 1", repeat)
			}
			return a.replay(c, args[0], repeat, out, asJSON)
		},
	}
	c.Flags().IntVar(&repeat, "repeat", 1, "how often to run it")
	c.Flags().StringVar(&out, "out", "lockcheck-runs", "folder for the folders of runs")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a run")
	return c
}

func (a *app) replay(c *cobra.Command, dir string, repeat int, out string, asJSON bool) error {
	rec, err := harness.Reload(dir)
	if err != nil {
		return inputError(err)
	}
	if err := available(rec.Options.Backend, runFlags{nodes: rec.Options.Nodes, ttl: rec.Options.TTL, bin: rec.Options.Bin}); err != nil {
		return environment(fmt.Errorf("backend %s: %w", rec.Options.Backend.Name, err))
	}
	o := rec.Options
	cache := deploy.NewCache()
	defer cache.Close()
	if o.Out, err = filepath.Abs(out); err != nil {
		return environment(err)
	}
	o.Cache, o.Replay = cache, "lockcheck replay "+quote(dir)
	want := harness.Violated(rec.Run, o.Gate)
	what := strings.Join(want, ", ") + " violated"
	if len(want) == 0 {
		what = string(rec.Run.Status)
	}
	l := a.live(c.Context(), liveOptions{total: repeat, counts: "return", told: !asJSON || repeat == 1})
	defer l.close()
	returned := 0
	var runs []*reports.Run
	for n := range repeat {
		if c.Context().Err() != nil {
			break
		}
		o.Repeat = n + 1
		act := l.begin(title(rec.Run), n+1)
		o.Watch = act.observe
		r, err := harness.Run(c.Context(), rec.Scenario, o)
		if err != nil {
			return environment(err)
		}
		runs = append(runs, r)
		is := again(rec.Run, want, r, o.Gate)
		if is {
			returned++
		}
		l.print(func() {
			if asJSON {
				err = reports.JSON(a.stdout, r)
				return
			}
			fmt.Fprintf(a.stdout, "%d/%d  %s: %s (%s) %s; see %s\n", n+1, repeat, title(r), r.Status, r.Outline(), r.Duration.Round(time.Millisecond), r.Dir)
		})
		if err != nil {
			return environment(err)
		}
		word := "did not return"
		if is {
			word = "returned"
		}
		act.end(word, is, !is && (r.Status == reports.Error || r.Status == reports.Inconclusive))
	}
	l.close()
	told := a.stdout
	if asJSON {
		told = a.stderr
	}
	fmt.Fprintf(told, "it was %s, and that returned in %d of %d runs\n", what, returned, len(runs))
	switch {
	case c.Context().Err() != nil:
		return exitError{exitInterrupted, fmt.Errorf("interrupted: %d of %d runs made, the last cut short", len(runs), repeat)}
	case returned == repeat:
		return nil
	case !slices.ContainsFunc(runs, func(r *reports.Run) bool { return r.Status != reports.Error }):
		return ended(exitEnvironment)
	}
	return ended(exitViolation)
}

// again reports whether a run shows what an earlier one did.
func again(first *reports.Run, violated []string, r *reports.Run, gate []string) bool {
	if len(violated) == 0 {
		return r.Status == first.Status
	}
	for _, p := range harness.Violated(r, gate) {
		if slices.Contains(violated, p) {
			return true
		}
	}
	return false
}
