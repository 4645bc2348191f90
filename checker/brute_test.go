package checker

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

var fuzzed = flag.Int("histories", 100_000, "number of random histories for the cross-validation; also LOCKCHECK_HISTORIES")

// part is a hold as the definitions in docs/verdicts.md say, found without the
// checker's own code: by looking, for each grant, at all other events.
type part struct {
	a, b, c, u, q, ttl, token int64
	process                   int32
	hasToken, resumed         bool
}

func (p *part) until(x int64) int64 {
	if p.ttl == 0 {
		return min(p.c, p.u)
	}
	return min(p.c, max(p.q, x)+p.ttl)
}

// parts finds the holds of the only key of a history.
func parts(h *history.History, strict bool) []part {
	var ps []part
	for _, op := range h.Ops {
		if op.Kind != history.KindAcquire || op.Outcome != history.Done {
			continue
		}
		// News that end the hold, and renewals in between.
		end := int64(history.Never)
		cut := func(t int64) {
			if t >= op.Ret {
				end = min(end, t)
			}
		}
		for _, o := range h.Ops {
			if o.Process != op.Process {
				continue
			}
			switch o.Kind {
			case history.KindRelease:
				if o.Outcome != history.Failed || !strict {
					cut(o.Call)
				}
			case history.KindAcquire:
				if o.Outcome == history.Done && o.Call >= op.Ret {
					cut(o.Call)
				}
			case history.KindRenew:
				if o.Outcome == history.Failed {
					cut(o.Ret)
				}
			case history.KindCheck:
				if o.Outcome == history.Failed || o.Value >= 0 && h.Values[o.Value] == "false" {
					cut(o.Ret)
				}
			}
		}
		for _, n := range h.Notices {
			if n.Process == op.Process {
				cut(n.Time)
			}
		}
		p := part{a: op.Call, b: op.Ret, c: end, q: -1, ttl: h.Terms[op.Term].TTL, u: history.Never, token: op.Token, hasToken: op.HasToken, process: op.Process}
		if t := h.Terms[op.Term].Until; t > 0 {
			p.u = t
		}
		for _, o := range h.Ops {
			if o.Process != op.Process || o.Kind != history.KindRenew || o.Outcome != history.Done || o.Call < op.Ret || o.Call >= end {
				continue
			}
			ttl := h.Terms[o.Term].TTL
			if ttl == 0 {
				ttl = p.ttl
			}
			until := h.Terms[o.Term].Until
			if until == 0 {
				until = p.u
			}
			lapsed := p.ttl > 0 && o.Call > max(p.q, p.a)+p.ttl
			if !lapsed && p.u >= o.Ret {
				p.q, p.ttl, p.u = o.Call, ttl, until
				continue
			}
			if end < o.Ret {
				continue // it was told of the loss before it could resume
			}
			first := p
			first.c, first.u = min(first.c, o.Call), min(first.u, first.c, o.Ret)
			if !lapsed {
				first.q = o.Call
			}
			ps = append(ps, first)
			p.a, p.b, p.q, p.ttl, p.u, p.resumed = o.Call, o.Ret, o.Call, ttl, until, true
			if o.HasToken {
				p.token, p.hasToken = o.Token, true
			}
		}
		p.u = min(p.u, p.c)
		ps = append(ps, p)
	}
	return ps
}

// possible says whether a correct lock can have made these grants, by trying
// all orders of them.
func possible(ps []part, exclusive, tokens bool) bool {
	used := make([]bool, len(ps))
	var try func(n int, last, end, token int64) bool
	try = func(n int, last, end, token int64) bool {
		if n == len(ps) {
			return true
		}
		for i := range ps {
			p := &ps[i]
			x := max(last, p.a)
			if exclusive {
				x = max(x, end)
			}
			if used[i] || x > p.b || tokens && p.hasToken && p.token <= token {
				continue
			}
			e, tok := int64(-1), token
			if p.ttl > 0 || p.ttl < 0 {
				e = p.until(x)
			}
			if p.ttl < 0 { // a belief
				e = p.u
			}
			if p.hasToken {
				tok = p.token
			}
			used[i] = true
			ok := try(n+1, x, e, tok)
			used[i] = false
			if ok {
				return true
			}
		}
		return false
	}
	return try(0, -1, -1, minToken)
}

