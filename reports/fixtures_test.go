package reports_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
)

// story is a history made by hand; times are in milliseconds.
type story struct{ events []history.Event }

func ms(t float64) int64 { return int64(t * float64(time.Millisecond)) }

func (s *story) add(at float64, process string, t history.Type, f string, change func(*history.Event)) int64 {
	e := history.Event{Index: int64(len(s.events)), Time: ms(at), Process: process, Type: t, F: f, Key: "k"}
	if change != nil {
		change(&e)
	}
	s.events = append(s.events, e)
	return e.Index
}

func token(n int64) func(*history.Event) { return func(e *history.Event) { e.Token = &n } }

func value(v any) func(*history.Event) {
	return func(e *history.Event) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		e.Value = b
	}
}

func failure(msg string) func(*history.Event) { return func(e *history.Event) { e.Error = msg } }

func lease(ttl float64) func(*history.Event) { return func(e *history.Event) { e.TTL = ms(ttl) } }

func by(client string, op int64) func(*history.Event) {
	return func(e *history.Event) { e.Client, e.Op = client, &op }
}

func all(changes ...func(*history.Event)) func(*history.Event) {
	return func(e *history.Event) {
		for _, change := range changes {
			if change != nil {
				change(e)
			}
		}
	}
}

func (s *story) op(at, done float64, process, f string, result func(*history.Event)) int64 {
	i := s.add(at, process, history.Invoke, f, nil)
	s.add(done, process, history.OK, f, result)
	return i
}

// write is a write that the resource applies at once.
func (s *story) write(at float64, process, v string, with func(*history.Event)) int64 {
	i := s.add(at, process, history.Invoke, history.Write, all(value(v), with))
	s.add(at+0.2, history.Resource, history.OK, history.Write, all(value(v), with, by(process, i)))
	s.add(at+0.4, process, history.OK, history.Write, nil)
	return i
}

func (s *story) fault(at float64, kind, target string) {
	s.add(at, history.Nemesis, history.Invoke, kind, value(map[string]any{"on": []string{target}}))
	s.add(at+0.3, history.Nemesis, history.OK, kind, value(map[string]any{"on": []string{target}, "proof": "state T"}))
}

func (s *story) heal(at float64, kind, target string) {
	s.add(at, history.Nemesis, history.Info, kind, value(map[string]any{"on": []string{target}, "proof": "state S"}))
}

// gcPause is the story of the double holder: on redis without tokens, on etcd
// with them, rejected or not.
func gcPause(tokens, rejected bool) []history.Event {
	s := &story{}
	var a, b func(*history.Event)
	if tokens {
		a, b = token(33), token(34)
	}
	s.add(0.1, history.Harness, history.Info, history.Run, nil)
	s.op(1.2, 1.7, "A", history.Acquire, all(a, lease(200)))
	s.write(2.1, "A", "first-of-A", a)
	s.op(2.8, 2.9, "A", history.Check, value(true))
	s.fault(3.1, "pause", "A")
	late := s.add(4.0, "A", history.Invoke, history.Write, all(value("late-of-A"), a))
	s.op(4.2, 203.4, "B", history.Acquire, all(b, lease(200)))
	s.write(203.8, "B", "first-of-B", b)
	s.heal(204.6, "pause", "A")
	t := history.OK
	var why func(*history.Event)
	if rejected {
		t, why = history.Fail, failure("rejected by the resource: stale token")
	}
	s.add(205.3, history.Resource, t, history.Write, all(value("late-of-A"), a, by("A", late)))
	s.add(205.5, "A", t, history.Write, why)
	s.op(206.0, 206.3, "B", history.Release, nil)
	s.add(206.8, "A", history.Invoke, history.Release, nil)
	s.add(207.1, "A", history.Fail, history.Release, failure("lock is not held"))
	return s.events
}

