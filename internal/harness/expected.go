package harness

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// SubjectOf is what the expectations of a scenario are about, of a run of it.
func SubjectOf(r *reports.Run) scenarios.Subject {
	of := scenarios.Subject{Backend: r.Backend, Resource: r.Resource, Versions: r.Versions}
	for name := range r.Versions {
		if lock, ok := strings.CutPrefix(name, clientVersion); ok {
			of.Locks = append(of.Locks, lock)
		}
	}
	return of
}

// Unexpected compares a run with what its scenario expects, and returns what
// differs, sorted; nothing if all is as expected.
func Unexpected(sc *scenarios.Scenario, r *reports.Run) []string {
	of := SubjectOf(r)
	want := sc.ExpectedStatus(of)
	if got := string(r.Status); got != want && (want != "" || r.Status == reports.Error || r.Status == reports.Inconclusive) {
		reasons := r.Reasons
		if len(reasons) == 0 {
			reasons = []string{r.Outline()}
		}
		return []string{got + ": " + strings.Join(reasons, "; ")}
	}
	var wrong []string
	for name, want := range sc.Expected(of) {
		if got := string(r.Verdict(name)); got != want {
			wrong = append(wrong, fmt.Sprintf("%s is %s, expected %s", name, got, want))
		}
	}
	for name, want := range sc.ExpectedFigures(of) {
		f := r.Figure(name)
		switch {
		case f.Missing != "":
			wrong = append(wrong, fmt.Sprintf("%s was not measured: %s", name, f.Missing))
		case !want.Contains(f.Value, r.TTL):
			wrong = append(wrong, fmt.Sprintf("%s, expected %s", f, want))
		}
	}
	for code, want := range sc.ExpectedFindings(of) {
		found := slices.ContainsFunc(r.Findings, func(f checker.Finding) bool { return f.Code == code })
		if found != (want == scenarios.Found) {
			wrong = append(wrong, fmt.Sprintf("finding %q: expected %s", code, want))
		}
	}
	slices.Sort(wrong)
	return wrong
}
