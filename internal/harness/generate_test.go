package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

var everyKind = []Weighted{{"pause", 1}, {"partition", 1}, {"clock", 0.2}, {"flapping", 1}, {"latency", 1}, {"disk", 1}, {"reset", 1}}

func workloadOf(t *testing.T) *scenarios.Scenario {
	t.Helper()
	sc, err := scenarios.Load("contention")
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

func TestTheSameSeedGivesTheSameSchedule(t *testing.T) {
	on := Topology{Clients: []string{"c1", "c2"}, Servers: []string{"etcd-1", "etcd-2", "etcd-3"}, Leader: true}
	different := 0
	for seed := range int64(50) {
		a := Generate(seed, everyKind, 3*time.Second, 300*time.Millisecond, on)
		b := Generate(seed, everyKind, 3*time.Second, 300*time.Millisecond, on)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d gives\n%v\nand\n%v", seed, a, b)
		}
		if !reflect.DeepEqual(a, Generate(seed+1, everyKind, 3*time.Second, 300*time.Millisecond, on)) {
			different++
		}
	}
	if different < 50 {
		t.Errorf("%d of 50 seeds differ from their neighbours", different)
	}
}

// Whatever comes out is a valid scenario, its faults take their parameters, and
// what is written is what was run.
func TestSchedulesAreScenarios(t *testing.T) {
	sc := workloadOf(t)
	used := map[string]int{}
	for seed := range int64(300) {
		d, err := Compose(sc, seed, everyKind, 300*time.Millisecond, Topology{Servers: []string{"redis"}})
		if err != nil {
			t.Fatal(err)
		}
		again, err := scenarios.Parse("f.yaml", d.Source)
		if err != nil || !reflect.DeepEqual(again.Nemesis, d.Nemesis) || len(d.Nemesis) < leastEntries {
			t.Fatalf("seed %d: %v in\n%s", seed, err, d.Source)
		}
		for _, i := range d.Nemesis {
			used[i.Fault]++
			kind, err := nemesis.Find(i.Fault)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := kind.New(params(i.With, 300*time.Millisecond)); err != nil {
				t.Errorf("seed %d: %s: %v", seed, i, err)
			}
			for p := range i.With {
				if _, ok := kind.Params[p]; !ok {
					t.Errorf("seed %d: %s has no parameter %q", seed, i.Fault, p)
				}
			}
		}
	}
	for _, w := range everyKind {
		if used[w.Kind] == 0 {
			t.Errorf("%s is never used", w.Kind)
		}
	}
	if 2*used["clock"] > used["pause"] {
		t.Errorf("clock is used %d times, pause %d: its weight is a fifth", used["clock"], used["pause"])
	}
}

