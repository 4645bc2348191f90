package locktest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
)

// reportWidth is that of a report, which go test indents by eight columns.
const reportWidth = 92

// tell returns the report of a run that failed.
func tell(r *reports.Run, gate []string, kept bool) (string, error) {
	t, err := harness.Tell(r.Dir, harness.CheckOptions{Gate: gate})
	if err != nil {
		return "", err
	}
	dir := t.Run.Dir
	if !kept {
		t.Run.Dir = "" // nobody can look there
	}
	if t.Run.Operations == 0 {
		t.Run.Properties, t.Events = nil, nil // there is nothing to be said of them
	}
	var excused []string
	t.Run.Violates = ""
	for _, p := range t.Run.Ordered() {
		switch {
		case p.Verdict != checker.Violated:
		case len(gate) > 0 && !slices.Contains(gate, p.Name) || slices.Contains(t.Run.Excused, p.Name):
			excused = append(excused, p.Name)
		case t.Run.Violates == "":
			t.Run.Violates = p.Name // what fails the test is told first
		}
	}
	var b bytes.Buffer
	if err := reports.Text(&b, t.Run, t.Run.Report(), t.Events, reports.Options{Width: reportWidth}); err != nil {
		return "", err
	}
	if len(excused) > 0 {
		why := "a correct lock may break that here"
		if len(gate) > 0 {
			why = "not in Config.Gate"
		}
		fmt.Fprintf(&b, "%-10s%s: %s\n", "Excused", strings.Join(excused, ", "), why)
	}
	if !kept {
		fmt.Fprintf(&b, "%-10s%s\n", "Files", "are removed: go test -artifacts keeps them, or LOCKCHECK_OUT=DIR")
	}
	if r.Status != reports.Violation {
		if err := said(&b, dir); err != nil {
			return "", err
		}
	}
	return strings.TrimRight(b.String(), "\n"), nil
}

// logLines is how much of a client's log is shown.
const logLines = 12

// said adds what clients wrote to their logs.
func said(b *bytes.Buffer, dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "client-*.log"))
	if err != nil {
		return err
	}
	slices.Sort(logs)
	for _, l := range logs {
		text, err := os.ReadFile(l)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if lines[0] == "" {
			continue
		}
		// A panic says what it is before it says where.
		if at := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "panic: ") }); at >= 0 {
			lines = lines[at:]
		}
		client := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(l), "client-"), ".log")
		fmt.Fprintf(b, "\nClient %s wrote:\n", client)
		for i, line := range lines {
			if i == logLines {
				fmt.Fprintf(b, "  and %d lines more\n", len(lines)-logLines)
				break
			}
			fmt.Fprintf(b, "  %s\n", strings.ToValidUTF8(line, "?"))
		}
	}
	return nil
}

// artifacts reports whether go test was asked to keep the tests' files.
func artifacts() bool {
	f := flag.Lookup("test.artifacts")
	return f != nil && f.Value.String() == "true"
}

// again is the command that runs a subtest again with the seed.
func again(test string, seed int64) string {
	args := []string{fmt.Sprintf("LOCKCHECK_SEED=%d", seed), "go", "test", "-count=1"}
	pkg := "."
	if b, ok := debug.ReadBuildInfo(); ok {
		if b.Path != "" {
			pkg = strings.TrimSuffix(b.Path, ".test")
		}
		for _, s := range b.Settings {
			switch {
			case s.Key == "-race" && s.Value == "true":
				args = append(args, "-race")
			case s.Key == "-tags" && s.Value != "":
				args = append(args, "-tags", s.Value)
			}
		}
	}
	return strings.Join(append(args, "-run", "'"+strings.ReplaceAll(only(test), "'", `'\''`)+"'", pkg), " ")
}
