package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/scenarios"
)

func units(names ...string) (all []unit) {
	for _, n := range names {
		all = append(all, unit{scenario: &scenarios.Scenario{Name: n}})
	}
	return all
}

// order takes runs until there are no more, each of which takes as long as took says,
// and returns their names.
func order(q *queue, at *time.Time, took func(job) time.Duration) string {
	var names []string
	for len(names) < 100 {
		j, ok := q.take()
		if !ok {
			break
		}
		if j.at != len(names) {
			return fmt.Sprintf("run %d is said to be the %dth", len(names), j.at)
		}
		names = append(names, fmt.Sprintf("%s%d", j.unit.scenario.Name, j.n))
		d := took(j)
		*at = at.Add(d)
		q.took(j, d)
	}
	return strings.Join(names, " ")
}

func TestRunsAreRepeatedOneKindAfterTheOther(t *testing.T) {
	at := time.Unix(0, 0)
	q := newQueue(units("a", "b"), 3, 0, func() time.Time { return at })
	if got, want := order(q, &at, func(job) time.Duration { return time.Hour }), "a0 a1 a2 b0 b1 b2"; got != want {
		t.Errorf("the runs are %s, want %s", got, want)
	}
	if q.cut() {
		t.Error("it is said to be cut, and all were made")
	}
}

func TestABudgetIsFilledWithWhatFits(t *testing.T) {
	for _, c := range []struct {
		what   string
		budget time.Duration
		long   map[string]time.Duration // of each kind's runs
		want   string
	}{
		{"equal runs", 7 * time.Second, map[string]time.Duration{"a": time.Second, "b": time.Second}, "a0 b0 a1 b1 a2 b2 a3"},
		{"each is made once, whatever it takes", time.Second, map[string]time.Duration{"a": time.Hour, "b": time.Hour}, "a0 b0"},
		{"the long one does not fit again", 8 * time.Second, map[string]time.Duration{"a": 5 * time.Second, "b": time.Second}, "a0 b0 b1 b2"},
	} {
		at := time.Unix(0, 0)
		q := newQueue(units("a", "b"), 1, c.budget, func() time.Time { return at })
		if got := order(q, &at, func(j job) time.Duration { return c.long[j.unit.scenario.Name] }); got != c.want {
			t.Errorf("%s: the runs are %s, want %s", c.what, got, c.want)
		}
	}
}

// The longest run decides whether another fits, not the last.
func TestABudgetIsNotOverrunByARunThatWasLongBefore(t *testing.T) {
	at := time.Unix(0, 0)
	q := newQueue(units("a"), 1, 10*time.Second, func() time.Time { return at })
	got := order(q, &at, func(j job) time.Duration {
		return []time.Duration{4 * time.Second, 3 * time.Second, 99 * time.Second}[j.n]
	})
	if want := "a0 a1"; got != want {
		t.Errorf("the runs are %s, want %s: 3 s were left, and one took 4 s", got, want)
	}
}

func TestAQueueThatIsStoppedSaysWhetherRunsWereCut(t *testing.T) {
	for taken, want := range map[int]bool{1: true, 2: true, 3: false} {
		q := newQueue(units("a"), 3, 0, time.Now)
		for range taken {
			if _, ok := q.take(); !ok {
				t.Fatal("there are no runs")
			}
		}
		q.stop()
		if _, ok := q.take(); ok {
			t.Error("a run is begun after the stop")
		}
		if got := q.cut(); got != want {
			t.Errorf("stopped after %d of 3: cut is %v, want %v", taken, got, want)
		}
	}
}
