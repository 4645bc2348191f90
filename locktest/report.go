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

// said adds what clients wrote to their logs. A panic says what it is before it
// says where.
func said(b *bytes.Buffer, dir string) error {
	logs, err := clientLogs(dir)
	for _, l := range logs {
		if lines := from(l.lines, "panic: "); len(lines) > 0 {
			excerpt(b, l.client, lines, logLines)
		} else if len(l.lines) > 0 {
			excerpt(b, l.client, l.lines, logLines)
		}
	}
	return err
}

// raceLines is how much of a data race is shown.
const raceLines = 40

// races returns what the race detector told in the clients of a run, or "".
func races(dir string) (string, error) {
	var b bytes.Buffer
	logs, err := clientLogs(dir)
	for _, l := range logs {
		if lines := from(l.lines, "WARNING: DATA RACE"); len(lines) > 0 {
			excerpt(&b, l.client, lines, raceLines)
		}
	}
	return b.String(), err
}

// clientLog is what a client wrote to standard error, or output.
type clientLog struct {
	client string
	lines  []string
}

// clientLogs returns the logs in a run's folder, by client.
func clientLogs(dir string) ([]clientLog, error) {
	files, err := filepath.Glob(filepath.Join(dir, "client-*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var all []clientLog
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		l := clientLog{client: strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "client-"), ".log")}
		if s := strings.TrimSpace(strings.ToValidUTF8(string(text), "?")); s != "" {
			l.lines = strings.Split(s, "\n")
		}
		all = append(all, l)
	}
	return all, nil
}

// from returns the lines from the first that begins so on, or none.
func from(lines []string, begin string) []string {
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, begin) })
	if at < 0 {
		return nil
	}
	return lines[at:]
}

// excerpt writes the first lines of a log.
func excerpt(b *bytes.Buffer, client string, lines []string, most int) {
	fmt.Fprintf(b, "\nClient %s wrote:\n", client)
	for _, line := range lines[:min(most, len(lines))] {
		fmt.Fprintf(b, "  %s\n", line)
	}
	if len(lines) > most {
		fmt.Fprintf(b, "  and %d lines more\n", len(lines)-most)
	}
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