func TestParseFaults(t *testing.T) {
	got, err := ParseFaults([]string{"pause", " clock:0.2"})
	if want := []Weighted{{"pause", 1}, {"clock", 0.2}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for text, want := range map[string]string{
		"pauze": `unknown fault "pauze"`, "pause:": "number above 0", "pause:0": "number above 0",
		"pause:-1": "number above 0", "pause:NaN": "number above 0", "pause,pause:2": "named twice",
	} {
		if _, err := ParseFaults(strings.Split(text, ",")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q in it", text, err, want)
		}
	}
}

func TestParamsMayBeMultiplesOfTheTTL(t *testing.T) {
	got := params(map[string]string{
		"jump": "-1.5 ttl", "strobe": "100ms,2 ttl", "fsync": "slow 0.5 ttl", "match": "pexpire", "peers": "a,b",
	}, 200*time.Millisecond)
	want := map[string]string{
		"jump": "-300ms", "strobe": "100ms,400ms", "fsync": "slow 100ms", "match": "pexpire", "peers": "a,b",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// The violation needs two of ten faults, the first of them after some time, and a
// workload that is long enough.
func TestShrinkFindsTheFewestFaults(t *testing.T) {
	ttl := 100 * time.Millisecond
	var entries []scenarios.Injection
	for i := range 10 {
		entries = append(entries, scenarios.Injection{
			Fault: fmt.Sprint("f", i), On: []string{"holder"}, When: "grant", Nth: 5 + i,
			After: scenarios.Duration{TTLs: 0.5}, For: scenarios.Duration{TTLs: 4},
		})
	}
	entries[7].At, entries[7].When, entries[7].Nth, entries[7].After = scenarios.Duration{TTLs: 3}, "", 0, scenarios.Duration{}
	judgements := 0
	judge := func(c candidate) (bool, error) {
		judgements++
		found := 0
		for _, e := range c.entries {
			if e.Fault == "f3" && !e.After.IsZero() || e.Fault == "f7" && e.For.Of(ttl) >= 2*ttl {
				found++
			}
		}
		return found == 2 && c.length.Of(ttl) >= 5*ttl, nil
	}
	trail, err := shrink(t.Context(), candidate{entries, scenarios.Duration{TTLs: 20}}, ttl, judge, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(trail[0].entries) != 10 {
		t.Errorf("the trail begins with %v", trail[0].entries)
	}
	best := trail[len(trail)-1]
	var names []string
	for _, e := range best.entries {
		names = append(names, e.Fault)
	}
	if !slices.Equal(names, []string{"f3", "f7"}) || best.length.Of(ttl) != 5*ttl {
		t.Fatalf("%v in %v", best.entries, best.length)
	}
	if f3, f7 := best.entries[0], best.entries[1]; f3.Nth != 1 || f3.After.IsZero() || f7.When != "grant" || f7.Nth != 1 || !f7.At.IsZero() || !f7.After.IsZero() || f7.For.Of(ttl) != 2*ttl {
		t.Errorf("%v", best.entries)
	}
	if ok, _ := judge(best); !ok || judgements > shrinkLimit+1 {
		t.Errorf("shows it: %v, after %d judgements", ok, judgements)
	}
}

func TestShrinkStops(t *testing.T) {
	whole := candidate{[]scenarios.Injection{{Fault: "a"}, {Fault: "b"}}, scenarios.Duration{Time: time.Minute}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trail, err := shrink(ctx, whole, time.Second, func(candidate) (bool, error) { t.Error("judged"); return true, nil }, func(string) {})
	if err != nil || len(trail) != 1 || len(trail[0].entries) != 2 {
		t.Errorf("%v, %v", trail, err)
	}
	broken := errors.New("no server")
	if _, err := shrink(t.Context(), whole, time.Second, func(candidate) (bool, error) { return false, broken }, func(string) {}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// What luck has let through while shrinking is given up, until the rest shows the
// violation often enough.
func TestRateStepsBackFromLuck(t *testing.T) {
	var trail []candidate
	for i := range 9 {
		trail = append(trail, candidate{length: scenarios.Duration{TTLs: float64(9 - i)}})
	}
	for _, c := range []struct {
		least    float64 // length that always shows it; what is shorter does every other time
		want     float64
		hits, of int
	}{
		{1, 1, 10, 10}, {5, 5, 10, 10}, {4, 5, 10, 10}, {7, 7, 10, 10}, {9, 9, 10, 10}, {10, 9, 2, 4},
	} {
		runs := 0
		var f Found
		got, err := f.rate(t.Context(), trail, func(of candidate) (bool, error) {
			runs++
			return of.length.TTLs >= c.least || runs%2 == 0, nil
		})
		if err != nil || got.length.TTLs != c.want || f.Hits != c.hits || f.Of != c.of {
			t.Errorf("from %v on: took %v with %d of %d, want %v with %d of %d: %v", c.least, got.length.TTLs, f.Hits, f.Of, c.want, c.hits, c.of, err)
		}
	}
}

func TestRepeatedRunsNoMoreThanItMust(t *testing.T) {
	for _, c := range []struct {
		outcomes string // h is a hit
		k        int
		hits, of int
	}{
		{"hhh", 3, 3, 3}, {"-hh", 2, 2, 3}, {"---", 2, 0, 2}, {"-hh", 3, 0, 1}, {"h--", 2, 1, 3},
	} {
		runs := 0
		hits, of, err := repeated(t.Context(), func() (bool, error) { runs++; return c.outcomes[runs-1] == 'h', nil }, c.k, len(c.outcomes))
		if err != nil || hits != c.hits || of != c.of || runs != of {
			t.Errorf("%s, %d wanted: %d of %d after %d runs, want %d of %d", c.outcomes, c.k, hits, of, runs, c.hits, c.of)
		}
	}
}
