package matrix

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Markdown writes the table as a table of Markdown, and under it what decides each
// verdict, with a command that makes one of the runs again.
func (t *Table) Markdown(w io.Writer) error {
	b := new(strings.Builder)
	b.WriteString("| |")
	for _, c := range Columns() {
		fmt.Fprintf(b, " %s |", c.Title)
	}
	b.WriteString(" verdict |\n|" + strings.Repeat("---|", len(Columns())+2) + "\n")
	for _, r := range t.Rows {
		fmt.Fprintf(b, "| **%s** |", escape(r.Name))
		for _, c := range Columns() {
			var lines []string
			for _, a := range r.Cell(c.Name).Answers() {
				lines = append(lines, fmt.Sprintf("%s (`%s`)", strong(a), a.Scenario))
			}
			if len(lines) == 0 {
				lines = []string{nothing}
			}
			fmt.Fprintf(b, " %s |", strings.Join(lines, "; "))
		}
		fmt.Fprintf(b, " *%s* |\n", r.Words)
	}
	fmt.Fprintf(b, "\n%s, %s.\n", t.Made.UTC().Format("2 January 2006"), t.foot())
	for _, r := range t.Rows {
		fmt.Fprintf(b, "\n**%s**, %s: *%s*, because\n\n", escape(r.Name), r.software(), r.Words)
		for _, why := range r.Because {
			fmt.Fprintf(b, "- %s\n", escape(why))
		}
		b.WriteString("\n```\n")
		for _, u := range r.Units() {
			if len(u[0].Runs) > 0 {
				fmt.Fprintln(b, u[0].Runs[0].Replay)
			}
		}
		b.WriteString("```\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// software are the servers that the row was measured on.
func (r *Row) software() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		if !strings.Contains(name, " ") { // clients and images
			all = append(all, name+" "+r.Versions[name])
		}
	}
	return strings.Join(all, ", ")
}

func strong(a Answer) string {
	if a.Sense == Bad {
		return "**" + escape(a.Text) + "**"
	}
	return escape(a.Text)
}

// escape keeps text from being taken for Markdown.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;", "\n", " ").Replace(s)
}
