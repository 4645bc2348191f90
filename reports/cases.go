package reports

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/lockcheck/lockcheck/checker"
)

// Outcome is what a run means to whoever asked for it: verify expects some
// violations, run none.
type Outcome string

const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Errored Outcome = "errored" // inconclusive, or the environment failed
	Skipped Outcome = "skipped" // left out, since something is not installed
)

// Case is a run for the reports that are read by continuous integration.
type Case struct {
	Run     *Run    // nil if it was skipped
	Title   string  // of what was skipped; else the run's own is told
	Outcome Outcome //
	Message string  // one line: what is violated, not as expected, or missing
	Text    string  // the report of a run that did not pass, with its diagram
}

// JudgedBy returns the case of a run that is judged by its own status.
func JudgedBy(r *Run) Case {
	c := Case{Run: r, Outcome: Passed, Message: r.Outline()}
	switch r.Status {
	case Violation:
		c.Outcome = Failed
		c.Message = r.Headline()
	case Inconclusive, Error:
		c.Outcome = Errored
		c.Message = string(r.Status)
		if len(r.Reasons) > 0 {
			c.Message += ": " + strings.Join(r.Reasons, "; ")
		}
	}
	c.Message = oneLine(c.Message)
	return c
}

// oneLine makes one line of text that may have several, and may have been
// written by anybody.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.Join(lines, "; "))
}

// name is the case in a list of those of its scenario.
func (c Case) name() string {
	if c.Run == nil {
		return c.Title
	}
	name := c.Run.Backend
	if c.Run.Resource != "" {
		name += ", " + c.Run.Resource
	}
	if c.Run.Repeat > 1 {
		name += fmt.Sprintf(", repeat %d", c.Run.Repeat)
	}
	return name
}

// title is the case by itself.
func (c Case) title() string {
	if c.Run == nil {
		return c.Title
	}
	return c.Run.Scenario + " on " + c.name()
}

func (c Case) duration() time.Duration {
	if c.Run == nil {
		return 0
	}
	return c.Run.Duration
}

// countOf counts the cases of an outcome.
func countOf(cases []Case, o Outcome) int {
	n := 0
	for _, c := range cases {
		if c.Outcome == o {
			n++
		}
	}
	return n
}

// tally says how many cases came out how.
func tally(cases []Case) string {
	parts := []string{plural(len(cases), "run")}
	for _, o := range []Outcome{Passed, Failed, Errored, Skipped} {
		if n := countOf(cases, o); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	return parts[0] + ": " + strings.Join(parts[1:], ", ")
}

// verdictCell is a verdict in a table.
func verdictCell(r *Run, property string) string {
	switch v := r.Verdict(property); v {
	case checker.Violated:
		return "VIOLATED"
	case checker.NotApplicable:
		return "n/a"
	case NotChecked:
		return "-"
	default:
		return string(v)
	}
}
