package harness

import (
	"testing"

	"github.com/lockcheck/lockcheck/history"
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
