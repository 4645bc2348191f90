package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/internal/mutants"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// mutantSuite is what mutants have to be caught by.
const mutantSuite = "ci"

func (a *app) mutantsCommand() *cobra.Command {
	var f mutantFlags
	c := &cobra.Command{
		Use:   "mutants [NAME...]",
		Short: "Show that the suite ci catches locks that are broken on purpose, and no correct one",
		Long: `Run lock clients that are broken on purpose, one flaw each, and the correct clients
that they are made from. A mutant is caught if the suite ci finds the property
violated that its flaw breaks; a correct client must pass it all. By default each
mutant runs the scenario that is there for its flaw, with --full the whole suite.
The exit status is 0 if all were caught by the right property, and no correct
client raised an alarm.`,
		Example: `  lockcheck mutants
  lockcheck mutants release-without-owner-check --full
  lockcheck run ci --backend redis --client 'lockcheck mutant loss-only-logged'`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, m := range slices.Concat(mutants.All(), mutants.Twins()) {
				names = append(names, m.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			chosen, err := chooseMutants(args, f.kinds)
			if err != nil {
				return usage(err)
			}
			if f.list {
				return a.listMutants(chosen)
			}
			if f.repeat < 1 {
				return usagef("--repeat %d: must be at least 1", f.repeat)
			}
			return a.runMutants(c.Context(), chosen, f)
		},
	}
	fs := c.Flags()
	fs.BoolVar(&f.full, "full", false, "run the whole suite with each mutant")
	fs.BoolVar(&f.list, "list", false, "list the mutants, and run nothing")
	fs.BoolVar(&f.json, "json", false, "print one JSON object a client, and one for the score")
	fs.IntVar(&f.repeat, "repeat", 1, "how often the correct clients run the suite")
	fs.StringSliceVar(&f.kinds, "kind", nil, "only mutants of these kinds: K9,K17")
	fs.StringVar(&f.out, "out", "lockcheck-runs", "folder for the folders of runs")
	fs.StringToStringVar(&f.bin, "bin", nil, "server binary to use, as software=path; etcd=embedded for the built-in one")
	return c
}

type mutantFlags struct {
	full, list, json bool
	repeat           int
	kinds            []string
	out              string
	bin              map[string]string
}

// chooseMutants returns those that are named, or of the kinds, each with the
// correct client that it is made from.
func chooseMutants(args, kinds []string) ([]mutants.Mutant, error) {
	all := mutants.All()
	if len(args) == 0 && len(kinds) == 0 {
		return slices.Concat(all, mutants.Twins()), nil
	}
	var chosen []mutants.Mutant
	for _, name := range args {
		m, err := mutants.Find(name)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, m)
	}
	for _, m := range all {
		if slices.Contains(kinds, m.Kind) && !slices.ContainsFunc(chosen, func(c mutants.Mutant) bool { return c.Name == m.Name }) {
			chosen = append(chosen, m)
		}
	}
	for _, twin := range mutants.Twins() {
		made := func(m mutants.Mutant) bool { return m.Twin == twin.Name }
		here := func(m mutants.Mutant) bool { return m.Name == twin.Name }
		if slices.ContainsFunc(chosen, made) && !slices.ContainsFunc(chosen, here) {
			chosen = append(chosen, twin)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutant is of kind %s", strings.Join(kinds, ", "))
	}
	return chosen, nil
}

func (a *app) listMutants(all []mutants.Mutant) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, m := range all {
		if m.Twin == "" {
			fmt.Fprintf(w, "-\t%s\t%s\tcorrect\n", m.Name, m.Backend())
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", m.Kind, m.Name, m.Backend(), m.Flaw)
	}
	return w.Flush()
}

// mutantResult is what became of one client.
type mutantResult struct {
	Name     string   `json:"mutant"`
	Kind     string   `json:"kind,omitempty"`
	Backend  string   `json:"backend"`
	Flaw     string   `json:"flaw,omitempty"`
	Reports  []string `json:"reports,omitempty"`
	Property string   `json:"property,omitempty"` // whose violation was to show it
	Scenario string   `json:"scenario,omitempty"` // where that was to come
	Correct  bool     `json:"correct"`            // it has no flaw
	OK       bool     `json:"ok"`                 // caught by that property; or correct, and no alarm
	Found    []string `json:"found"`              // properties that were violated, as scenario: property
	Problems []string `json:"problems,omitempty"` // runs that proved nothing
	Runs     []string `json:"runs"`               // their folders
	Millis   int64    `json:"duration_ms"`
}

// mutantScore is the sum.
type mutantScore struct {
	Mutants int   `json:"mutants"`
	Caught  int   `json:"caught"`
	Correct int   `json:"correct"`
	Alarms  int   `json:"alarms"`
	Millis  int64 `json:"duration_ms"`
}

func (a *app) runMutants(ctx context.Context, all []mutants.Mutant, f mutantFlags) error {
	suite, err := scenarios.LoadAll(mutantSuite)
	if err != nil {
		return usage(err)
	}
	cache := deploy.NewCache()
	defer cache.Close()
	l := a.live(ctx, liveOptions{total: len(all), each: "client", counts: "failure", told: !f.json})
	defer l.close()
	start := time.Now()
	var score mutantScore
	unshown := 0 // correct clients of which some run proved nothing
	status := exitOK
	if !f.json {
		fmt.Fprintf(a.stdout, "%-5s %-34s %-16s %-10s %-20s %s\n", "kind", "client", "servers", "property", "scenario", "outcome")
	}
	for n, m := range all {
		if ctx.Err() != nil {
			break
		}
		act := l.begin(m.Name+" on "+m.Backend(), n+1)
		r, err := a.runMutant(ctx, m, suite, cache, f, act)
		if err != nil {
			return environment(err)
		}
		if ctx.Err() != nil {
			break // it was cut short
		}
		act.end(r.outcome(), !r.OK, false)
		switch {
		case r.Correct:
			score.Correct++
			switch {
			case len(r.Found) > 0:
				score.Alarms++
			case !r.OK:
				unshown++
			}
		default:
			score.Mutants++
			if r.OK {
				score.Caught++
			}
		}
		if !r.OK {
			status = exitViolation
		}
		l.print(func() {
			if f.json {
				err = json.NewEncoder(a.stdout).Encode(r)
				return
			}
			fmt.Fprintf(a.stdout, "%-5s %-34s %-16s %-10s %-20s %s\n", cmp.Or(r.Kind, "-"), r.Name, r.Backend, cmp.Or(r.Property, "-"), cmp.Or(r.Scenario, "-"), r.outcome())
		})
		if err != nil {
			return environment(err)
		}
	}
	l.close()
	score.Millis = time.Since(start).Milliseconds()
	if f.json {
		if err := json.NewEncoder(a.stdout).Encode(score); err != nil {
			return environment(err)
		}
	} else {
		also := ""
		if unshown > 0 {
			also = fmt.Sprintf(", %d more were not wholly tested", unshown)
		}
		fmt.Fprintf(a.stdout, "\n%d of %d mutants caught by the right property, %d of %d correct clients raised an alarm%s, in %.0f s\n",
			score.Caught, score.Mutants, score.Alarms, score.Correct, also, time.Since(start).Seconds())
	}
	if ctx.Err() != nil {
		return finally(status, exitError{exitInterrupted, fmt.Errorf("interrupted: %d of %d clients judged; what was recorded is in %s", score.Mutants+score.Correct, len(all), f.out)})
	}
	return ended(status)
}

// outcome is what became of it, in words.
func (r mutantResult) outcome() string {
	found := strings.Join(r.Found, ", ")
	switch {
	case r.Correct && r.OK:
		return "no alarm"
	case r.Correct && len(r.Found) > 0:
		return "FALSE ALARM: " + found
	case r.OK:
		return "caught"
	case len(r.Found) > 0:
		return "WRONG PROPERTY: " + found
	case len(r.Problems) > 0:
		return "NOT SHOWN: " + strings.Join(r.Problems, "; ")
	}
	return "NOT CAUGHT"
}

// runMutant runs the scenarios that a client is to run, and compares what they
// found with what is to be found. An alarm is a violation that counts, as for
// `run`.
func (a *app) runMutant(ctx context.Context, m mutants.Mutant, suite []*scenarios.Scenario, cache *deploy.Cache, f mutantFlags, act *activity) (mutantResult, error) {
	start := time.Now()
	res := mutantResult{
		Name: m.Name, Kind: m.Kind, Backend: m.Backend(), Flaw: m.Flaw, Reports: m.Reports,
		Property: m.Property, Scenario: m.Scenario, Correct: m.Twin == "", Found: []string{}, Runs: []string{},
	}
	b, err := backends.Find(m.Backend())
	if err != nil {
		return res, err
	}
	command, err := m.Command()
	if err != nil {
		return res, err
	}
	out, err := filepath.Abs(f.out)
	if err != nil {
		return res, err
	}
	repeat := 1
	if res.Correct {
		repeat = f.repeat
	}
	for n := range repeat {
		for _, sc := range suite {
			if ctx.Err() != nil {
				return res, nil
			}
			if !res.Correct && !f.full && sc.Name != m.Scenario {
				continue
			}
			if !sc.Supports(b.Name) {
				continue
			}
			resource := ""
			if len(sc.Resources) > 0 {
				resource = sc.Resources[0]
			}
			act.does(sc.Name)
			run, err := harness.Run(ctx, sc, harness.Options{
				Watch:   act.observe,
				Backend: b, Resource: resource, Client: command, Seed: int64(n + 1), Repeat: n + 1, Bin: f.bin, Cache: cache, Out: out,
				Replay: fmt.Sprintf("lockcheck run %s --backend %s --seed %d --client %s", sc.Name, b.Name, n+1, quote("lockcheck mutant "+m.Name)),
			})
			if err != nil {
				return res, err
			}
			res.add(sc, run)
		}
	}
	res.Millis = time.Since(start).Milliseconds()
	if res.Correct {
		res.OK = len(res.Found) == 0 && len(res.Problems) == 0
	} else {
		res.OK = slices.Contains(res.Found, m.Scenario+": "+m.Property)
	}
	return res, nil
}

// add takes in what a run found.
func (r *mutantResult) add(sc *scenarios.Scenario, run *reports.Run) {
	r.Runs = append(r.Runs, run.Dir)
	found := false
	for _, name := range properties {
		if run.Status == reports.Violation && run.Verdict(name) == checker.Violated && !slices.Contains(run.Excused, name) {
			r.Found = append(r.Found, sc.Name+": "+name)
			found = true
		}
	}
	if !found && run.Status != reports.Pass {
		r.Problems = append(r.Problems, fmt.Sprintf("%s: %s: %s", sc.Name, run.Status, strings.Join(run.Reasons, "; ")))
	}
}