// bruteForce decides mutex, lease and token by definition.
func bruteForce(h *history.History, strict bool) map[string]Verdict {
	ps := parts(h, strict)
	v := map[string]Verdict{Mutex: Held, Lease: Held, Token: Held}
	leased, tokens, complete := false, 0, true
	var beliefs []part
	for i := range ps {
		leased = leased || ps[i].ttl > 0
		if ps[i].hasToken && !ps[i].resumed {
			tokens++
		}
		complete = complete && ps[i].hasToken && !ps[i].resumed
		if ps[i].u > ps[i].b {
			b := ps[i]
			b.ttl = -1
			beliefs = append(beliefs, b)
		}
	}
	for i := range ps {
		for j := range ps {
			if i != j && ps[i].b <= ps[j].b && ps[j].b < ps[i].u && ps[j].u > ps[j].b {
				v[Mutex] = Violated
			}
		}
	}
	if possible(beliefs, true, false) != (v[Mutex] == Held) {
		panic("theorem T1 does not hold")
	}
	if !leased {
		v[Lease] = NotApplicable
	} else if !possible(ps, true, false) {
		v[Lease] = Violated
	}
	switch {
	case tokens == 0:
		v[Token] = NotApplicable
	case !complete:
		delete(v, Token) // pairs only: not exact by definition
	case leased && v[Lease] == Held:
		if !possible(ps, true, true) {
			v[Token] = Violated
		}
	case !leased && v[Mutex] == Held && len(beliefs) == len(ps):
		for i := range ps {
			ps[i].ttl = -1
		}
		if !possible(ps, true, true) {
			v[Token] = Violated
		}
	default:
		if !possible(ps, false, true) {
			v[Token] = Violated
		}
	}
	if len(ps) == 0 {
		v = map[string]Verdict{Mutex: NotApplicable, Lease: NotApplicable, Token: NotApplicable}
	}
	return v
}

// random makes a small history of one lock. Most of what happens is plausible:
// processes acquire, renew and release in turn; answers are random.
func random(rng *rand.Rand) *history.History {
	h := &history.History{Keys: []string{"k"}, Values: []string{"true", "false"}, Errors: []string{""}, Terms: []history.Term{{}}}
	processes := 2 + rng.IntN(3)
	for i := range processes {
		h.Processes = append(h.Processes, string(rune('A'+i)))
	}
	ttl := int64(rng.IntN(2) * (2 + rng.IntN(14)))
	tokens := rng.IntN(2) == 0
	untils := rng.IntN(4) == 0
	wild := rng.IntN(4) == 0
	open := make([]int, processes) // index of the open operation + 1
	holds := make([]bool, processes)
	tok := int64(0)
	grants := 0
	n := 6 + rng.IntN(16)
	t := int64(0)
	for event := int32(0); event < int32(n); event++ {
		t += 1 + int64(rng.IntN(3))*int64(rng.IntN(3))
		p := int32(rng.IntN(processes))
		if open[p] == 0 {
			k := history.KindAcquire
			if holds[p] || wild && rng.IntN(3) == 0 {
				k = []history.Kind{history.KindRelease, history.KindRelease, history.KindRenew, history.KindCheck}[rng.IntN(4)]
			}
			if holds[p] && rng.IntN(12) == 0 {
				h.Notices = append(h.Notices, history.Notice{Time: t, Process: p, Index: event})
				holds[p] = false
				continue
			}
			h.Ops = append(h.Ops, history.Op{Call: t, Ret: history.Never, Process: p, Index: event, RetIndex: -1, Value: -1, Kind: k})
			open[p] = len(h.Ops)
			continue
		}
		op := &h.Ops[open[p]-1]
		if holds[p] && rng.IntN(12) == 0 {
			// News of a loss that overtakes the answer.
			h.Notices = append(h.Notices, history.Notice{Time: t, Process: p, Index: event})
			continue
		}
		open[p] = 0
		if rng.IntN(10) == 0 {
			holds[p] = holds[p] && op.Kind != history.KindRelease
			continue // unknown
		}
		op.Ret, op.RetIndex, op.Outcome = t, event, history.Done
		if rng.IntN(5) == 0 {
			op.Outcome = history.Failed
		}
		switch op.Kind {
		case history.KindAcquire:
			if op.Outcome != history.Done {
				continue
			}
			if grants++; grants > 6 {
				op.Outcome = history.Failed
				continue
			}
			holds[p] = true
			if tokens && rng.IntN(12) > 0 {
				tok += int64(rng.IntN(6)) - 1
				op.Token, op.HasToken = max(tok, 0), true
				if rng.IntN(8) > 0 {
					op.Token = int64(grants) // mostly in order
				}
			}
		case history.KindRelease:
			holds[p] = false
			continue
		case history.KindCheck:
			op.Value = int32(rng.IntN(2))
			continue
		default:
			if op.Outcome != history.Done {
				continue
			}
		}
		term := history.Term{TTL: ttl}
		if untils {
			term.Until = op.Call + 1 + int64(rng.IntN(12))
		}
		if term != (history.Term{}) {
			op.Term = int32(len(h.Terms))
			h.Terms = append(h.Terms, term)
		}
	}
	h.Events = int64(n)
	return h
}

