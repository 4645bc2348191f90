package matrix_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/internal/matrix"
	"github.com/lockcheck/lockcheck/reports"
)

// What runs can come to.
var (
	clean        = run(reports.Pass, matrix.NotSent)
	accepted     = run(reports.Violation, matrix.Accepted, "mutex", "fence")
	rejected     = run(reports.Violation, matrix.Rejected, "mutex")
	byToken      = tokens(run(reports.Violation, matrix.Rejected, "mutex"), checker.Held)
	rising       = tokens(run(reports.Pass, matrix.NotSent), checker.Held)
	falling      = tokens(run(reports.Violation, matrix.Rejected, "token"), checker.Violated)
	nobodyElse   = run(reports.Pass, matrix.NoneOther)
	inconclusive = matrix.Run{Status: reports.Inconclusive, Reasons: []string{"A was not granted the lock"}}
	outlived     = leased(run(reports.Violation, matrix.NotSent, "mutex", "fence"))
	failed       = matrix.Run{Status: reports.Error, Reasons: []string{"redis did not start"}}
)

func run(status reports.Status, stale matrix.Stale, violated ...string) matrix.Run {
	r := matrix.Run{Status: status, Stale: stale, Properties: map[string]checker.Verdict{"fence": checker.Held}}
	for _, p := range violated {
		r.Properties[p] = checker.Violated
	}
	return r
}

func tokens(r matrix.Run, v checker.Verdict) matrix.Run {
	r.Properties[checker.Token] = v
	return r
}

func leased(r matrix.Run) matrix.Run {
	r.Properties[checker.Lease] = checker.Held
	return r
}

// row is a row in which each column that is named has one trial, of these runs.
func row(resource string, columns map[string][]matrix.Run) *matrix.Row {
	r := &matrix.Row{Name: "lock", Backend: "lock", Resource: resource}
	for _, c := range matrix.Columns() {
		cell := matrix.Cell{Column: c.Name}
		if runs, ok := columns[c.Name]; ok {
			cell.Trials = []*matrix.Trial{{
				Scenario: c.Name + "-scenario", Backend: "lock", Resource: resource, Runs: runs,
				Asks: []matrix.Question{matrix.LateWrite, matrix.Tokens},
			}}
		}
		r.Cells = append(r.Cells, cell)
	}
	return r
}

func TestTheVerdictFollowsFromTheCells(t *testing.T) {
	type cells map[string][]matrix.Run
	of := func(one ...matrix.Run) []matrix.Run { return one }
	safe := func(with matrix.Run) cells {
		return cells{"control": of(clean), "fencing": of(with, with), "partition": of(with), "failover": of(with)}
	}
	but := func(c cells, column string, runs ...matrix.Run) cells {
		c[column] = runs
		return c
	}
	without := func(c cells, column string) cells {
		delete(c, column)
		return c
	}
	for _, c := range []struct {
		name     string
		resource string
		cells    cells
		want     matrix.Verdict
		because  string // what one of the reasons says
	}{
		{"late writes are rejected by tokens", "fenced", safe(byToken), matrix.Fenced, "fencing-scenario: late write rejected 2 of 2"},
		{"late writes end with their transaction", "postgres", safe(rejected), matrix.SameDatabase, "failover-scenario: late write rejected 1 of 1"},
		{"a claim is granted once", "postgres", safe(nobodyElse), matrix.SameDatabase, "nobody else was granted it"},
		{"a late write is accepted", "fenced", safe(accepted), matrix.Efficiency, "fencing-scenario: late write accepted 2 of 2"},
		{"one of many late writes is accepted", "fenced", but(safe(byToken), "fencing", byToken, byToken, accepted), matrix.Efficiency, "late write accepted 1 of 3"},
		{"a late write is accepted after a partition alone", "postgres", but(safe(rejected), "partition", accepted), matrix.Efficiency, "partition-scenario"},
		{"a late write is accepted after a failover alone", "postgres", but(safe(rejected), "failover", accepted), matrix.Efficiency, "failover-scenario"},
		{"a late write is accepted after a clock jump alone", "fenced", but(safe(byToken), "timing", accepted), matrix.Efficiency, "timing-scenario"},
		{"tokens fall after a failover", "fenced", but(safe(byToken), "failover", falling), matrix.Efficiency, "tokens repeat or fall 1 of 1"},
		{"a violation outranks runs that proved nothing", "fenced", but(safe(inconclusive), "fencing", inconclusive, accepted), matrix.Efficiency, "late write accepted 1 of 1"},

		{"two clients believe, and the data is protected", "fenced", but(safe(byToken), "timing", byToken), matrix.Fenced, ""},
		{"a dead holder's lock decides nothing", "fenced", but(safe(byToken), "crash", inconclusive), matrix.Fenced, ""},
		{"what is not needed proves nothing", "fenced", but(safe(byToken), "timing", inconclusive), matrix.Fenced, ""},
		{"leader changes send no late write", "fenced", but(safe(byToken), "failover", rising), matrix.Fenced, "failover-scenario: tokens rise"},

		{"it breaks without a fault", "fenced", but(safe(byToken), "control", run(reports.Violation, "", "mutex")), matrix.NotFit, "control-scenario: violated (mutex) 1 of 1"},
		{"it breaks without a fault, once", "fenced", but(safe(accepted), "control", clean, run(reports.Violation, "", "release"), clean), matrix.NotFit, "violated (release) 1 of 3"},
		{"a slow machine is no flaw", "fenced", but(safe(byToken), "control", clean, outlived), matrix.Fenced, ""},
		{"a slow machine proves nothing", "fenced", but(safe(byToken), "control", outlived), matrix.NotShown, "no run without a fault held everything"},
		{"but a lease that is granted twice is a flaw", "fenced", but(safe(byToken), "control", outlived, run(reports.Violation, "", "mutex", "lease")), matrix.NotFit, "violated (mutex, lease) 1 of 2"},
		{"it breaks when nobody contends", "fenced", but(safe(byToken), "throughput", run(reports.Violation, "", "fence")), matrix.NotFit, "throughput-scenario"},

		{"no run", "fenced", cells{}, matrix.NotShown, "no run without a fault held everything"},
		{"the control proved nothing", "fenced", but(safe(accepted), "control", inconclusive, failed), matrix.NotShown, "no run without a fault held everything"},
		{"no run of a partition", "fenced", without(safe(byToken), "partition"), matrix.NotShown, "no conclusive run for partition"},
		{"failovers proved nothing", "postgres", but(safe(rejected), "failover", inconclusive, failed), matrix.NotShown, "no conclusive run for failover"},
		{"no late write was sent", "fenced", safe(rising), matrix.NotShown, "none was sent"},
		{"nothing breaks it, and no token explains it", "fenced", safe(rejected), matrix.NotShown, "no token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := row(c.resource, c.cells)
			(&matrix.Table{Rows: []*matrix.Row{r}}).Judge()
			if r.Verdict != c.want {
				t.Errorf("%s, want %s; because %q", r.Verdict, c.want, r.Because)
			}
			if !slices.ContainsFunc(r.Because, func(why string) bool { return strings.Contains(why, c.because) }) {
				t.Errorf("because %q, want one that says %q", r.Because, c.because)
			}
		})
	}
}

