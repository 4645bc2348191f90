package page_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/page"
)

// story is a history made by hand; times are in milliseconds.
type story struct {
	events []history.Event
	last   int64
}

func (s *story) add(at float64, process string, t history.Type, f string, change func(*history.Event)) int64 {
	s.last = max(s.last+1, int64(at*1e6))
	e := history.Event{Index: int64(len(s.events)), Time: s.last, Process: process, Type: t, F: f, Key: "k"}
	if change != nil {
		change(&e)
	}
	s.events = append(s.events, e)
	return e.Index
}

func (s *story) op(at, done float64, process, f string, result func(*history.Event)) {
	s.add(at, process, history.Invoke, f, nil)
	s.add(done, process, history.OK, f, result)
}

// write is a write that the resource applies, or rejects.
func (s *story) write(at float64, process, v string, token *int64, rejected bool) {
	with := func(e *history.Event) { e.Value, e.Token = quoted(v), token }
	op := s.add(at, process, history.Invoke, history.Write, with)
	t := history.OK
	if rejected {
		t = history.Fail
	}
	s.add(at+0.1, history.Resource, t, history.Write, func(e *history.Event) { with(e); e.Client, e.Op = process, &op })
	s.add(at+0.2, process, t, history.Write, nil)
}

func quoted(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// names are the texts of a story, which may be hostile.
type names struct{ a, b, key, value, fault, failure string }

var plain = names{"A", "B", "k", "late-of-A", "pause", "lock is not held"}

// gcPause is the double holder: A is frozen past its lease, B gets the lock, A
// writes. With tokens its late write is rejected.
func gcPause(n names, tokens bool) []history.Event {
	s := &story{}
	var one, two *int64
	if tokens {
		x, y := int64(33), int64(34)
		one, two = &x, &y
	}
	grant := func(t *int64) func(*history.Event) {
		return func(e *history.Event) { e.Token, e.TTL = t, int64(200*time.Millisecond) }
	}
	on := func(extra string) func(*history.Event) {
		return func(e *history.Event) { e.Value = quoted(map[string]any{"on": []string{n.a}, "proof": extra}) }
	}
	s.op(1.2, 1.7, n.a, history.Acquire, grant(one))
	s.write(2.1, n.a, "first-of-A", one, false)
	s.add(3.1, history.Nemesis, history.Invoke, n.fault, on(""))
	s.add(3.4, history.Nemesis, history.OK, n.fault, on("state T "+n.value))
	late := s.add(4, n.a, history.Invoke, history.Write, func(e *history.Event) { e.Value, e.Token = quoted(n.value), one })
	s.op(4.2, 203.4, n.b, history.Acquire, grant(two))
	s.write(203.8, n.b, "first-of-B", two, false)
	s.add(204.6, history.Nemesis, history.Info, n.fault, on("state S"))
	t := history.OK
	if tokens {
		t = history.Fail
	}
	s.add(205.3, history.Resource, t, history.Write, func(e *history.Event) {
		e.Value, e.Token, e.Client, e.Op = quoted(n.value), one, n.a, &late
	})
	s.add(205.5, n.a, t, history.Write, func(e *history.Event) { e.Error = n.failure })
	s.op(206, 206.3, n.b, history.Release, nil)
	s.add(206.8, n.a, history.Invoke, history.Release, nil)
	s.add(207.1, n.a, history.Fail, history.Release, func(e *history.Event) { e.Error = n.failure })
	for i := range s.events {
		s.events[i].Key = n.key
	}
	return s.events
}

// crowd is a workload of clients on several keys, nearly all in turns. Now and
// then a client believes for longer than it should.
func crowd(clients, keys, turns int) []history.Event {
	s := &story{}
	at := 1.0
	jitter := rand.New(rand.NewPCG(1, 2)) // times like those of a real run, the same each time
	key := ""
	one := func(process string, t history.Type, f string, change func(*history.Event)) {
		s.add(at, process, t, f, func(e *history.Event) {
			e.Key = key
			if change != nil {
				change(e)
			}
		})
		at += 0.001 + jitter.ExpFloat64()*0.01
	}
	tokens := int64(0)
	for i := range turns {
		key = fmt.Sprint("key-", i%keys)
		p, q := fmt.Sprint(i%clients), fmt.Sprint((i+1)%clients)
		grant := func(e *history.Event) {
			tokens++
			t := tokens
			e.Token, e.TTL = &t, int64(50*time.Millisecond)
		}
		one(p, history.Invoke, history.Acquire, nil)
		one(p, history.OK, history.Acquire, grant)
		if i%10 == 3 {
			one(p, history.Invoke, history.Renew, nil)
			one(p, history.OK, history.Renew, func(e *history.Event) { e.TTL = int64(50 * time.Millisecond) })
		}
		if i%97 == 50 { // its lease ends, and another gets the lock before it lets go
			at += 60
			one(q, history.Invoke, history.Acquire, nil)
			one(q, history.OK, history.Acquire, grant)
			at += float64(i % 7)
			one(p, history.Invoke, history.Release, nil)
			one(p, history.Fail, history.Release, func(e *history.Event) { e.Error = "lock is not held" })
			one(q, history.Invoke, history.Release, nil)
			one(q, history.OK, history.Release, nil)
			continue
		}
		if i%3 == 0 {
			t, v := tokens, quoted(fmt.Sprint(p, "-", i))
			with := func(e *history.Event) { e.Token, e.Value = &t, v }
			op := int64(len(s.events))
			one(p, history.Invoke, history.Write, with)
			one(history.Resource, history.OK, history.Write, func(e *history.Event) { with(e); e.Client, e.Op = p, &op })
			one(p, history.OK, history.Write, nil)
		}
		one(p, history.Invoke, history.Release, nil)
		one(p, history.OK, history.Release, nil)
	}
	return s.events
}

// lateRenewals is the story of a client that renews after its lease could have
// ended, once in time to go on and once while another holds.
func lateRenewals() []history.Event {
	s := &story{}
	lease := func(e *history.Event) { e.TTL = int64(10 * time.Millisecond) }
	s.op(1, 20, "A", history.Acquire, lease) // 10 ms from 1 ms on: over before it was confirmed
	s.op(22, 23, "A", history.Renew, lease)
	s.op(28, 29, "A", history.Renew, lease)
	s.op(45, 46, "B", history.Acquire, lease)
	s.op(47, 48, "A", history.Renew, lease)
	s.op(50, 51, "B", history.Release, nil)
	s.op(52, 53, "A", history.Release, nil)
	return s.events
}

// read is a history of the events, as it would be read from a file.
func read(t testing.TB, events []history.Event) *history.History {
	t.Helper()
	var lines strings.Builder
	for _, e := range events {
		lines.WriteString(e.String() + "\n")
	}
	h, err := history.Decode(strings.NewReader(lines.String()), history.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// judged is a run with what the checker says of the history.
func judged(h *history.History) *reports.Run {
	r := &reports.Run{
		Scenario: "gc-pause", Backend: "redis", Resource: "unfenced", TTL: 200 * time.Millisecond, Seed: 7, Repeat: 1,
		Violates: checker.Mutex, Versions: map[string]string{"redis": "7.0.15"}, Status: reports.Violation,
		Replay: "lockcheck reproduce gc-pause --backend redis --seed 7", Dir: "lockcheck-runs/gc-pause",
	}
	r.SetReport(checker.Check(h, checker.Options{}))
	if r.Primary() == nil {
		r.Status = reports.Pass
	}
	return r
}

// write returns the page of the events.
func write(t testing.TB, events []history.Event) string {
	t.Helper()
	h := read(t, events)
	var b strings.Builder
	if err := page.Write(&b, judged(h), h, events[:min(len(events), 500)]); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
