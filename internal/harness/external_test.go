package harness_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/internal/execstop/stoptest"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

func embedded(t *testing.T, name string) *scenarios.Scenario {
	t.Helper()
	sc, err := scenarios.LoadAll(name)
	if err != nil {
		t.Fatal(err)
	}
	return sc[0]
}

// A server that ran before is used, is still there afterwards, and what others have
// in it is untouched: also a key that is called as the scenario's lock.
func TestServersThatRunAlready(t *testing.T) {
	cmd, db := stoptest.Redis(t, nil)
	if err := db.Set(t.Context(), "k", "mine", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		scenario string
		status   reports.Status
		violated string
	}{
		{"no-fault", reports.Pass, ""},
		{"gc-pause", reports.Violation, checker.Mutex},
		{"late-write", reports.Violation, checker.Fence},
	} {
		o := options(t, "redis")
		given := []backends.Endpoint{{Name: "redis-1", Software: "redis", URL: "redis://" + db.Options().Addr}}
		var err error
		if o.Servers, err = harness.NameServers(o.Backend, backends.Options{}, given); err != nil {
			t.Fatal(err)
		}
		sc := embedded(t, tt.scenario)
		if why := harness.OutOfReach(sc, o); why != "" {
			t.Fatalf("%s: %s", tt.scenario, why)
		}
		r, _ := run(t, sc, o)
		if r.Status != tt.status || tt.violated != "" && r.Verdict(tt.violated) != checker.Violated {
			t.Errorf("%s: %s, want %s: %q", tt.scenario, r.Status, tt.status, r.Reasons)
		}
		if !strings.Contains(r.Versions["redis"], "not started by this run") {
			t.Errorf("%s: the versions are %q", tt.scenario, r.Versions)
		}
		if !slices.ContainsFunc(r.Remarks, func(s string) bool { return strings.Contains(s, "faults hit clients and links only") }) {
			t.Errorf("%s: the remarks are %q", tt.scenario, r.Remarks)
		}
	}
	keys, err := db.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatalf("process %d does not answer any more: %v", cmd.Process.Pid, err)
	}
	for _, k := range keys {
		if k != "k" && !strings.HasPrefix(k, "lockcheck-") {
			t.Errorf("a run has made the key %q", k)
		}
	}
	if v := db.Get(t.Context(), "k").Val(); v != "mine" {
		t.Errorf("a key of somebody else is %q now", v)
	}
}

func TestOutOfReachOnServersThatRunAlready(t *testing.T) {
	at := func(backend string, software ...string) harness.Options {
		b, err := backends.Find(backend)
		if err != nil {
			t.Fatal(err)
		}
		o := harness.Options{Backend: b, Resource: "unfenced"}
		for _, s := range software {
			o.Servers = append(o.Servers, backends.Endpoint{Name: s, Software: s, URL: s + "://127.0.0.1:1"})
		}
		return o
	}
	inDatabase := at("postgres-xact", "postgres")
	inDatabase.Resource = "postgres"
	for _, tt := range []struct {
		scenario string
		o        harness.Options
		why      string // "" if it can be run
	}{
		{"gc-pause", at("redis", "redis"), ""},
		{"r5-partition", at("redis", "redis"), ""},
		{"lost-acquire-reply", at("redis", "redis"), ""},
		{"r7-clock", at("redis", "redis"), "fault clock is to hit servers"},
		{"r4-restart", at("redis", "redis"), "fault restart is to hit"},
		{"p6-packets", at("postgres-session", "postgres"), "it sets settings of servers"},
		{"gc-pause", inDatabase, "the resource postgres needs a database of the run's own"},
	} {
		got := harness.OutOfReach(embedded(t, tt.scenario), tt.o)
		if (got == "") != (tt.why == "") || !strings.Contains(got, tt.why) {
			t.Errorf("%s on %s: %q, want %q", tt.scenario, tt.o.Backend.Name, got, tt.why)
		}
	}
}

func TestNameServers(t *testing.T) {
	b, err := backends.Find("redlock")
	if err != nil {
		t.Fatal(err)
	}
	var five []backends.Endpoint
	for range 5 {
		five = append(five, backends.Endpoint{Software: "redis"})
	}
	named, err := harness.NameServers(b, backends.Options{}, five)
	if err != nil {
		t.Fatal(err)
	}
	if named[0].Name != "redis-1" || named[4].Name != "redis-5" || five[0].Name != "" {
		t.Errorf("the names are %v, those that were given %v", named, five)
	}
	if _, err := harness.NameServers(b, backends.Options{}, five[:2]); err == nil || !strings.Contains(err.Error(), "needs the servers redis, redis, redis, redis, redis") {
		t.Errorf("two of five: %v", err)
	}
}
