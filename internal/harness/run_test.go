package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	_ "github.com/lockcheck/lockcheck/backends/all"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

func TestMain(m *testing.M) {
	selfexec.Main() // the test binary is also the clients and servers of its runs
	os.Exit(m.Run())
}

func options(t *testing.T, backend string) harness.Options {
	t.Helper()
	b, err := backends.Find(backend)
	if err != nil {
		t.Fatal(err)
	}
	if b.Servers != nil {
		for _, s := range b.Servers(backends.Options{}) {
			if _, err := deploy.Find(t.Context(), s.Software, ""); err != nil {
				t.Skipf("%s: %v", s.Software, err)
			}
		}
	}
	return harness.Options{Backend: b, TTL: 200 * time.Millisecond, Seed: 1, Repeat: 1, Out: t.TempDir()}
}

func parse(t *testing.T, text string) *scenarios.Scenario {
	t.Helper()
	sc, err := scenarios.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

func run(t *testing.T, sc *scenarios.Scenario, o harness.Options) (*reports.Run, []history.Event) {
	t.Helper()
	r, err := harness.Run(t.Context(), sc, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, eventsOf(t, r.Dir)
}

func eventsOf(t *testing.T, dir string) []history.Event {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var events []history.Event
	for line := range bytes.Lines(text) {
		var e history.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// faults are the events of the nemesis: "pause ok c1".
func faults(events []history.Event) []string {
	var all []string
	for _, e := range events {
		if e.Process != history.Nemesis {
			continue
		}
		var v struct {
			Fault string   `json:"fault"`
			On    []string `json:"on"`
		}
		_ = json.Unmarshal(e.Value, &v) // a value of another shape names nobody
		all = append(all, strings.Join(append([]string{e.F, string(e.Type)}, v.On...), " "))
	}
	return all
}

const head = "name: test\nworkload: {clients: 3, wait: 2 ttl, work: 0.2 ttl, think: 2ms, check: true, for: 6 ttl}\n"

// The control: without faults nothing is violated, and what the clients did is
// measured.
func TestAWorkloadWithoutFaultsIsClean(t *testing.T) {
	for _, backend := range []string{"memory", "redis"} {
		for _, body := range []string{"write", "rmw"} {
			t.Run(backend+" "+body, func(t *testing.T) {
				sc := parse(t, "name: test\nworkload: {clients: 4, keys: 2, work: 0.1 ttl, renew: 0.04 ttl, body: "+body+", operations: 40}\n")
				o := options(t, backend)
				o.TTL = time.Second
				r, events := run(t, sc, o)
				if r.Status != reports.Pass {
					t.Errorf("status %s: %v", r.Status, r.Reasons)
				}
				acquires := 0
				for _, e := range events {
					if e.F == history.Acquire && e.Type == history.Invoke {
						acquires++
					}
				}
				if acquires != 40 {
					t.Errorf("%d acquires, want 40", acquires)
				}
				var latency struct {
					Operations map[string]struct {
						OK  int64   `json:"ok"`
						P50 float64 `json:"p50_ms"`
					} `json:"operations"`
					Seconds []struct{ Grants int64 } `json:"seconds"`
				}
				text, err := os.ReadFile(filepath.Join(r.Dir, "latency.json"))
				if err == nil {
					err = json.Unmarshal(text, &latency)
				}
				if err != nil {
					t.Fatal(err)
				}
				grants := int64(0)
				for _, s := range latency.Seconds {
					grants += s.Grants
				}
				if a := latency.Operations["acquire"]; a.OK != int64(r.Grants) || grants != a.OK || a.P50 <= 0 {
					t.Errorf("latency.json has %+v, and %d grants by second; the checker saw %d", a, grants, r.Grants)
				}
			})
		}
	}
}

// A holder that is frozen between its check and its write, until somebody else
// has written: the client waits with its write until it is frozen.
func TestAPauseOnACheckIsAlwaysHarmful(t *testing.T) {
	sc := parse(t, head+"nemesis: [{fault: pause, on: holder, when: check, nth: 5, for: 5 ttl, until: write}]\n")
	for range 5 {
		r, events := run(t, sc, options(t, "redis"))
		if got := harness.Violated(r, []string{"mutex", "lease", "fence"}); strings.Join(got, " ") != "mutex fence" {
			t.Errorf("violated: %v, status %s %v; want mutex and fence", got, r.Status, r.Reasons)
		}
		all := faults(events)
		if len(all) != 4 || all[0][:12] != "pause invoke" || all[1] != "pause ok"+all[0][12:] || all[2][:9] != "heal info" {
			t.Errorf("the nemesis did %v", all)
		}
	}
}

// K2 in short: a Redlock client that is frozen past its lease after three of five
// servers have answered knows when it thaws that it is too late.
func TestAPauseAfterSomeAnswersComesDuringTheAcquire(t *testing.T) {
	o := options(t, "redlock")
	o.Gate = []string{"mutex", "lease"} // a busy machine has its say in liveness
	for answers := 1; answers <= 5; answers++ {
		sc := parse(t, fmt.Sprintf(`name: test
clients: [A, B]
nemesis: [{fault: pause, on: A, when: acquire, by: A, answers: %d, for: 1.5 ttl}]
steps:
  - {client: A, do: acquire, within: 0s, refused: true}
  - {client: B, do: acquire}
  - {client: B, do: release}
`, answers))
		var r *reports.Run
		var events []history.Event
		// On a busy machine the client gives a server up before it has answered, and
		// its acquire may end before: the run must say so.
		for range 5 {
			r, events = run(t, sc, o)
			if r.Status != reports.Inconclusive || !strings.Contains(strings.Join(r.Reasons, " "), "A's acquire ended") {
				break
			}
		}
		if r.Status != reports.Pass {
			t.Errorf("after %d answers: status %s: %v", answers, r.Status, r.Reasons)
		}
		if all := faults(events); len(all) != 4 || all[1] != "pause ok A" {
			t.Errorf("after %d answers: the nemesis did %v", answers, all)
		}
	}
}

// Entries of a nemesis go with steps too, and each must take effect.
func TestStepsUnderANemesis(t *testing.T) {
	const steps = `
clients: [A, B]
steps:
  - {client: A, do: acquire}
  - {client: A, do: write, value: of-A, may_fail: true}
  - {client: A, do: release, may_fail: true}
  - {client: B, do: acquire, within: 5s}
  - {client: B, do: release}
`
	for _, c := range []struct {
		name, entry string
		status      reports.Status
		reason      string
	}{
		{"before the write", "{fault: pause, on: A, when: before-write, for: 0.2 ttl}", reports.Pass, ""},
		{"after a number of operations", "{fault: pause, on: B, when: operation, nth: 2, for: 0.2 ttl}", reports.Pass, ""},
		{"its moment never comes", "{fault: pause, on: A, when: before-renew}", reports.Inconclusive, "before-renew) did not come 1 times"},
		{"too many answers", "{fault: pause, on: A, when: acquire, answers: 2}", reports.Inconclusive, "2 answers to A: it asks 1 servers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, "redis")
			o.Gate = []string{"mutex", "lease"}
			r, events := run(t, parse(t, "name: test\nnemesis: ["+c.entry+"]"+steps), o)
			if r.Status != c.status || !strings.Contains(strings.Join(r.Reasons, " "), c.reason) {
				t.Errorf("status %s: %v; want %s: %q\n%v", r.Status, r.Reasons, c.status, c.reason, faults(events))
			}
		})
	}
}

func TestFaultsFindTheirTargets(t *testing.T) {
	for _, c := range []struct{ name, entry, want string }{
		{"servers", "{fault: pause, on: servers, at: 0.5 ttl, for: 0.5 ttl}", "pause ok redis"},
		{"clients", "{fault: pause, on: clients, at: 0.5 ttl, for: 0.5 ttl}", "pause ok c1 c2 c3"},
		{"a name", "{fault: pause, on: c2, when: write, nth: 3, for: 0.5 ttl}", "pause ok c2"},
		{"the resource", "{fault: latency, on: resource, with: {delay: 5ms}, at: 0s, for: 1 ttl}", "latency ok resource"},
		{"primary", "{fault: partition, on: primary, at: 0.5 ttl, for: 0.5 ttl}", "partition ok redis"},
		{"a clock", "{fault: clock, on: servers, with: {jump: 3 ttl}, when: grant, nth: 4, for: 1 ttl}", "clock ok redis"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.HasPrefix(c.want, "clock") {
				k, err := nemesis.Find("clock")
				if err != nil {
					t.Fatal(err)
				}
				if err := k.Available(); err != nil {
					t.Skip(err)
				}
			}
			r, events := run(t, parse(t, head+"nemesis:\n  - "+c.entry+"\n"), options(t, "redis"))
			if r.Status == reports.Inconclusive || r.Status == reports.Error {
				t.Errorf("status %s: %v", r.Status, r.Reasons)
			}
			if all := faults(events); len(all) != 4 || all[1] != c.want {
				t.Errorf("the nemesis did %v, want %q", all, c.want)
			}
		})
	}
}

func TestWhatProvesNothingIsInconclusive(t *testing.T) {
	for _, c := range []struct{ name, text, reason string }{
		{"nobody contends", "name: t\nworkload: {clients: 2, wait: 0s, think: 200ms, operations: 1}\n", "nobody contended"},
		{"its moment never comes", head + "nemesis: [{fault: pause, on: holder, when: grant, nth: 100000, for: 1 ttl}]\n", "did not come 100000 times"},
		{"no such target", head + "nemesis: [{fault: pause, on: holdr, at: 0s, for: 1 ttl}]\n", `no client and no server is named "holdr"`},
		{"no proof", head + "nemesis: [{fault: partition, on: c1, with: {peers: nobody}, at: 0s, for: 1 ttl}]\n", "no link leads to or from nobody"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := run(t, parse(t, c.text), options(t, "memory"))
			if r.Status != reports.Inconclusive || !strings.Contains(strings.Join(r.Reasons, " "), c.reason) {
				t.Errorf("status %s: %v; want inconclusive: %q", r.Status, r.Reasons, c.reason)
			}
		})
	}
}

// What a random schedule did is in the run's folder, and is run again from there.
func TestARunIsReloaded(t *testing.T) {
	base, err := scenarios.Load("contention")
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, "redis")
	o.Seed, o.Gate = 7, []string{"lease", "fence"}
	kinds := []harness.Weighted{{Kind: "pause", Weight: 1}, {Kind: "partition", Weight: 1}}
	sc, err := harness.Compose(base, o.Seed, kinds, o.TTL, harness.Topology{Servers: []string{"redis"}})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := run(t, sc, o)
	again, err := harness.Reload(first.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Scenario.Nemesis) != len(sc.Nemesis) || again.Options.Seed != 7 || again.Options.TTL != o.TTL ||
		again.Options.Backend.Name != "redis" || len(again.Options.Gate) != 2 || again.Run.Status != first.Status {
		t.Errorf("reloaded %+v", again.Options)
	}
	if _, err := harness.Reload(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a run's folder") {
		t.Errorf("an empty folder: %v", err)
	}
}

