package reports

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// TAP writes cases in the Test Anything Protocol, version 14: the report of a
// case that did not pass is in comments behind it.
func TAP(w io.Writer, cases []Case) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "TAP version 14\n1..%d\n", len(cases))
	for i, c := range cases {
		result, directive := "ok", ""
		switch c.Outcome {
		case Failed, Errored:
			result = "not ok"
		case Skipped:
			directive = " # SKIP " + oneLine(c.Message)
		}
		fmt.Fprintf(out, "%s %d - %s%s\n", result, i+1, tapEscape(c.title()), directive)
		if result == "ok" {
			continue
		}
		fmt.Fprintf(out, "  ---\n  outcome: %s\n  message: %q\n", c.Outcome, c.Message)
		if c.Run.Dir != "" {
			fmt.Fprintf(out, "  folder: %q\n", c.Run.Dir)
		}
		if c.Run.Replay != "" {
			fmt.Fprintf(out, "  again: %q\n", c.Run.Replay)
		}
		fmt.Fprintln(out, "  ...")
		for line := range strings.Lines(c.Text) {
			fmt.Fprintln(out, strings.TrimRight("# "+line, " \n"))
		}
	}
	return out.Flush()
}

// tapEscape escapes what begins a directive.
func tapEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "#", `\#`, "\n", " ").Replace(s)
}
