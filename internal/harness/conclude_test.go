package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/reports"
)

// A run whose page cannot be written is judged all the same.
func TestTheVerdictStandsWithoutAPage(t *testing.T) {
	dir := t.TempDir()
	const events = `{"index":0,"time":1,"process":"A","type":"invoke","f":"acquire","key":"k"}
{"index":1,"time":2,"process":"A","type":"ok","f":"acquire","key":"k"}
{"index":2,"time":3,"process":"B","type":"invoke","f":"acquire","key":"k"}
{"index":3,"time":4,"process":"B","type":"ok","f":"acquire","key":"k"}
`
	if err := os.WriteFile(filepath.Join(dir, HistoryFile), []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, PageFile), 0o700); err != nil {
		t.Fatal(err)
	}
	run := &reports.Run{Dir: dir}
	if err := conclude(run, nil); err != nil {
		t.Fatal(err)
	}
	if run.Status != reports.Violation {
		t.Errorf("status is %q, want %q", run.Status, reports.Violation)
	}
	if s := strings.Join(run.Remarks, "\n"); !strings.Contains(s, "a picture is missing: write page") {
		t.Errorf("remarks are %q, want one on the page", s)
	}
	if _, err := os.Stat(filepath.Join(dir, runFile)); err != nil {
		t.Error(err)
	}
}
