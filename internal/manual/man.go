package manual

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Man returns the man pages, in section 1: lockcheck.1, lockcheck-run.1 and so on.
func Man(root *cobra.Command, statuses []Status) []Page {
	root.InitDefaultCompletionCmd()
	var pages []Page
	for _, c := range documented(root) {
		name := dashed(c)
		pages = append(pages, Page{name + ".1", manPage(name, c, statuses)})
	}
	return pages
}

func dashed(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func manPage(name string, c *cobra.Command, statuses []Status) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" lockcheck\n", roff(strings.ToUpper(name)))
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	as := func(text string) { fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(strings.TrimRight(text, "\n "))) }
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(name), roff(c.Short))
	section("SYNOPSIS")
	as(c.UseLine())
	section("DESCRIPTION")
	as(about(c))
	if c.HasAvailableLocalFlags() {
		section("OPTIONS")
		as(c.LocalFlags().FlagUsagesWrapped(78))
	}
	if c.HasExample() {
		section("EXAMPLES")
		as(c.Example)
	}
	section("EXIT STATUS")
	for _, s := range statuses {
		fmt.Fprintf(&b, ".TP\n%d\n%s\n", s.Code, roff(s.Meaning))
	}
	section("SEE ALSO")
	var others []string
	for _, o := range documented(c.Root()) {
		if o != c {
			others = append(others, roff(dashed(o))+"(1)")
		}
	}
	fmt.Fprintln(&b, strings.Join(others, ", "))
	return b.Bytes()
}

// roff escapes text, so that a dash can be copied into a shell and no line is
// taken for a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
