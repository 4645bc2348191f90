package checker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

const ms = 1_000_000

// read builds a history from lines such as these; times are in milliseconds.
//
//	A acquire 0-10 ok ttl=1000 token=1 until=900 key=k
//	A release 50-? info
//	A acquire 50-60 info
//	A lost 300
//	kill 400 A
//	keep A
//	fault 10-20
//	resource 500 accept A token=1 op=3
//
// Operations are numbered from 0 in the order of the lines, which op= refers to.
func read(t testing.TB, text string) *history.History {
	t.Helper()
	b := newBuilder()
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		b.line(t, strings.Fields(line))
	}
	return b.history()
}

type builder struct {
	h      history.History
	names  map[string]int32
	keys   map[string]int32
	values map[string]int32
	ops    []history.Op // in the order of the lines
	acts   []act
}

// act is an event that is no operation.
type act struct {
	time int64
	set  func(index int32)
}

func newBuilder() *builder {
	b := &builder{names: map[string]int32{}, keys: map[string]int32{}, values: map[string]int32{}}
	b.h.Terms = []history.Term{{}}
	b.h.Errors = []string{""}
	b.name("")
	b.name("A")
	return b
}

func intern(m map[string]int32, list *[]string, s string) int32 {
	if i, ok := m[s]; ok {
		return i
	}
	i := int32(len(*list))
	m[s] = i
	*list = append(*list, s)
	return i
}

func (b *builder) name(s string) int32 { return intern(b.names, &b.h.Processes, s) }
func (b *builder) key(s string) int32  { return intern(b.keys, &b.h.Keys, s) }

var kinds = map[string]history.Kind{
	"acquire": history.KindAcquire, "renew": history.KindRenew, "release": history.KindRelease,
	"check": history.KindCheck, "write": history.KindWrite, "read": history.KindRead,
}

func (b *builder) line(t testing.TB, f []string) {
	t.Helper()
	num := func(s string) int64 {
		if s == "?" {
			return history.Never
		}
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("bad number %q in %v", s, f)
		}
		return int64(x * ms)
	}
	span := func(s string) (int64, int64) {
		from, to, _ := strings.Cut(s, "-")
		return num(from), num(to)
	}
	opt := map[string]string{"key": "k"}
	for _, s := range f {
		if k, v, ok := strings.Cut(s, "="); ok {
			opt[k] = v
		}
	}
	switch {
	case f[0] == "fault":
		from, to := span(f[1])
		b.event(from, history.Invoke, "partition", `{"on":["n1"]}`)
		b.event(to, history.Info, "partition", `{"on":["n1"]}`)
	case f[0] == "keep":
		b.act(0, history.Event{Process: history.Harness, Type: history.Info, F: history.Keep, Value: fmt.Appendf(nil, `{"on":[%q]}`, f[1])})
	case f[0] == "kill":
		at := num(f[1])
		v := fmt.Sprintf(`{"on":[%q]}`, f[2])
		b.event(at, history.Invoke, "kill", v)
		b.event(at+1, history.OK, "kill", v)
	case f[0] == "resource":
		a := history.Applied{Time: num(f[1]), Accepted: f[2] == "accept", Client: b.name(f[3]), Key: b.key(opt["key"]), Op: -1, Value: -1, Kind: history.KindWrite}
		if v, ok := opt["token"]; ok {
			a.Token, _ = strconv.ParseInt(v, 10, 64)
			a.HasToken = true
		}
		op := -1
		if v, ok := opt["op"]; ok {
			op, _ = strconv.Atoi(v)
		}
		b.acts = append(b.acts, act{a.Time, func(i int32) {
			a.Index = i
			if op >= 0 {
				a.Op = b.ops[op].Index
			}
			b.h.Applied = append(b.h.Applied, a)
		}})
	case f[1] == "lost":
		n := history.Notice{Time: num(f[2]), Process: b.name(f[0]), Key: b.key(opt["key"])}
		b.acts = append(b.acts, act{n.Time, func(i int32) {
			n.Index = i
			b.h.Notices = append(b.h.Notices, n)
		}})
	default:
		op := history.Op{Process: b.name(f[0]), Key: b.key(opt["key"]), Value: -1, RetIndex: -1, Kind: kinds[f[1]]}
		op.Call, op.Ret = span(f[2])
		switch f[3] {
		case "ok":
			op.Outcome = history.Done
		case "fail":
			op.Outcome = history.Failed
		default:
			if told := op.Ret; told < history.Never { // the client said so
				at := len(b.ops)
				b.acts = append(b.acts, act{told, func(i int32) { b.ops[at].RetIndex = i }})
			}
			op.Outcome, op.Ret = history.Unknown, history.Never
		}
		if v, ok := opt["token"]; ok {
			op.Token, _ = strconv.ParseInt(v, 10, 64)
			op.HasToken = true
		}
		if v, ok := opt["value"]; ok {
			op.Value = intern(b.values, &b.h.Values, v)
		}
		var term history.Term
		if v, ok := opt["ttl"]; ok {
			term.TTL = num(v)
		}
		if v, ok := opt["until"]; ok {
			term.Until = num(v)
		}
		if term != (history.Term{}) {
			op.Term = int32(len(b.h.Terms))
			b.h.Terms = append(b.h.Terms, term)
		}
		b.ops = append(b.ops, op)
	}
}

func (b *builder) event(at int64, t history.Type, f, value string) {
	b.act(at, history.Event{Process: history.Nemesis, Type: t, F: f, Value: []byte(value)})
}

func (b *builder) act(at int64, e history.Event) {
	e.Time = at
	b.acts = append(b.acts, act{at, func(i int32) {
		e.Index = int64(i)
		b.h.Other = append(b.h.Other, e)
	}})
}

// history numbers all events by time and completes the history.
func (b *builder) history() *history.History {
	var events []act
	for i := range b.ops {
		op := &b.ops[i]
		events = append(events, act{op.Call, func(n int32) { op.Index = n }})
		if op.Ret < history.Never {
			events = append(events, act{op.Ret, func(n int32) { op.RetIndex = n }})
		}
	}
	events = append(events, b.acts...)
	slices.SortStableFunc(events, func(x, y act) int { return int(min(max(x.time-y.time, -1), 1)) })
	for i, e := range events {
		e.set(int32(i))
	}
	b.h.Ops = slices.Clone(b.ops)
	slices.SortStableFunc(b.h.Ops, func(x, y history.Op) int { return int(min(max(x.Call-y.Call, -1), 1)) })
	b.h.Events = int64(len(events))
	return &b.h
}

// verdicts lists what is violated, without what follows from something else.
func caught(r *Report) []string {
	var names []string
	for _, p := range r.Properties {
		if p.Verdict == Violated && p.FollowsFrom == "" {
			names = append(names, p.Name)
		}
	}
	return names
}
