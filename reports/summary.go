package reports

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
)

// Headline is what came of the run in one sentence, without the word for its
// status.
func (r *Run) Headline() string {
	switch r.Status {
	case Pass:
		return fmt.Sprintf("%s in %s and %s.",
			r.passes(), plural(r.Operations, "operation"), plural(r.Grants, "grant"))
	case Violation:
		if p := r.Primary(); p != nil {
			return p.Name + " is violated: " + p.Why
		}
		return "no property is said to be violated."
	}
	if len(r.Reasons) > 0 {
		return r.Reasons[0]
	}
	return "no reason was given."
}

// passes says why nothing is wrong: what is violated all the same must not be hidden.
func (r *Run) passes() string {
	var violated, unknown []string
	for _, p := range r.Ordered() {
		if p.Verdict == checker.Violated {
			violated = append(violated, p.Name)
			if !slices.Contains(r.Known, p.Name) {
				unknown = append(unknown, p.Name)
			}
		}
	}
	switch {
	case len(violated) == 0:
		return "no property is violated"
	case len(unknown) == 0:
		return fmt.Sprintf("no property is violated, but for what is known to be (%s),", strings.Join(violated, ", "))
	}
	return fmt.Sprintf("no property that counts is violated (violated, and not counted: %s)", strings.Join(violated, ", "))
}

// Primary is the violated property that is told first: the one that the
// scenario is about, or else the first. It is nil if none is violated.
func (r *Run) Primary() *checker.Property {
	var first *checker.Property
	for _, p := range r.Ordered() {
		if p.Verdict != checker.Violated {
			continue
		}
		if p.Name == r.Violates {
			return p
		}
		if first == nil {
			first = p
		}
	}
	return first
}

// Ordered returns the run's properties in the checker's order.
func (r *Run) Ordered() []*checker.Property { return r.properties() }

// Report is what the checker found, as it was given to SetReport.
func (r *Run) Report() *checker.Report {
	rep := &checker.Report{Findings: r.Findings, Assumptions: r.Assumptions, Operations: r.Operations, Grants: r.Grants}
	for _, p := range r.properties() {
		rep.Properties = append(rep.Properties, *p)
	}
	return rep
}
