package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// documented returns the commands that users see, the root first.
func documented(c *cobra.Command) []*cobra.Command {
	c.InheritedFlags() // has cobra know of them, wherever this command comes from
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, documented(sub)...)
		}
	}
	return all
}

// about is what a command says of itself at length.
func about(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

// commands is the page of all commands with their flags.
func commands(root *cobra.Command) []byte {
	d := newDocument("Commands", about(root),
		"`lockcheck COMMAND --help` prints the same. [Exit statuses](../exit-status.md) are the same for all commands.")
	all := documented(root)[1:]
	var rows [][]string
	for _, c := range all {
		rows = append(rows, []string{fmt.Sprintf("[%s](#%s)", c.CommandPath(), anchor(c.CommandPath())), c.Short})
	}
	d.table([]string{"command", "what it does"}, rows)
	for _, c := range all {
		d.heading(2, c.CommandPath())
		d.paragraph(prose(about(c)))
		d.code(c.UseLine())
		if c.HasExample() {
			d.paragraph("Examples:")
			d.code(c.Example)
		}
		if c.HasAvailableLocalFlags() {
			d.paragraph("Flags:")
			d.code(c.LocalFlags().FlagUsagesWrapped(110))
		}
	}
	d.heading(2, "Flags of all commands")
	d.code(root.PersistentFlags().FlagUsagesWrapped(110))
	return d.Bytes()
}

// prose sets lines that are indented, which are examples, as code.
func prose(text string) string {
	var b strings.Builder
	fence := func() { b.WriteString("```\n") }
	inside := false
	for _, l := range strings.Split(text, "\n") {
		if indented := strings.HasPrefix(l, "  ") || strings.HasPrefix(l, "\t"); indented != inside {
			inside = indented
			fence()
		}
		b.WriteString(l + "\n")
	}
	if inside {
		fence()
	}
	return b.String()
}

// anchor is the link to a heading, as GitHub makes it.
func anchor(heading string) string {
	return strings.ReplaceAll(strings.ToLower(heading), " ", "-")
}