// An interrupt heals what is in effect: the frozen server could not be asked for
// anything, nor end, else.
func TestAnInterruptHeals(t *testing.T) {
	sc := parse(t, strings.Replace(head, "6 ttl", "60s", 1)+"nemesis: [{fault: pause, on: servers, when: grant, nth: 2, for: 60s}, {fault: partition, on: c1, at: 0s, for: 60s}]\n")
	o := options(t, "redis")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		// The fault is in effect when it is in the history.
		for ctx.Err() == nil {
			files, _ := filepath.Glob(filepath.Join(o.Out, "*", "history.jsonl"))
			for _, f := range files {
				if text, _ := os.ReadFile(f); bytes.Contains(text, []byte(`"type":"ok","f":"pause"`)) {
					cancel()
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	r, err := harness.Run(ctx, sc, o)
	if err != nil {
		t.Fatal(err)
	}
	healed := map[string]int{}
	for _, f := range faults(eventsOf(t, r.Dir)) {
		healed[strings.Join(strings.Fields(f)[:2], " ")]++
	}
	if healed["pause ok"] != 1 || healed["pause info"] != 1 || healed["partition info"] != 1 || healed["heal info"] != 2 {
		t.Errorf("the nemesis did %v", healed)
	}
	if reasons := strings.Join(r.Reasons, " "); !strings.Contains(reasons, "interrupted") {
		t.Errorf("reasons: %s", reasons)
	}
}

// A hunt finds what frozen holders do, and the scenario that it saves reproduces it.
func TestHunt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	base, err := scenarios.Load("contention")
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, "redis")
	file := filepath.Join(t.TempDir(), "found.yaml")
	found, err := harness.Hunt(t.Context(), harness.HuntOptions{
		Scenario: base, Run: o, Faults: []harness.Weighted{{Kind: "pause", Weight: 1}}, Properties: []string{"mutex"},
		Time: time.Minute, Servers: []string{"redis"}, Save: file, Progress: func(s string) { t.Log(s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.Run == nil || found.Property != "mutex" || found.Hits < 7 || found.Of != 10 {
		t.Fatalf("found %+v", found)
	}
	sc, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if sc.Violates != "mutex" || !strings.Contains(string(sc.Source), "of 10 runs") {
		t.Errorf("saved\n%s", sc.Source)
	}
}

// Every fault that is available takes effect and is healed, and then a lock is granted
// again. These have servers of each software; `lockcheck faults --verify` tries all.
func TestEveryFaultTakesEffect(t *testing.T) {
	for _, backend := range []string{"redis-sentinel", "etcd", "pgbouncer-transaction-xact"} {
		t.Run(backend, func(t *testing.T) {
			o := options(t, backend)
			o.TTL = 5 * time.Second
			checks, err := harness.VerifyFaults(t.Context(), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, c := range checks {
				seen[c.Fault] = true
				if !c.Effective && c.Unavailable == "" {
					t.Errorf("%s %v on %v: %s", c.Fault, c.With, c.Targets, c.Error)
				}
			}
			for _, name := range nemesis.Names() {
				if !seen[name] {
					t.Errorf("%s was not tried", name)
				}
			}
		})
	}
}

// An entry whose moment does not come is told, and does not spoil what the others
// show.
func TestAnEntryThatWasNotInjectedIsRemarked(t *testing.T) {
	r, events := run(t, parse(t, head+`nemesis:
  - {fault: pause, on: servers, at: 1 ttl, for: 0.2 ttl}
  - {fault: pause, on: holder, when: grant, nth: 100000, for: 1 ttl}
`), options(t, "redis"))
	if r.Status == reports.Inconclusive || r.Status == reports.Error {
		t.Errorf("status %s: %v", r.Status, r.Reasons)
	}
	for _, e := range events {
		if e.F == "remark" && strings.Contains(e.Error, "did not come 100000 times") {
			return
		}
	}
	t.Error("the history has no remark")
}
