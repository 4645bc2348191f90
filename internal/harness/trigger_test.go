package harness

import (
	"slices"
	"testing"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/scenarios"
)

func TestTriggersFireOnTheNthEvent(t *testing.T) {
	h := []history.Event{
		event(history.Harness, history.Info, history.Run),
		event("A", history.Invoke, history.Acquire), // 1
		event("B", history.Invoke, history.Acquire),
		event("A", history.OK, history.Acquire), // 3
		event("A", history.OK, history.Check),
		event("A", history.Invoke, history.Write), // 5
		event(history.Resource, history.OK, history.Write),
		event("A", history.OK, history.Write),
		event("A", history.Invoke, history.Renew), // 8
		event("A", history.Fail, history.Renew),
		event("A", history.Info, history.Lost), // 10
		event("A", history.Invoke, history.Release),
		event(history.Harness, history.Info, leaderEvent), // 12
		event("B", history.OK, history.Acquire),
		event(history.Nemesis, history.OK, "write"),
		event("B", history.Invoke, history.Write), // 15
		event("A", history.Fail, history.Acquire),
		event("A", history.OK, history.Acquire), // 17
	}
	for _, c := range []struct {
		scenarios.Injection
		want int // index of the event, -1 for none
	}{
		{scenarios.Injection{When: "acquire"}, 1},
		{scenarios.Injection{When: "acquire", Nth: 2}, 2},
		{scenarios.Injection{When: "grant"}, 3},
		{scenarios.Injection{When: "grant", Nth: 3}, 17},
		{scenarios.Injection{When: "grant", Nth: 4}, -1},
		{scenarios.Injection{When: "grant", By: "B"}, 13},
		{scenarios.Injection{When: "check"}, 4},
		{scenarios.Injection{When: "write", Nth: 2}, 15},
		{scenarios.Injection{When: "renew"}, 8},
		{scenarios.Injection{When: "lost"}, 10},
		{scenarios.Injection{When: "release"}, 11},
		{scenarios.Injection{When: "leader"}, 12},
		{scenarios.Injection{When: "release", By: "B"}, -1},
		{scenarios.Injection{When: "operation", Nth: 4}, 8},
		{scenarios.Injection{When: "operation", Nth: 2, By: "B"}, 15},
		{scenarios.Injection{When: "before-write"}, -1},
	} {
		tr, got := newTrigger(c.Injection), -1
		for i, e := range h {
			if tr.fires(e) {
				if got >= 0 {
					t.Errorf("%+v fires twice", c.Injection)
				}
				got = i
			}
		}
		if got != c.want {
			t.Errorf("%s %d by %q fires at event %d, want %d", c.When, c.Nth, c.By, got, c.want)
		}
	}
}

// What a client is about to do is counted like what it does.
func TestTriggersFireBeforeTheNthOperation(t *testing.T) {
	type about struct{ client, operation string }
	order := []about{{"A", "write"}, {"A", "renew"}, {"B", "renew"}, {"A", "renew"}, {"B", "write"}}
	for _, c := range []struct {
		scenarios.Injection
		want int
	}{
		{scenarios.Injection{When: "before-renew"}, 1},
		{scenarios.Injection{When: "before-renew", Nth: 3}, 3},
		{scenarios.Injection{When: "before-renew", Nth: 2, By: "A"}, 3},
		{scenarios.Injection{When: "before-write", By: "B"}, 4},
		{scenarios.Injection{When: "before-renew", Nth: 4}, -1},
		{scenarios.Injection{When: "renew"}, -1},
	} {
		tr := newTrigger(c.Injection)
		got := slices.IndexFunc(order, func(a about) bool { return tr.firesBefore(a.client, a.operation) })
		if got != c.want {
			t.Errorf("%s %d by %q fires before operation %d, want %d", c.When, c.Nth, c.By, got, c.want)
		}
	}
}

func TestEndsOfFaults(t *testing.T) {
	h := []history.Event{
		event("A", history.Invoke, history.Acquire),
		event("A", history.OK, history.Acquire), // 1
		event("A", history.Invoke, history.Write),
		event(history.Resource, history.OK, history.Write),
		event("A", history.OK, history.Write), // 4
		event("A", history.Fail, history.Renew),
		event("A", history.OK, history.Renew), // 6
		event("A", history.OK, history.Release),
		event(history.Harness, history.Info, leaderEvent), // 8
	}
	for moment, want := range map[string]int{"grant": 1, "write": 4, "renew": 6, "release": 7, "leader": 8, "": -1} {
		if got := slices.IndexFunc(h, func(e history.Event) bool { return ends(moment, e) }); got != want {
			t.Errorf("until %q ends with event %d, want %d", moment, got, want)
		}
	}
	for _, moment := range scenarios.Ends() {
		if !slices.ContainsFunc(h, func(e history.Event) bool { return ends(moment, e) }) {
			t.Errorf("until %s never ends", moment)
		}
	}
}
