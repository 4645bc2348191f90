package main

import (
	"fmt"
	"strings"

	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// assertion decides whether a run shows what a command asserts, and says it in
// a word or two.
type assertion func(*scenarios.Scenario, *reports.Run) (bool, string)

// output prints the runs of a plan as they end, and what they come to.
type output struct {
	*app
	plan   *plan
	assert assertion // nil for a gate, which asserts nothing but the runs' own status
	runs   []*reports.Run
	failed []*reports.Run // those that did not show what was asserted
	err    error          // of writing
}

func (a *app) output(p *plan, assert assertion) *output {
	return &output{app: a, plan: p, assert: assert}
}

// total is the number of runs that the plan makes.
func (o *output) total() int { return len(o.plan.units) * o.plan.flags.repeat }

// done takes a run that has ended.
func (o *output) done(u unit, r *reports.Run) {
	o.runs = append(o.runs, r)
	word := string(r.Status)
	if o.assert != nil {
		var ok bool
		if ok, word = o.assert(u.scenario, r); !ok {
			o.failed = append(o.failed, r)
		}
	}
	switch {
	case o.err != nil:
	case o.plan.flags.json:
		o.err = reports.JSON(o.stdout, r)
	case o.total() > 1:
		_, o.err = fmt.Fprintf(o.stdout, "%*d/%d  %s on %s, %s: %s (%s) %s\n",
			len(fmt.Sprint(o.total())), len(o.runs), o.total(), r.Scenario, r.Backend, r.Resource,
			word, r.Outline(), r.Duration.Round(1e6))
	}
}

// end prints what all runs come to together.
func (o *output) end() error {
	if o.err != nil || o.plan.flags.json {
		return o.err
	}
	if o.total() > 1 {
		fmt.Fprintln(o.stdout)
		if err := reports.Table(o.stdout, o.runs, o.reportOptions()); err != nil {
			return err
		}
		fmt.Fprintln(o.stdout)
	}
	// One run is told in full: the only one, or the first that needs a look.
	show := o.runs[0]
	if len(o.failed) > 0 {
		show = o.failed[0]
	}
	if o.total() == 1 || o.plan.verb == "reproduce" || len(o.failed) > 0 {
		_, err := harness.CheckRun(show.Dir, harness.CheckOptions{
			Gate: o.plan.flags.gate, Text: o.stdout, Report: o.reportOptions(),
		})
		if err != nil {
			return environment(err)
		}
	}
	if o.assert != nil && (o.total() > 1 || len(o.failed) > 0) {
		fmt.Fprintln(o.stdout, o.summary())
	}
	for _, m := range o.plan.missing {
		fmt.Fprintf(o.stdout, "left out: backend %s: %v\n", m.backend, m.why)
	}
	return nil
}

// summary counts the runs that showed what was asserted.
func (o *output) summary() string {
	word := "reproduced"
	if o.plan.verb == "verify" {
		word = "as expected"
	}
	s := fmt.Sprintf("%d of %d %s", len(o.runs)-len(o.failed), len(o.runs), word)
	if len(o.failed) > 0 {
		var dirs []string
		for _, r := range o.failed[:min(len(o.failed), 5)] {
			dirs = append(dirs, r.Dir)
		}
		s += "; the others: " + strings.Join(dirs, " ")
	}
	return s
}

// assertion returns the exit status: that of the gravest run which did not show
// what was asserted.
func (o *output) assertion(status func(*reports.Run) int) int {
	worst := exitOK
	for _, r := range o.failed {
		if s := status(r); rank(s) > rank(worst) {
			worst = s
		}
	}
	return worst
}

func (a *app) reportOptions() reports.Options {
	return reports.Options{Width: a.width(), Color: a.color()}
}
