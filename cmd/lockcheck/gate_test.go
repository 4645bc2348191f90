package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
)

// ran is a run of a scenario on memory, with the properties that it violates.
func ran(scenario string, status reports.Status, violated ...string) *reports.Run {
	r := &reports.Run{Scenario: scenario, Backend: "memory", Resource: "fenced", Status: status, Properties: map[string]*checker.Property{}}
	for _, name := range []string{checker.Mutex, checker.Lease} {
		p := &checker.Property{Name: name, Verdict: checker.Held}
		if slices.Contains(violated, name) {
			p.Verdict = checker.Violated
		}
		r.Properties[name] = p
	}
	return r
}

func pass(scenario string) *reports.Run         { return ran(scenario, reports.Pass) }
func inconclusive(scenario string) *reports.Run { return ran(scenario, reports.Inconclusive) }
func failed(scenario string) *reports.Run       { return ran(scenario, reports.Error) }
func violation(scenario string) *reports.Run {
	return ran(scenario, reports.Violation, checker.Mutex)
}

func TestTheGravestRunDecides(t *testing.T) {
	for _, c := range []struct {
		what           string
		runs           []*reports.Run
		strict, allows int // exit status without and with --allow-inconclusive
	}{
		{"all pass", []*reports.Run{pass("a"), pass("b")}, exitOK, exitOK},
		{"a violation outranks an inconclusive run", []*reports.Run{inconclusive("a"), violation("a"), pass("a")}, exitViolation, exitViolation},
		{"and a failed one", []*reports.Run{failed("a"), violation("b"), inconclusive("c")}, exitViolation, exitViolation},
		{"a failed one outranks an inconclusive run", []*reports.Run{failed("a"), inconclusive("a"), pass("a")}, exitEnvironment, exitEnvironment},
		{"one of several proved nothing", []*reports.Run{pass("a"), inconclusive("a")}, exitInconclusive, exitOK},
		{"none of a kind proved anything", []*reports.Run{pass("a"), inconclusive("b"), inconclusive("b")}, exitInconclusive, exitInconclusive},
		{"one run, and it proved nothing", []*reports.Run{inconclusive("a")}, exitInconclusive, exitInconclusive},
	} {
		if got := (&gate{}).status(c.runs); got != c.strict {
			t.Errorf("%s: exit status %d, want %d", c.what, got, c.strict)
		}
		lax := &gate{gateFlags: gateFlags{allowInconclusive: true}}
		if got := lax.status(c.runs); got != c.allows {
			t.Errorf("%s, with --allow-inconclusive: exit status %d, want %d", c.what, got, c.allows)
		}
	}
}

// What could not be done is told, and does not hide what the runs came to.
func TestAViolationOutranksWhatCouldNotBeDone(t *testing.T) {
	interrupted := exitError{exitInterrupted, errors.New("interrupted")}
	broken := environment(errors.New("the disk is full"))
	for _, c := range []struct {
		status int
		err    error
		want   int
	}{
		{exitViolation, nil, exitViolation},
		{exitViolation, interrupted, exitViolation},
		{exitViolation, broken, exitViolation},
		{exitInconclusive, interrupted, exitInterrupted},
		{exitEnvironment, interrupted, exitInterrupted},
		{exitInconclusive, broken, exitEnvironment},
		{exitOK, interrupted, exitInterrupted},
		{exitOK, nil, exitOK},
	} {
		err := finally(c.status, c.err)
		if got := exitStatus(err); got != c.want {
			t.Errorf("runs that came to %d, and %v: exit status %d, want %d", c.status, c.err, got, c.want)
		}
		if c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("runs that came to %d, and %v: the error is not told", c.status, c.err)
		}
	}
}