// xact is gc-pause where the writes are in the lock's own transaction.
func xact() []history.Event {
	s := &story{}
	s.op(1.2, 1.7, "A", history.Acquire, nil)
	s.add(2.1, "A", history.Invoke, history.Write, value("first-of-A"))
	s.add(2.5, "A", history.OK, history.Write, nil)
	s.fault(3.1, "pause", "A")
	s.add(4.0, "A", history.Invoke, history.Write, value("late-of-A"))
	s.op(4.2, 203.4, "B", history.Acquire, nil)
	b := s.add(203.8, "B", history.Invoke, history.Write, value("first-of-B"))
	s.add(204.2, "B", history.OK, history.Write, nil)
	s.heal(204.6, "pause", "A")
	s.add(205.5, "A", history.Fail, history.Write, failure("terminating connection due to idle-in-transaction timeout (SQLSTATE 25P03)"))
	s.add(206.0, "B", history.Invoke, history.Release, nil)
	s.add(206.2, history.Resource, history.OK, history.Write, all(value("first-of-B"), by("B", b)))
	s.add(206.3, "B", history.OK, history.Release, nil)
	s.add(206.8, "A", history.Invoke, history.Release, nil)
	s.add(207.1, "A", history.Info, history.Release, failure("unexpected EOF"))
	return s.events
}

// control is the story in which nothing goes wrong.
func control() []history.Event {
	s := &story{}
	s.op(1.2, 1.7, "A", history.Acquire, all(token(7), lease(1000)))
	s.write(2.1, "A", "first-of-A", token(7))
	s.add(3.0, "B", history.Invoke, history.Acquire, nil)
	s.add(103.2, "B", history.Fail, history.Acquire, failure("lock is held by another"))
	s.op(103.6, 103.7, "A", history.Check, value(true))
	s.op(104.0, 104.3, "A", history.Renew, all(token(7), lease(1000)))
	s.op(105.0, 105.3, "A", history.Release, nil)
	s.op(106.0, 106.4, "B", history.Acquire, all(token(8), lease(1000)))
	s.write(107.0, "B", "first-of-B", token(8))
	s.op(108.0, 108.3, "B", history.Release, nil)
	return s.events
}

// long is gc-pause in the midst of a workload of 20 other clients and of the
// same ones.
func long() []history.Event {
	s := &story{}
	at := 0.0
	turn := func(n int) {
		for i := range n {
			p := fmt.Sprint(i % 20)
			s.op(at+0.1, at+0.2, p, history.Acquire, lease(200))
			s.op(at+0.3, at+0.4, p, history.Release, nil)
			at++
		}
	}
	turn(200)
	s.op(at+0.1, at+0.2, "A", history.Acquire, lease(200))
	s.op(at+0.3, at+0.4, "A", history.Release, nil)
	turn(300)
	for _, e := range gcPause(false, false)[1:] {
		e.Index = int64(len(s.events))
		e.Time += ms(at)
		if e.Op != nil {
			op := int64(-1)
			for i := range s.events { // the client's open write
				if s.events[i].Process == e.Client && s.events[i].F == history.Write && s.events[i].Type == history.Invoke {
					op = int64(i)
				}
			}
			e.Op = &op
		}
		s.events = append(s.events, e)
	}
	at += 250
	turn(1000)
	return s.events
}

// find returns the index of the nth (from 0) event of the kind.
func find(events []history.Event, process string, t history.Type, f string, nth int) int64 {
	for _, e := range events {
		if e.Process == process && e.Type == t && e.F == f {
			if nth == 0 {
				return e.Index
			}
			nth--
		}
	}
	panic("no such event in the story")
}

