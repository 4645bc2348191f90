package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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
	cases  []reports.Case // the runs as continuous integration sees them
	failed []failure      // those that did not show what was asserted
	err    error          // of writing
}

// failure is a run that did not show what was asserted, and what it showed.
type failure struct {
	*reports.Run
	word string
}

func (a *app) output(p *plan, assert assertion) *output {
	return &output{app: a, plan: p, assert: assert}
}

// total is the number of runs that the plan makes.
func (o *output) total() int { return len(o.plan.units) * o.plan.flags.repeat }

// make makes the runs of the plan and prints them. The error is that of a
// program that cannot go on; what the runs came to is the caller's to judge.
func (o *output) make(ctx context.Context) error {
	ci, err := o.openCI("lockcheck "+o.plan.verb, o.plan.flags)
	if err != nil {
		return err
	}
	err = o.plan.run(ctx, o.done)
	// Also when it was cut short: whoever reads it must see what was made.
	err = errors.Join(err, ci.write(append(o.cases, leftOut(o.plan.missing)...)))
	if err != nil {
		return err
	}
	if len(o.runs) == 0 {
		return exitError{exitInterrupted, errors.New("interrupted before anything was recorded")}
	}
	if err := o.end(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return exitError{exitInterrupted, fmt.Errorf("interrupted: %d of %d runs made; what was recorded is in %s", len(o.runs), o.total(), o.plan.flags.out)}
	}
	return nil
}

// done takes a run that has ended.
func (o *output) done(u unit, r *reports.Run) {
	o.runs = append(o.runs, r)
	word, ok := string(r.Status), true
	if o.assert != nil {
		if ok, word = o.assert(u.scenario, r); !ok {
			o.failed = append(o.failed, failure{r, word})
		}
	}
	o.cases = append(o.cases, caseOf(r, o.assert != nil, ok, word))
	switch {
	case o.err != nil:
	case o.plan.flags.json:
		o.err = reports.JSON(o.stdout, r)
	case o.total() > 1:
		measured := ""
		if len(r.Figures) > 0 {
			measured = "; " + reports.Figures(r.Figures)
		}
		_, o.err = fmt.Fprintf(o.stdout, "%*d/%d  %s: %s (%s) %s%s\n",
			len(fmt.Sprint(o.total())), len(o.runs), o.total(), title(r), word, r.Outline(), r.Duration.Round(time.Millisecond), measured)
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
		if err := reports.FigureTable(o.stdout, o.runs, o.reportOptions()); err != nil {
			return err
		}
		fmt.Fprintln(o.stdout)
	}
	// One run is told in full: the only one, or the first that needs a look.
	show := o.runs[0]
	if len(o.failed) > 0 {
		show = o.failed[0].Run
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

// summary counts the runs that showed what was asserted, and names the others.
func (o *output) summary() string {
	word := "reproduced"
	if o.plan.verb == "verify" {
		word = "as expected"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d %s", len(o.runs)-len(o.failed), len(o.runs), word)
	const most = 20
	for i, f := range o.failed {
		if i == most {
			fmt.Fprintf(&b, "\n  and %d more", len(o.failed)-most)
			break
		}
		fmt.Fprintf(&b, "\n  %s: %s; see %s", title(f.Run), f.word, f.Dir)
	}
	return b.String()
}

// title names what a run ran.
func title(r *reports.Run) string {
	return fmt.Sprintf("%s on %s, %s", r.Scenario, r.Backend, r.Resource)
}

// assertion returns the exit status: that of the gravest run which did not show
// what was asserted.
func (o *output) assertion(status func(*reports.Run) int) int {
	worst := exitOK
	for _, f := range o.failed {
		if s := status(f.Run); rank(s) > rank(worst) {
			worst = s
		}
	}
	return worst
}

func (a *app) reportOptions() reports.Options {
	return reports.Options{Width: a.width(), Color: a.color()}
}