// What was run with another resource than the one that protects best is told, and
// decides nothing.
func TestABareResourceDecidesNothing(t *testing.T) {
	r := row("fenced", map[string][]matrix.Run{
		"control": {clean}, "fencing": {byToken}, "timing": {accepted}, "partition": {byToken}, "failover": {byToken},
	})
	r.Cell("timing").Trials[0].Resource = "unfenced"
	(&matrix.Table{Rows: []*matrix.Row{r}}).Judge()
	if r.Verdict != matrix.Fenced {
		t.Errorf("%s, want %s; because %q", r.Verdict, matrix.Fenced, r.Because)
	}
}

func TestATableOfWhichNothingCouldBeRunHasFailed(t *testing.T) {
	all := map[string][]matrix.Run{"control": {failed}, "fencing": {failed, failed}}
	table := &matrix.Table{Rows: []*matrix.Row{row("fenced", all)}}
	if got := table.Failure(); got != "redis did not start" {
		t.Errorf("failure %q", got)
	}
	table.Rows = append(table.Rows, row("fenced", map[string][]matrix.Run{"control": {failed, clean}}))
	if got := table.Failure(); got != "" {
		t.Errorf("failure %q, although a run could be carried out", got)
	}
}

func TestCompareSaysWhichVerdictsDiffer(t *testing.T) {
	table := func(rows map[string]matrix.Verdict) *matrix.Table {
		var t matrix.Table
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			if v, ok := rows[name]; ok {
				t.Rows = append(t.Rows, &matrix.Row{Name: name, Verdict: v})
			}
		}
		return &t
	}
	old := table(map[string]matrix.Verdict{
		"a": matrix.Fenced, "b": matrix.Fenced, "c": matrix.Efficiency, "d": matrix.SameDatabase, "e": matrix.Efficiency, "f": matrix.Fenced,
	})
	now := table(map[string]matrix.Verdict{
		"a": matrix.Fenced, "b": matrix.Efficiency, "c": matrix.Fenced, "d": matrix.NotShown, "e": matrix.NotFit, "g": matrix.Efficiency,
	})
	for i, want := range []struct {
		text        string
		worse, lost bool
	}{
		{"b: WORSE: is fit for efficiency only, was fit for correctness if the resource is fenced", true, false},
		{"c: is fit for correctness if the resource is fenced, was fit for efficiency only", false, false},
		{"d: is not shown, was fit for correctness when the data lives in the same database", false, true},
		{"e: WORSE: is not fit: it breaks without a fault, was fit for efficiency only", true, false},
		{"g: is fit for efficiency only, was not in the other table", false, false},
		{"f: was fit for correctness if the resource is fenced, is not in this table", false, true},
	} {
		all := matrix.Compare(old, now)
		if i >= len(all) {
			t.Fatalf("%d differences, want more: %v", len(all), all)
		}
		if d := all[i]; d.String() != want.text || d.Worse() != want.worse || d.Lost() != want.lost {
			t.Errorf("%s (worse %v, lost %v), want %s (worse %v, lost %v)", d, d.Worse(), d.Lost(), want.text, want.worse, want.lost)
		}
	}
	if all := matrix.Compare(old, old); len(all) != 0 {
		t.Errorf("a table differs from itself: %v", all)
	}
}
