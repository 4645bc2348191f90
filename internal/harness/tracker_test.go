package harness

import (
	"testing"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/scenarios"
)

func event(process string, t history.Type, f string) history.Event {
	return history.Event{Process: process, Type: t, F: f, Key: "k"}
}

func TestTrackerKnowsWhoHolds(t *testing.T) {
	steps := []struct {
		event             history.Event
		holder            string
		waiting           string // of the clients A and B
		contended, served bool
	}{
		{event("A", history.Invoke, history.Acquire), "", "A", false, false},
		{event("A", history.OK, history.Acquire), "A", "", false, false},
		{event("B", history.Invoke, history.Acquire), "A", "B", true, false},
		{event(history.Nemesis, history.Invoke, "pause"), "A", "B", true, false},
		{event(history.Nemesis, history.OK, "pause"), "A", "B", true, false},
		{event("B", history.OK, history.Acquire), "B", "", true, true},
		{event(history.Resource, history.OK, history.Write), "B", "", true, true},
		{event("B", history.Invoke, history.Release), "A", "", true, true},
		{event("A", history.Info, history.Lost), "", "", true, true},
		{event("B", history.OK, history.Release), "", "", true, true},
	}
	var tr tracker
	for i, s := range steps {
		tr.observe(s.event)
		waiting := ""
		for _, c := range []string{"A", "B"} {
			if tr.waiting[c] != "" {
				waiting += c
			}
		}
		if got := tr.holder(""); got != s.holder || waiting != s.waiting || tr.contended != s.contended || tr.granted != s.served {
			t.Errorf("after event %d: holder %q, waiting %q, contended %v, granted %v; want %+v", i, got, waiting, tr.contended, tr.granted, s)
		}
	}
}

func TestTheHolderIsTheOneThatTheEventWasOf(t *testing.T) {
	var tr tracker
	for _, c := range []string{"A", "B"} {
		e := event(c, history.OK, history.Acquire)
		e.Key = "of-" + c
		tr.observe(e)
	}
	for preferred, want := range map[string]string{"": "B", "A": "A", "B": "B", "C": "B"} {
		if got := tr.holder(preferred); got != want {
			t.Errorf("holder, %q preferred, is %q; want %q", preferred, got, want)
		}
	}
}

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

// Clients contend also if all of them asked before one was granted the lock; those
// that ask for different locks do not.
func TestWaitersContend(t *testing.T) {
	for second, want := range map[string]bool{"k": true, "other": false} {
		var tr tracker
		tr.observe(event("A", history.Invoke, history.Acquire))
		e := event("B", history.Invoke, history.Acquire)
		e.Key = second
		tr.observe(e)
		tr.observe(event("A", history.OK, history.Acquire))
		if tr.contended != want {
			t.Errorf("A is granted k, B waits for %s: contended %v, want %v", second, tr.contended, want)
		}
	}
}
