package reports

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
)

// Limits of what GitHub shows of one step.
const (
	mostAnnotations = 10      // of a kind, in one step
	mostSummary     = 900_000 // bytes; it refuses summaries of more than a MiB
)

// GitHubAnnotations writes workflow commands that GitHub Actions shows beside the
// workflow: an error for each case that failed, a notice for each that was left
// out. See "Workflow commands for GitHub Actions" in GitHub's documentation, also
// for the escapes.
func GitHubAnnotations(w io.Writer, cases []Case) error {
	out := bufio.NewWriter(w)
	for _, kind := range []struct {
		command  string
		outcomes []Outcome
	}{{"error", []Outcome{Failed, Errored}}, {"notice", []Outcome{Skipped}}} {
		var chosen []Case
		for _, o := range kind.outcomes {
			for _, c := range cases {
				if c.Outcome == o {
					chosen = append(chosen, c)
				}
			}
		}
		for i, c := range chosen {
			if left := len(chosen) - i; i == mostAnnotations-1 && left > 1 {
				fmt.Fprintf(out, "::%s title=lockcheck::%s\n", kind.command, escapeData(fmt.Sprintf("and %d more: see the summary", left)))
				break
			}
			message := c.Message
			if c.Run != nil && c.Run.Replay != "" {
				message += "\nAgain: " + c.Run.Replay
			}
			fmt.Fprintf(out, "::%s title=%s::%s\n", kind.command, escapeProperty("lockcheck: "+c.title()), escapeData(message))
		}
	}
	return out.Flush()
}

// escapeData escapes the message of a workflow command.
func escapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

// escapeProperty escapes a property of a workflow command.
func escapeProperty(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C").Replace(s)
}

// GitHubSummary writes the summary of a step in Markdown: a table of the cases,
// and the report with its diagram of each that did not pass, as many as fit.
func GitHubSummary(w io.Writer, name string, cases []Case) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s.\n\n", cell(name), tally(cases))
	b.WriteString("| | scenario | backend | resource |")
	for _, p := range tableProperties {
		fmt.Fprintf(&b, " %s |", p)
	}
	b.WriteString(" ms |\n|---|---|---|---|" + strings.Repeat("---|", len(tableProperties)) + "--:|\n")
	for _, c := range cases {
		if c.Run == nil {
			fmt.Fprintf(&b, "| %s | %s | | |%s |\n", c.Outcome, cell(c.Title+": "+c.Message), strings.Repeat(" |", len(tableProperties)))
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |", outcomeCell(c.Outcome), cell(c.Run.Scenario), cell(c.Run.Backend), cell(c.Run.Resource))
		for _, p := range tableProperties {
			v := verdictCell(c.Run, p)
			if c.Run.Verdict(p) == checker.Violated {
				v = "**" + v + "**"
			}
			fmt.Fprintf(&b, " %s |", v)
		}
		fmt.Fprintf(&b, " %s |\n", milliseconds(int64(c.Run.Duration)))
	}
	left, open := 0, " open"
	for _, c := range cases {
		if c.Outcome != Failed && c.Outcome != Errored {
			continue
		}
		fence := fenceFor(c.Text)
		part := fmt.Sprintf("\n<details%s><summary>%s: %s</summary>\n\n%stext\n%s\n%s\n\n</details>\n",
			open, cell(c.title()), cell(c.Message), fence, strings.TrimRight(cmp.Or(c.Text, c.Message), "\n"), fence)
		if b.Len()+len(part) > mostSummary {
			left++
			continue
		}
		b.WriteString(part)
		open = "" // the others at a click
	}
	if left > 0 {
		fmt.Fprintf(&b, "\nThe reports of %d more are in the folders of their runs.\n", left)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func outcomeCell(o Outcome) string {
	if o == Passed {
		return string(o)
	}
	return "**" + string(o) + "**"
}

// cell is text in a table or heading of Markdown.
func cell(s string) string {
	return strings.NewReplacer("\n", " ", "\r", " ", "|", `\|`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "`", "\\`", "*", `\*`, "_", `\_`).Replace(s)
}

// fenceFor is a fence that does not occur in the text.
func fenceFor(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence
}
