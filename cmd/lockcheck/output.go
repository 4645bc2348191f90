package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	gate   *gate     // nil for commands that assert something
	live   *live
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

// total is the number of runs that the plan makes, 0 if that depends on time.
func (o *output) total() int {
	if o.plan.pace.budget > 0 {
		return 0
	}
	return len(o.plan.units) * o.plan.flags.repeat
}

// made counts the runs that were made.
func (o *output) made() string {
	if o.total() == 0 {
		return counted(len(o.runs), "run")
	}
	return fmt.Sprintf("%d of %s", len(o.runs), counted(o.total(), "run"))
}

// many reports whether there may be several runs, each of which is told in a line.
func (o *output) many() bool { return o.total() != 1 }

// make makes the runs of the plan and prints them. The error says what could not be
// done; what the runs that were made came to is the caller's to judge also then.
func (o *output) make(ctx context.Context) error {
	ci, err := o.openCI("lockcheck "+o.plan.verb, o.plan.flags)
	if err != nil {
		return err
	}
	shows := liveOptions{total: o.total(), counts: o.counted(), told: !o.many() || !o.plan.flags.json}
	if o.plan.pace.budget > 0 {
		shows.deadline = time.Now().Add(o.plan.pace.budget)
	}
	o.live = o.app.live(ctx, shows)
	err = o.plan.run(ctx, o.live, o.judge, o.done)
	o.live.close()
	// Also when it was cut short: whoever reads it must see what was made.
	err = errors.Join(err, ci.write(append(o.cases, leftOut(o.plan.missing)...)))
	if len(o.runs) == 0 && err == nil {
		return exitError{exitInterrupted, errors.New("interrupted before anything was recorded")}
	}
	if len(o.runs) > 0 {
		err = errors.Join(err, o.end())
	}
	if err == nil && ctx.Err() != nil {
		err = exitError{exitInterrupted, fmt.Errorf("interrupted: %s made; what was recorded is in %s", o.made(), o.plan.flags.out)}
	}
	if o.gate != nil {
		err = errors.Join(err, o.gate.finish(o.runs, o.plan.flags.gate, err == nil && !o.plan.cut))
	}
	return err
}

// counted is what the command counts while it goes on.
func (o *output) counted() string {
	if o.assert != nil {
		return "failure"
	}
	return "violation"
}

// done takes a run that has ended.
func (o *output) done(u unit, r *reports.Run) {
	o.runs = append(o.runs, r)
	is := o.judge(u, r)
	if !is.ok {
		o.failed = append(o.failed, failure{r, is.word})
	}
	o.cases = append(o.cases, o.caseOf(r, is))
	if o.err != nil {
		return
	}
	o.live.print(func() { o.err = o.tell(r, is.word) })
}

// tell prints a run that has ended.
func (o *output) tell(r *reports.Run, word string) error {
	switch {
	case o.plan.flags.json:
		return reports.JSON(o.stdout, r)
	case !o.many():
		return nil // it is told in full
	}
	place := fmt.Sprint(len(o.runs))
	if n := o.total(); n > 0 {
		place = fmt.Sprintf("%*d/%d", len(fmt.Sprint(n)), len(o.runs), n)
	}
	measured := ""
	if len(r.Figures) > 0 {
		measured = "; " + reports.Figures(r.Figures)
	}
	_, err := fmt.Fprintf(o.stdout, "%s  %s: %s (%s) %s%s\n",
		place, title(r), word, r.Outline(), r.Duration.Round(time.Millisecond), measured)
	return err
}

// end prints what all runs come to together.
func (o *output) end() error {
	if o.err != nil {
		return environment(o.err)
	}
	if o.plan.flags.json {
		o.remarks(o.stderr) // beside the objects
		return nil
	}
	if o.many() {
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
	if !o.many() || o.plan.verb == "reproduce" || o.assert != nil && len(o.failed) > 0 {
		_, err := harness.CheckRun(show.Dir, harness.CheckOptions{
			Gate: o.plan.flags.gate, Text: o.stdout, Report: o.reportOptions(),
		})
		if err != nil {
			return environment(err)
		}
	}
	if o.many() || o.assert != nil && len(o.failed) > 0 {
		fmt.Fprintln(o.stdout, o.summary())
	}
	o.remarks(o.stdout)
	return nil
}

// remarks prints what is to be known beside the runs.
func (o *output) remarks(w io.Writer) {
	if o.gate != nil {
		for _, line := range o.gate.remarks(o.runs) {
			fmt.Fprintln(w, line)
		}
	}
	if o.plan.cut {
		fmt.Fprintf(w, "stopped after a run that failed: %s made\n", o.made())
	}
	for _, m := range o.plan.missing {
		fmt.Fprintf(w, "left out: %s: %v\n", m.what, m.why)
	}
}

// summary counts the runs that showed what was asserted, and names the others.
func (o *output) summary() string {
	word := "reproduced"
	switch o.plan.verb {
	case "verify":
		word = "as expected"
	case "run":
		word = "passed"
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
