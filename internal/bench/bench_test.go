package bench_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/lockcheck/lockcheck/backends/memory"
	"github.com/lockcheck/lockcheck/internal/bench"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

func TestLocksAreMeasuredAloneAndContended(t *testing.T) {
	subjects := []bench.Subject{{Backend: "memory"}, {Backend: "memory", Resource: "unfenced"}, {Backend: "memory", Resource: "fenced"}}
	all, err := bench.Run(t.Context(), bench.Options{Subjects: subjects, Clients: 3, Rounds: 2, For: 30 * time.Millisecond, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2*len(subjects) {
		t.Fatalf("%d measures of %d subjects: %+v", len(all), len(subjects), all)
	}
	for i, m := range all {
		want, clients := subjects[i%3].String(), 1+2*(i/3)
		if m.Subject != want || m.Clients != clients || m.Sections == 0 || m.PerSecond <= 0 || m.P50 <= 0 || m.P99 < m.P50 {
			t.Errorf("%+v, want sections of %s by %d clients", m, want, clients)
		}
	}
}

// A lock of one key does no more sections than their work allows, however many clients
// there are.
func TestWorkUnderOneLockAddsUp(t *testing.T) {
	const work = 20 * time.Millisecond
	all, err := bench.RunWork(t.Context(), bench.Subject{Backend: "memory"}, []int{1, 4}, work, bench.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		if most := 1 / work.Seconds(); w.PerSecond > most || w.PerSecond <= 0 {
			t.Errorf("%d clients: %.1f sections a second, of work that allows %.0f", w.Clients, w.PerSecond, most)
		}
	}
}

func TestEventsAreRecordedInFull(t *testing.T) {
	r, err := bench.RunRecorder(t.TempDir(), 4, 4000)
	if err != nil || r.Events != 4000 || r.PerSecond <= 0 || r.Bytes < 4000*40 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestWhatHasNoBareLoopIsRefused(t *testing.T) {
	_, err := bench.RunHarness(t.Context(), bench.HarnessOptions{Backends: []string{"memory"}, Clients: []int{1}, Rounds: 1, For: time.Millisecond, Dir: t.TempDir()})
	if err == nil || err.Error() != "memory with 1 clients: there is no bare loop for it" {
		t.Error(err)
	}
}

func TestTheReportInAllForms(t *testing.T) {
	r := &bench.Report{
		Baseline: "redis",
		Locks: []bench.Measure{
			{Subject: "redis", Clients: 1, Sections: 100, PerSecond: 10000, P50: 90, P99: 300},
			{Subject: "redlock", Clients: 1, Sections: 20, PerSecond: 2000, P50: 450, P99: 1500},
			{Subject: "etcd + write fenced", Clients: 1, Sections: 2, PerSecond: 99.94, P50: 10_000, P99: 2e6},
			{Subject: "redis", Clients: 8, Sections: 100, PerSecond: 8000, P50: 180, P99: 20_000},
			{Subject: "redlock", Clients: 8, Sections: 10, PerSecond: 1000, P50: 900, P99: 80_000},
		},
		WorkTime: 200, Work: []bench.Work{{Clients: 1, PerSecond: 4.981}, {Clients: 64, PerSecond: 4.98}},
		Harness: []bench.Overhead{{
			Backend: "redis", Clients: 8, Bare: bench.Measure{PerSecond: 20000}, Through: bench.Measure{PerSecond: 5000}, Ratio: 0.25,
			AddedP50: 23, AddedP99: 1500, Memory: 9_600_000, Start: 76 * time.Millisecond,
		}},
		Pipe:     &bench.Pipe{P50: 6, P99: 17},
		Recorded: []bench.Recorded{{Writers: 8, Events: 1_000_000, PerSecond: 2e6, Bytes: 95_000_000}},
	}
	r.Compare()
	for file, write := range map[string]func(*bench.Report, io.Writer) error{"report.txt": (*bench.Report).Text, "report.md": (*bench.Report).Markdown} {
		var b bytes.Buffer
		if err := write(r, &b); err != nil {
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
	}
}
