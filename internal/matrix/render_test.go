package matrix_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/internal/matrix"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

var update = flag.Bool("update", false, "rewrite golden files")

// told is a table with a row of each kind of answer.
func told(t *testing.T) *matrix.Table {
	t.Helper()
	all, err := scenarios.LoadAll(matrix.Scenarios()...)
	if err != nil {
		t.Fatal(err)
	}
	table := &matrix.Table{
		Made: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), Mode: matrix.Quick, Repeat: 2, Seed: 7, Runtime: "local",
	}
	for _, s := range []matrix.Subject{
		{Name: "redis", Backend: "redis", Resource: "fenced"},
		{Name: "etcd", Backend: "etcd", Resource: "fenced"},
		{Name: "unique-constraint", Backend: "unique-constraint", Resource: "postgres"},
		{Name: "./my|lock on redis", Backend: "redis", Resource: "fenced"},
	} {
		table.Rows = append(table.Rows, matrix.NewRow(s, all, table.Mode))
	}
	versions := map[string]string{"redis": "7.0.15", "etcd": "3.4.23", "unique-constraint": "15.18"}
	for i, r := range table.Rows {
		software := r.Backend
		if software == "unique-constraint" {
			software = "postgres"
		}
		r.Versions = map[string]string{software: versions[r.Backend], "image redis": "sha256:1"}
		for _, unit := range r.Units() {
			for n := range table.Repeat {
				one := matrix.Run{
					Dir: "run 1/" + unit[0].Scenario, Seed: int64(7 + n), Status: reports.Pass, Stale: matrix.Rejected,
					Properties: map[string]checker.Verdict{checker.Mutex: checker.Held, checker.Fence: checker.Held},
					Values:     map[string]float64{"freed-after": 3 + 500*float64(n), "regranted-after": 12_345, "grants-per-second": 1234.5},
					Series:     []float64{1, 5, 3},
					Replay:     "lockcheck run " + unit[0].Scenario + " --backend " + unit[0].Backend,
				}
				switch {
				case i == 3: // nothing came of it
					one = matrix.Run{Dir: one.Dir, Status: reports.Inconclusive, Replay: one.Replay}
				case r.Backend == "redis" && unit[0].Scenario != "no-fault" && unit[0].Scenario != "uncontended":
					one.Status, one.Stale = reports.Violation, matrix.Accepted
					one.Properties = map[string]checker.Verdict{checker.Mutex: checker.Violated, checker.Lease: checker.Violated, checker.Fence: checker.Violated}
				case r.Backend == "etcd":
					one.Properties[checker.Token] = checker.Held
				case unit[0].Scenario == "a3-kill":
					one.Values = nil
				}
				for _, trial := range unit {
					trial.Runs = append(trial.Runs, one)
				}
			}
		}
	}
	table.Judge()
	return table
}

func TestTheTableInAllForms(t *testing.T) {
	for file, write := range map[string]func(*matrix.Table, io.Writer) error{
		"table.txt": (*matrix.Table).Text, "table.md": (*matrix.Table).Markdown, "table.html": (*matrix.Table).HTML,
	} {
		t.Run(file, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(told(t), &b); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", file)
			if *update {
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (run with -update to make it)", err)
			}
			if !bytes.Equal(b.Bytes(), want) {
				t.Errorf("%s differs (run with -update and look at the difference)\n%s", path, b.Bytes())
			}
		})
	}
}

func TestATableIsReadAsItWasWritten(t *testing.T) {
	table := told(t)
	path := filepath.Join(t.TempDir(), "matrix.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.JSON(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	again, err := matrix.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var before, after bytes.Buffer
	if err := table.Text(&before); err != nil {
		t.Fatal(err)
	}
	if err := again.Text(&after); err != nil {
		t.Fatal(err)
	}
	if before.String() != after.String() {
		t.Errorf("read again it says\n%s\nwant\n%s", after.String(), before.String())
	}
	if all := matrix.Compare(table, again); len(all) > 0 {
		t.Errorf("it differs from itself: %v", all)
	}
}

func TestWhatIsNoTableIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "not a table of lockcheck matrix",
		"[]":                        "not a table of lockcheck matrix",
		`{"schema":"lockcheck/v1"}`: `the schema is "lockcheck/v1": this version reads "lockcheck-matrix/v1"`,
	} {
		path := filepath.Join(t.TempDir(), "t.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := matrix.Read(path); err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// The manual has the table that is beside it, in words of this version and judged by
// its rule.
func TestTheManualHasItsTable(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	table, err := matrix.Read(filepath.Join(docs, "matrix.json"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "matrix.md"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := table.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(page, b.Bytes()) {
		t.Error("docs/matrix.md does not end with the table of docs/matrix.json: run make matrix, or put the end of it as `lockcheck matrix --from docs/matrix.json --format markdown` says")
	}
	if open := table.Undecided(); len(open) > 0 {
		t.Errorf("not shown in docs/matrix.json: %v", open)
	}
}