func TestTheRateIsOfRunsThatWereDecided(t *testing.T) {
	some := func(n int, one func(string) *reports.Run) (runs []*reports.Run) {
		for range n {
			r := one("a")
			r.Faults, r.GrantsUnderFault = 2, 3
			runs = append(runs, r)
		}
		return runs
	}
	known := pass("a")
	known.Known = []string{checker.Mutex}
	for _, c := range []struct {
		runs []*reports.Run
		want string
	}{
		{some(1, pass), "no violation in 1 run, 2 faults, 3 grants under fault: at 95 % the rate is below 95 %"},
		{slices.Concat(some(59, pass), some(9, inconclusive), some(2, failed)), "no violation in 59 runs, 118 faults, 177 grants under fault: at 95 % the rate is below 5.0 %"},
		{slices.Concat(some(9, pass), some(1, violation)), "1 violation in 10 runs, 20 faults, 30 grants under fault: at 95 % the rate is below 40 %"},
		{some(2, violation), "2 violations in 2 runs, 4 faults, 6 grants under fault"},
		{some(3, inconclusive), "none of 3 runs proved anything"},
		{[]*reports.Run{known}, "no new violation in 1 run, no fault, no grant under fault: at 95 % the rate is below 95 %"},
	} {
		if got := rateOf(c.runs); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func knows(property string) *baseline {
	return &baseline{Schema: baselineSchema, Violations: []knownViolation{{
		Scenario: "a", Backend: "memory", Resource: "fenced", Property: property, Note: "we live with it",
	}}}
}

func TestABaselineTellsWhatBecameOfWhatIsKnown(t *testing.T) {
	k := knows(checker.Mutex)
	for _, c := range []struct {
		what  string
		runs  []*reports.Run
		lines string
		after int // violations in the new baseline
	}{
		{"it came again", []*reports.Run{pass("a"), ran("a", reports.Pass, checker.Mutex)}, "1 known violation came again", 1},
		{"it did not", []*reports.Run{pass("a"), pass("a")}, "vanished: a on memory, fenced: mutex is known to be violated, and held in 2 runs: take it from the baseline", 0},
		{"it was not decided", []*reports.Run{inconclusive("a")}, "not decided: a on memory, fenced: mutex is known to be violated, and no run says whether it still is", 1},
		{"it was not run", []*reports.Run{pass("b")}, "", 1},
		{"another came", []*reports.Run{ran("a", reports.Violation, checker.Mutex, checker.Lease), violation("b")}, "1 known violation came again", 3},
	} {
		if got := strings.Join(k.compare(c.runs), "\n"); got != c.lines {
			t.Errorf("%s: told as %q, want %q", c.what, got, c.lines)
		}
		next := k.after(c.runs, nil)
		if len(next.Violations) != c.after {
			t.Errorf("%s: %d violations are known then, want %d: %v", c.what, len(next.Violations), c.after, next.Violations)
		}
		if c.after > 0 && next.Violations[len(next.Violations)-1].Scenario == "a" && next.Violations[len(next.Violations)-1].Note == "" && len(next.Violations) == 1 {
			t.Errorf("%s: the note is lost", c.what)
		}
	}
	if got := k.after([]*reports.Run{violation("b")}, []string{checker.Lease}); len(got.Violations) != 1 {
		t.Errorf("what is not gated becomes known: %v", got.Violations)
	}
	excused := violation("b")
	excused.Excused = []string{checker.Mutex}
	if got := (*baseline)(nil).after([]*reports.Run{excused}, nil); len(got.Violations) != 0 {
		t.Errorf("what is excused becomes known: %v", got.Violations)
	}
}

func TestABaselineIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known.json")
	if err := knows(checker.Mutex).write(path); err != nil {
		t.Fatal(err)
	}
	got, err := readBaseline(path)
	if err != nil || !slices.Equal(got.Violations, knows(checker.Mutex).Violations) {
		t.Errorf("read %v, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAFileThatIsNoBaselineIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     "EOF",
		`{}`:                                   `the schema is ""`,
		`[]`:                                   "cannot unmarshal array",
		`{"schema":"lockcheck-baseline/v2"}`:   `the schema is "lockcheck-baseline/v2": this version reads "lockcheck-baseline/v1"`,
		`{"schema":"lockcheck-baseline/v1"}{}`: "something behind the object",
		`{"schema":"lockcheck-baseline/v1","known":[]}`:                                                                                  `unknown field "known"`,
		`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","property":"mutex"}]}`:                            "violation 1: scenario, backend and resource",
		`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","resource":"c","property":"luck"}]}`:              `violation 1: unknown property "luck": there are mutex`,
		`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","resource":"c","property":"mutex","extra":"x"}]}`: `unknown field "extra"`,
	} {
		path := filepath.Join(t.TempDir(), "known.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readBaseline(path)
		if err == nil || !strings.Contains(err.Error(), want) || exitStatus(err) != exitUsage {
			t.Errorf("%s\ngot  %v (status %d)\nwant %s (status %d)", text, err, exitStatus(err), want, exitUsage)
		}
	}
}

// FuzzBaseline: whatever is in the file, it is read or refused.
func FuzzBaseline(f *testing.F) {
	f.Add(`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","resource":"c","property":"mutex"}]}`)
	f.Add(`{"schema":"lockcheck-baseline/v1","violations":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "known.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := readBaseline(path)
		if err == nil {
			k.compare([]*reports.Run{violation("a")})
		} else if exitStatus(err) != exitUsage {
			t.Errorf("status %d: %v", exitStatus(err), err)
		}
	})
}