// doubleHold is the report on a story of gc-pause.
func doubleHold(events []history.Event, leased bool, tokens, fence checker.Verdict, lastAcquireOfA int) *checker.Report {
	a := find(events, "A", history.OK, history.Acquire, lastAcquireOfA)
	b := find(events, "B", history.OK, history.Acquire, 0)
	ra := find(events, "A", history.Invoke, history.Release, lastAcquireOfA)
	rb := find(events, "B", history.Invoke, history.Release, 0)
	at := func(i int64) int64 { return events[i].Time }
	holds := []checker.Hold{
		{Process: "A", Token: events[a].Token, Acquire: find(events, "A", history.Invoke, history.Acquire, lastAcquireOfA), From: at(a), To: at(ra), End: "release"},
		{Process: "B", Token: events[b].Token, Acquire: find(events, "B", history.Invoke, history.Acquire, 0), From: at(b), To: at(rb), End: "release"},
	}
	lease := checker.Property{Name: checker.Lease, Verdict: checker.NotApplicable, Why: "No grant states a lease."}
	why := "A and B both believed that they held \"k\" from 203.4 ms to 206.0 ms."
	if leased {
		lease.Verdict, lease.Why = checker.Held, "No lock was granted while another's lease stood."
		for i := range holds {
			holds[i].Expiry = at(holds[i].Acquire) + ms(200)
		}
		why += " The service did what it promised: A outlived its lease, which ended at 201.2 ms."
	}
	order := checker.Property{Name: checker.Token, Verdict: tokens, Why: "Grants carry no tokens."}
	if tokens == checker.Held {
		order.Why = "The tokens of 2 grants rise."
	}
	f := checker.Property{Name: checker.Fence, Verdict: fence, Why: "No write of an older grant was accepted after a newer grant's."}
	if fence == checker.Violated {
		f.Why = "The resource accepted A's write at 205.3 ms after B's at 204.0 ms, and B's grant is the newer one."
		f.Count = 1
		f.Witness = &checker.Witness{Why: f.Why, Key: "k", Holds: holds, Events: []int64{
			find(events, history.Resource, history.OK, history.Write, 1), find(events, history.Resource, history.OK, history.Write, 2)}}
		f.First = events[f.Witness.Events[1]].Time
	}
	return &checker.Report{
		Operations: 9, Grants: 2,
		Properties: []checker.Property{
			{Name: checker.Mutex, Verdict: checker.Violated, Why: why, Convention: "mutex/1", Count: 1,
				Overlap: time.Duration(at(rb) - at(b)), First: at(b),
				Witness: &checker.Witness{Why: why, Key: "k", Events: []int64{a, b, rb, ra}, Holds: holds},
				Second:  &checker.Opinion{Outcome: "agrees"}},
			lease, order, f,
		},
	}
}

func clean() *checker.Report {
	return &checker.Report{
		Operations: 9, Grants: 2,
		Properties: []checker.Property{
			{Name: checker.Mutex, Verdict: checker.Held, Why: "No two of 2 claims overlap."},
			{Name: checker.Lease, Verdict: checker.Held, Why: "No lock was granted while another's lease stood."},
			{Name: checker.Token, Verdict: checker.Held, Why: "The tokens of 2 grants rise."},
			{Name: checker.Fence, Verdict: checker.Held, Why: "No write of an older grant was accepted after a newer grant's."},
		},
	}
}

func run(backend, resource string, rep *checker.Report) *reports.Run {
	r := &reports.Run{
		Scenario: "gc-pause", Backend: backend, Resource: resource, Runtime: "local", TTL: 200 * time.Millisecond,
		Seed: 1, Repeat: 1, Violates: "mutex", Versions: map[string]string{backend: "7.0.15"},
		Dir: "lockcheck-runs/gc-pause-" + backend + "-1", Duration: 268 * time.Millisecond,
		Replay: "lockcheck reproduce gc-pause --backend " + backend + " --resource " + resource + " --ttl 200ms --seed 1",
	}
	r.SetReport(rep)
	r.Status = reports.Pass
	switch {
	case strings.Contains(r.Outline(), "violated"):
		r.Status = reports.Violation
	case rep.Grants == 0:
		r.Status, r.Reasons = reports.Inconclusive, []string{"the lock was never granted"}
	}
	return r
}
