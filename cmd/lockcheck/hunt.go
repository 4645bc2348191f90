package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
)

// huntTTL keeps the runs of a hunt short: many short ones find more than
// few long ones.
const huntTTL = 200 * time.Millisecond

func (a *app) huntCommand() *cobra.Command {
	var f runFlags
	var faults, hunted []string
	var within time.Duration
	var save string
	c := &cobra.Command{
		Use:   "hunt [NAME|FILE]",
		Short: "Try random schedules of faults until one violates a property, and shrink it",
		Long: `Run a workload (contention, unless another is named) under random schedules of
faults until one violates a property. Then shrink that schedule by running parts
of it again, and save what is left as a scenario that reproduces the violation,
with its hit rate. The exit status is 1 if a violation was found, 0 if none was,
and 3 if no run was conclusive.`,
		Example: `  lockcheck hunt --backend redis --faults pause,clock,partition --time 1m
  lockcheck hunt --backend etcd --property lease --time 10m
  lockcheck hunt --backend redis --client ./my-lock`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"contention"}
			}
			if f.ttl == 0 {
				f.ttl = huntTTL
			}
			if err := checkProperties(hunted); err != nil {
				return err
			}
			kinds, err := harness.ParseFaults(faults)
			if err != nil {
				return usage(fmt.Errorf("--faults: %w", err))
			}
			p, err := newPlan("hunt", f, args, false)
			if err != nil {
				return err
			}
			if len(p.units) != 1 {
				return usagef("hunt on one backend with one resource, not on %d combinations", len(p.units))
			}
			if p.units[0].scenario.Workload == nil {
				return usagef("%s has steps: hunt with a workload, such as contention", p.units[0].scenario.Name)
			}
			if err := p.availableFaults(kinds); err != nil {
				return err
			}
			return a.hunt(c, p, kinds, hunted, within, save)
		},
	}
	fs := c.Flags()
	f.add(c)
	for _, name := range []string{"repeat", "json", "gate"} {
		_ = fs.MarkHidden(name) // they are about single runs
	}
	fs.StringSliceVar(&faults, "faults", []string{"pause", "partition", "clock"}, "kinds of faults, each with an optional weight: pause,clock:0.2")
	fs.StringSliceVar(&hunted, "property", []string{"lease", "fence"}, "properties whose violation is hunted for")
	fs.DurationVar(&within, "time", 10*time.Minute, "how long to try; shrinking comes on top")
	fs.StringVar(&save, "save", "", "file for the scenario that reproduces the violation (default: in the folder for runs)")
	return c
}

func (a *app) hunt(c *cobra.Command, p *plan, kinds []harness.Weighted, hunted []string, within time.Duration, save string) error {
	u := p.units[0]
	out, err := filepath.Abs(p.flags.out)
	if err != nil {
		return environment(err)
	}
	if save == "" {
		save = filepath.Join(out, fmt.Sprintf("hunt-%s-%d.yaml", u.backend.Name, p.flags.seed))
	}
	cache := deploy.NewCache()
	defer cache.Close()
	l := a.live(c.Context(), liveOptions{counts: "violation", deadline: time.Now().Add(within), told: true})
	defer l.close()
	act := l.begin("hunt with "+p.title(u), 0)
	run := p.options(u)
	run.Seed, run.Cache, run.Out, run.Gate, run.Watch = p.flags.seed, cache, out, hunted, act.observe
	topology := p.topologyOf(u.backend, backends.Options{Nodes: p.flags.nodes, TTL: p.flags.ttl})
	f, err := harness.Hunt(c.Context(), harness.HuntOptions{
		Scenario: u.scenario, Run: run,
		Faults: kinds, Properties: hunted, Time: within,
		Servers: topology.Servers, Leader: topology.Leader, Save: save,
		Progress: func(line string) { l.print(func() { fmt.Fprintln(a.stdout, line) }) },
		Ran:      l.count,
	})
	l.close()
	if err != nil {
		return environment(err)
	}
	what := fmt.Sprintf("%d runs in %v", f.Runs, f.Elapsed.Round(time.Second))
	if f.Run == nil {
		fmt.Fprintf(a.stdout, "no violation of %s in %s (%d inconclusive, %d failed)\n", strings.Join(hunted, ", "), what, f.Inconclusive, f.Failed)
		switch {
		case c.Context().Err() != nil:
			return exitError{exitInterrupted, errors.New("interrupted")}
		case f.Runs > 0 && f.Failed == f.Runs:
			return ended(exitEnvironment)
		case f.Inconclusive+f.Failed == f.Runs:
			return ended(exitInconclusive)
		}
		return nil
	}
	if f.First < f.Elapsed {
		what += fmt.Sprintf(" (the first time, by luck, after %v)", f.First.Round(time.Second))
	}
	fmt.Fprintf(a.stdout, "%s is violated, found in %s; see %s\n%s; saved as %s:\n%s",
		f.Property, what, f.Run.Dir, f.Rated(), f.File, f.Shrunk.Source)
	return ended(exitViolation)
}

// topologyOf is what a schedule can act on in a backend.
func (p *plan) topologyOf(b backends.Backend, o backends.Options) harness.Topology {
	var t harness.Topology
	if b.Servers == nil || len(p.flags.endpoints.servers) > 0 {
		return t
	}
	for _, s := range b.Servers(o) {
		t.Servers = append(t.Servers, s.Name)
		t.Leader = t.Leader || s.Software == "etcd"
	}
	return t
}
