package matrix

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes the table for a terminal: the verdicts, then what was seen of each lock.
func (t *Table) Text(w io.Writer) error {
	b := new(strings.Builder)
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, r := range t.Rows {
		fmt.Fprintf(tw, "%s\t%s\n", r.Name, r.Words)
	}
	_ = tw.Flush() // a Builder does not fail
	for _, r := range t.Rows {
		fmt.Fprintf(b, "\n%s: %s\n", r.Name, r.Words)
		tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		for _, c := range Columns() {
			title := c.Title
			for _, a := range r.Cell(c.Name).Answers() {
				fmt.Fprintf(tw, "  %s\t%s%s\t%s\n", title, mark(a.Sense), a.Text, a.Scenario)
				title = ""
			}
			if title != "" {
				fmt.Fprintf(tw, "  %s\t  %s\t\n", title, nothing)
			}
		}
		_ = tw.Flush()
		for i, why := range r.Because {
			fmt.Fprintf(b, "  %-9s%s\n", cmp.Or(map[bool]string{i == 0: "because"}[true], ""), why)
		}
	}
	fmt.Fprintf(b, "\n%s\n", t.foot())
	_, err := io.WriteString(w, b.String())
	return err
}

// nothing is told of a cell that no scenario is meant for.
const nothing = "-"

// mark is how a sense is shown where there is no colour.
func mark(s Sense) string {
	switch s {
	case Good:
		return "+ "
	case Bad:
		return "! "
	case Open:
		return "? "
	}
	return "  "
}

// Answers are what all trials of the cell say.
func (c Cell) Answers() []Answer {
	var all []Answer
	for _, t := range c.Trials {
		all = append(all, t.Answers()...)
	}
	return all
}

// runs counts the runs of a table, and those that proved nothing.
func (t *Table) runs() (all, inconclusive int) {
	for _, r := range t.Rows {
		for _, u := range r.Units() {
			all += len(u[0].Runs)
			inconclusive += len(u[0].Runs) - u[0].Conclusive()
		}
	}
	return all, inconclusive
}

// foot says how the table was made.
func (t *Table) foot() string {
	n, open := t.runs()
	s := fmt.Sprintf("%d runs, %d of each trial, %s, servers as %s, seed %d", n, t.Repeat, t.Mode, t.Runtime, t.Seed)
	if open > 0 {
		s += fmt.Sprintf("; %d inconclusive", open)
	}
	return s
}