// The exact checkers, porcupine and brute force by definition agree on random
// small histories.
func TestAgreement(t *testing.T) {
	n := *fuzzed
	if s, err := strconv.Atoi(os.Getenv("LOCKCHECK_HISTORIES")); err == nil {
		n = s
	}
	const streams = 8
	violated := make([]map[string]int, streams)
	t.Run("streams", func(t *testing.T) {
		for stream := range streams {
			violated[stream] = map[string]int{}
			t.Run(fmt.Sprint(stream), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(uint64(stream), 7))
				for i := range n / streams {
					h := random(rng)
					o := Options{NoSecondOpinion: true}
					if i%5 == 0 {
						o.Convention = FailedIgnored
					}
					agree(t, h, o, i%3 == 0, violated[stream])
					if t.Failed() {
						return
					}
				}
			})
		}
	})
	sum := map[string]int{}
	for _, m := range violated {
		for k, c := range m {
			sum[k] += c
		}
	}
	for _, name := range []string{Mutex, Lease, Token} {
		for _, v := range []Verdict{Held, Violated} {
			if c := sum[name+string(v)]; c < n/50 {
				t.Errorf("%s was %s in only %d of %d histories: the comparison means little", name, v, c, n)
			}
		}
	}
	t.Log(sum)
}

func agree(t *testing.T, h *history.History, o Options, ask bool, count map[string]int) {
	t.Helper()
	want := bruteForce(h, o.strict())
	cs := thorough(h, o)
	js := cs.judge()
	for _, p := range []Property{cs.mutex(js), cs.lease(js), cs.token(js)} {
		count[p.Name+string(p.Verdict)]++
		w, exact := want[p.Name]
		if exact && p.Verdict != w {
			t.Errorf("%s is %s (%s), by definition it is %s\n%s", p.Name, p.Verdict, p.Why, w, dump(h))
			return
		}
		if p.Verdict == Violated && !exact {
			continue
		}
		if ask {
			cs.second(&p, js)
			if p.Second != nil && p.Second.Outcome != Agrees {
				t.Errorf("%s is %s (%s), porcupine %s: %s\n%s", p.Name, p.Verdict, p.Why, p.Second.Outcome, p.Second.Detail, dump(h))
				return
			}
		}
		if p.Verdict == Violated {
			if err := minimal(cs, js, p); err != "" {
				t.Errorf("%s: %s: %s\n%s", p.Name, p.Why, err, dump(h))
				return
			}
		}
	}
}

// minimal says what is wrong with a witness.
func minimal(cs *claims, js []judged, p Property) string {
	switch {
	case p.Witness == nil:
		return "no witness"
	case len(p.Witness.Holds) != 2:
		return fmt.Sprintf("the witness has %d holds", len(p.Witness.Holds))
	case !slices.IsSorted(p.Witness.Events):
		return "the witness's events are out of order"
	case strings.Contains(p.Why, "%!"):
		return "the reason is not formatted"
	}
	if p.Name == Mutex {
		a, b := p.Witness.Holds[0], p.Witness.Holds[1]
		if a.From > b.From || b.From >= a.To || a.Process == b.Process {
			return "the two holds do not overlap"
		}
	}
	return ""
}

