package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
)

// gateFlags say when `run` lets a lock pass, and for how long it tries.
type gateFlags struct {
	allowInconclusive bool
	budget            time.Duration
	baseline          string // file
	writeBaseline     string // file
}

func (f *gateFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.BoolVar(&f.allowInconclusive, "allow-inconclusive", false, "let runs that proved nothing pass, if at least one run of each kind proved something")
	fs.DurationVar(&f.budget, "budget", 0, "repeat, each time with another seed, as often as fits into this time; each is run once in any case")
	fs.StringVar(&f.baseline, "baseline", "", "file of known violations, which do not count")
	fs.StringVar(&f.writeBaseline, "write-baseline", "", "write the violations of these runs to this file, as the known ones")
	c.MarkFlagsMutuallyExclusive("budget", "repeat")
}

// gate decides what runs come to.
type gate struct {
	gateFlags
	known *baseline // nil for none
}

// newGate reads what the flags name.
func newGate(f gateFlags) (*gate, error) {
	if f.budget < 0 {
		return nil, usagef("--budget %v: cannot be negative", f.budget)
	}
	g := &gate{gateFlags: f}
	var err error
	if f.baseline != "" {
		g.known, err = readBaseline(f.baseline)
	}
	if err == nil && f.writeBaseline != "" {
		err = writableDir(filepath.Dir(f.writeBaseline)) // before the runs, so that a wrong name costs nothing
	}
	return g, err
}

// writableDir says whether files can be made in a folder.
func writableDir(dir string) error {
	f, err := os.CreateTemp(dir, ".lockcheck-*")
	if err != nil {
		return environment(fmt.Errorf("--write-baseline: %w", err))
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return environment(fmt.Errorf("--write-baseline: %w", err))
	}
	return nil
}

// lets reports whether a run by itself does not keep the gate shut. It takes no
// gate to judge by the run alone.
func (g *gate) lets(r *reports.Run) bool {
	return r.Status == reports.Pass || r.Status == reports.Inconclusive && g != nil && g.allowInconclusive
}

// status is the exit status for all runs.
func (g *gate) status(runs []*reports.Run) int {
	if g == nil || !g.allowInconclusive || len(g.unproved(runs)) > 0 {
		return statusOf(runs)
	}
	return statusOf(slices.DeleteFunc(slices.Clone(runs), func(r *reports.Run) bool { return r.Status == reports.Inconclusive }))
}

// unproved are the kinds of runs of which none proved anything: what a gate lets
// pass must have been tested.
func (g *gate) unproved(runs []*reports.Run) (titles []string) {
	for _, group := range reports.Groups(runs) {
		if !slices.ContainsFunc(group, func(r *reports.Run) bool { return r.Status != reports.Inconclusive }) {
			titles = append(titles, title(group[0]))
		}
	}
	return titles
}

// remarks are the lines that say what the runs come to beside their verdicts.
func (g *gate) remarks(runs []*reports.Run) (lines []string) {
	if g.allowInconclusive {
		n := 0
		for _, r := range runs {
			if r.Status == reports.Inconclusive {
				n++
			}
		}
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%d of %s proved nothing, which is allowed", n, counted(len(runs), "run")))
		}
		for _, t := range g.unproved(runs) {
			lines = append(lines, fmt.Sprintf("%s: no run proved anything, so this is not allowed to pass", t))
		}
	}
	if g.budget > 0 {
		groups := reports.Groups(runs)
		for _, group := range groups {
			lines = append(lines, fmt.Sprintf("%s: %s", title(group[0]), rateOf(group)))
		}
		if len(groups) > 1 {
			lines = append(lines, fmt.Sprintf("in all: %s", rateOf(runs)))
		}
	}
	if g.known != nil {
		lines = append(lines, g.known.compare(runs)...)
	}
	return lines
}

// finish writes the new baseline. That of runs which were cut short would forget
// what they had not come to.
func (g *gate) finish(runs []*reports.Run, gated []string, complete bool) error {
	switch {
	case g.writeBaseline == "":
		return nil
	case !complete:
		return environment(fmt.Errorf("--write-baseline %s: not written, since not all runs were made", g.writeBaseline))
	}
	return g.known.after(runs, gated).write(g.writeBaseline)
}

// rateOf says how often runs violated what counts, and what that says of the rate.
func rateOf(runs []*reports.Run) string {
	var decided, violations, faults, grants int
	what := "violation"
	for _, r := range runs {
		if len(r.Known) > 0 {
			what = "new violation"
		}
		switch r.Status {
		case reports.Violation:
			violations++
		case reports.Pass:
		default:
			continue // it says nothing of the rate
		}
		decided++
		faults += r.Faults
		grants += r.GrantsUnderFault
	}
	if decided == 0 {
		return fmt.Sprintf("none of %s proved anything", counted(len(runs), "run"))
	}
	s := fmt.Sprintf("%s in %s, %s, %s under fault", counted(violations, what), counted(decided, "run"), counted(faults, "fault"), counted(grants, "grant"))
	if violations == decided {
		return s
	}
	return s + fmt.Sprintf(": at 95 %% the rate is below %s", percent(upperBound(violations, decided)))
}

// percent writes a part as percents, rounded up: it is a bound.
func percent(p float64) string {
	digits := 0
	for limit := 0.1; p < limit && digits < 6; limit /= 10 {
		digits++
	}
	scale := 1.0
	for range digits {
		scale *= 10
	}
	return fmt.Sprintf("%.*f %%", digits, ceil(p*100*scale)/scale)
}

// judgement is what a run means to a command.
type judgement struct {
	ok   bool
	word string
}

// judge says whether a run shows what a command is about.
func (o *output) judge(u unit, r *reports.Run) judgement {
	if o.assert != nil {
		ok, word := o.assert(u.scenario, r)
		return judgement{ok, word}
	}
	word := string(r.Status)
	if known := knownViolations(r); len(known) > 0 {
		word += ", known: " + strings.Join(known, ", ")
	}
	return judgement{o.gate.lets(r), word}
}

// knownViolations are the violated properties of a run that do not count since they
// are known.
func knownViolations(r *reports.Run) (known []string) {
	for _, p := range r.Known {
		if r.Verdict(p) == checker.Violated {
			known = append(known, p)
		}
	}
	return known
}