// What does not matter must not change a verdict.
func TestMetamorphic(t *testing.T) {
	verdicts := func(h *history.History) (s []Verdict) {
		cs := thorough(h, Options{})
		js := cs.judge()
		for _, p := range []Property{cs.mutex(js), cs.lease(js), cs.token(js), cs.fence(js)} {
			s = append(s, p.Verdict)
		}
		return s
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for range 20_000 {
		h := random(rng)
		want := verdicts(h)
		for name, change := range map[string]func(*history.History){
			"shift all times":                       shift,
			"rename processes":                      func(h *history.History) { rename(h, rng) },
			"add an unrelated key":                  func(h *history.History) { unrelated(h) },
			"drop a never-answered acquire":         dropUnknown,
			"add an acquire that is never heard of": addUnknown,
		} {
			g := clone(h)
			change(g)
			if got := verdicts(g); !slices.Equal(got, want) {
				t.Fatalf("%s: %v became %v\n%s\n%s", name, want, got, dump(h), dump(g))
			}
		}
	}
}

func clone(h *history.History) *history.History {
	g := *h
	g.Ops, g.Notices, g.Terms = slices.Clone(h.Ops), slices.Clone(h.Notices), slices.Clone(h.Terms)
	g.Processes, g.Keys = slices.Clone(h.Processes), slices.Clone(h.Keys)
	return &g
}

func shift(h *history.History) {
	const by = 12345
	for i := range h.Ops {
		h.Ops[i].Call += by
		if h.Ops[i].Ret < history.Never {
			h.Ops[i].Ret += by
		}
	}
	for i := range h.Notices {
		h.Notices[i].Time += by
	}
	for i := range h.Terms {
		if h.Terms[i].Until > 0 {
			h.Terms[i].Until += by
		}
	}
}

func rename(h *history.History, rng *rand.Rand) {
	perm := rng.Perm(len(h.Processes))
	names := make([]string, len(perm))
	for i, p := range perm {
		names[p] = "p" + h.Processes[i]
	}
	h.Processes = names
	for i := range h.Ops {
		h.Ops[i].Process = int32(perm[h.Ops[i].Process])
	}
	for i := range h.Notices {
		h.Notices[i].Process = int32(perm[h.Notices[i].Process])
	}
}

// unrelated adds a process that takes and frees another lock.
func unrelated(h *history.History) {
	h.Keys = append(h.Keys, "other")
	h.Processes = append(h.Processes, "Z")
	k, p := int32(len(h.Keys)-1), int32(len(h.Processes)-1)
	term, at := int32(0), int64(1)
	for i := range h.Ops { // as the others do, so that what applies does not change
		if o := &h.Ops[i]; o.Kind == history.KindAcquire && o.Outcome == history.Done {
			term, at = o.Term, o.Call
			h.Ops = slices.Insert(h.Ops, i,
				history.Op{Call: at, Ret: at + 1, Process: p, Key: k, RetIndex: -1, Value: -1, Kind: history.KindAcquire, Outcome: history.Done, Term: term, HasToken: o.HasToken},
				history.Op{Call: at + 2, Ret: at + 3, Process: p, Key: k, RetIndex: -1, Value: -1, Kind: history.KindRelease, Outcome: history.Done})
			break
		}
	}
	slices.SortStableFunc(h.Ops, func(x, y history.Op) int { return cmp.Compare(x.Call, y.Call) })
}

func dropUnknown(h *history.History) {
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Kind == history.KindAcquire && o.Outcome == history.Unknown {
			h.Ops = slices.Delete(h.Ops, i, i+1)
			return
		}
	}
}

func addUnknown(h *history.History) {
	h.Processes = append(h.Processes, "Z")
	op := history.Op{Call: 0, Ret: history.Never, Process: int32(len(h.Processes) - 1), RetIndex: -1, Value: -1, Kind: history.KindAcquire}
	h.Ops = slices.Insert(h.Ops, 0, op)
}
