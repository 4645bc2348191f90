package page

import (
	"encoding/json"
	"slices"
	"sort"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// hold is one grant as the page draws it: what the client believed over what
// the service stood for. It follows the rules of docs/verdicts.md for claims.
type hold struct {
	process, key int32
	acquire      int32 // Index of the acquire's invocation
	asked        int64 // the acquire was invoked
	confirmed    int64 // its ok was read: the client believes from here on
	believed     int64 // end of the belief; the end of the history if it is open
	from         int64 // earliest time of the grant, for a correct service
	until        int64 // end for the service: release, notice or expiry
	expiry       int64 // earliest end of the lease, 0 without one
	token        int64
	hasToken     bool
	resumed      bool // it goes on after its lease could have ended: not a grant of its own
	vague        bool // without a lease: the service let it go at some time before until
	end          ending

	ttl   int64
	renew int64 // invocation of the last confirmed renewal, -1 for none
	news  int64 // release invoked, or news of the loss: end for client and service
}

// ending says why a belief ended.
type ending uint8

const (
	endOfHistory ending = iota
	byRelease
	byFailedRelease
	byNotice
	byFailedRenewal
	byCheck
	byAgain
	byRenewal
	byDeadline
	byDeath
)

var endings = [...]string{
	"still open when the history ends", "release", "failed release", "told that the lock is lost", "failed renewal",
	"a check said no", "acquired again", "renewed after its lease could have ended", "its own deadline", "the client was ended",
}

// slot is a lock as one client has it.
type slot struct{ process, key int32 }

// holdsOf reads the grants out of a history, ordered by the time at which they
// were confirmed. With exclusive, at most one of a key is right at a time, so
// that a grant did not begin before the end of the one before.
func holdsOf(h *history.History, exclusive bool) []hold {
	x := extraction{h: h, open: map[slot]int{}, no: -1, last: lastTime(h)}
	if i := slices.Index(h.Values, "false"); i >= 0 {
		x.no = int32(i)
	}
	notices := h.Notices
	for i := range h.Ops {
		op := &h.Ops[i]
		for len(notices) > 0 && notices[0].Time <= op.Call {
			x.lose(slot{notices[0].Process, notices[0].Key}, notices[0].Time, byNotice)
			notices = notices[1:]
		}
		x.op(op)
	}
	for _, n := range notices {
		x.lose(slot{n.Process, n.Key}, n.Time, byNotice)
	}
	x.deaths()
	sort.SliceStable(x.holds, func(i, j int) bool { return x.holds[i].confirmed < x.holds[j].confirmed })
	x.grants(exclusive)
	return x.holds
}

func lastTime(h *history.History) int64 {
	last := int64(0)
	for i := range h.Ops {
		last = max(last, h.Ops[i].Call)
		if h.Ops[i].Ret < history.Never {
			last = max(last, h.Ops[i].Ret)
		}
	}
	if n := len(h.Applied); n > 0 {
		last = max(last, h.Applied[n-1].Time)
	}
	if n := len(h.Other); n > 0 {
		last = max(last, h.Other[n-1].Time)
	}
	if n := len(h.Notices); n > 0 {
		last = max(last, h.Notices[n-1].Time)
	}
	return last
}

type extraction struct {
	h     *history.History
	holds []hold
	open  map[slot]int
	no    int32 // index in Values of "false", -1
	last  int64
}

func (x *extraction) op(op *history.Op) {
	s := slot{op.Process, op.Key}
	switch op.Kind {
	case history.KindAcquire:
		if op.Outcome != history.Done {
			return
		}
		x.lose(s, op.Call, byAgain)
		x.open[s] = len(x.holds)
		x.holds = append(x.holds, x.granted(op))
	case history.KindRenew:
		x.renew(s, op)
	case history.KindRelease:
		if op.Outcome == history.Failed {
			x.lose(s, op.Call, byFailedRelease)
		} else {
			x.lose(s, op.Call, byRelease)
		}
	case history.KindCheck:
		if op.Outcome == history.Failed || op.Outcome == history.Done && op.Value >= 0 && op.Value == x.no {
			x.lose(s, op.Ret, byCheck)
		}
	}
}

func (x *extraction) granted(op *history.Op) hold {
	term := x.h.Terms[op.Term]
	h := hold{
		process: op.Process, key: op.Key, acquire: op.Index,
		asked: op.Call, confirmed: op.Ret, believed: history.Never, news: history.Never,
		token: op.Token, hasToken: op.HasToken, ttl: term.TTL, renew: -1,
	}
	if term.Until > 0 && !x.h.Timeless {
		h.believed, h.end = term.Until, byDeadline
	}
	return h
}

func (x *extraction) renew(s slot, op *history.Op) {
	i, held := x.open[s]
	if !held {
		return
	}
	h := &x.holds[i]
	if op.Outcome == history.Failed {
		x.lose(s, op.Ret, byFailedRenewal)
		return
	}
	if op.Outcome != history.Done {
		return
	}
	next := x.granted(op)
	if next.ttl == 0 {
		next.ttl = h.ttl
	}
	if h.end == byDeadline && next.end != byDeadline {
		next.believed, next.end = h.believed, byDeadline
	}
	lapsed := h.ttl > 0 && op.Call > max(h.renew, h.asked)+h.ttl
	if lapsed || h.believed < op.Ret {
		// The hold had ended: what the renewal confirmed is another one.
		if !op.HasToken {
			next.token, next.hasToken = h.token, h.hasToken
		}
		next.renew, next.resumed = op.Call, true
		x.lose(s, op.Ret, byRenewal)
		x.open[s] = len(x.holds)
		x.holds = append(x.holds, next)
		return
	}
	h.renew, h.ttl, h.believed, h.end = op.Call, next.ttl, next.believed, next.end
	if op.HasToken {
		h.token, h.hasToken = op.Token, true
	}
}

// lose ends what a client has of a lock at t, unless it ended before.
func (x *extraction) lose(s slot, t int64, why ending) {
	i, held := x.open[s]
	if !held {
		return
	}
	h := &x.holds[i]
	if t < h.confirmed && why != byAgain && why != byRenewal {
		return // the news was of an earlier hold
	}
	delete(x.open, s)
	h.news = t
	if t <= h.believed {
		h.believed, h.end = t, why
	}
}

// deaths ends the beliefs of clients that were killed or closed.
func (x *extraction) deaths() {
	begun := int64(-1)
	for i := range x.h.Other {
		e := &x.h.Other[i]
		at := e.Time
		switch {
		case e.Process == history.Harness && e.F == history.Close:
		case e.Process == history.Nemesis && e.F == "kill" && e.Type == history.Invoke:
			begun = e.Time
			continue
		case e.Process == history.Nemesis && e.F == "kill" && e.Type == history.OK:
			// It may have died as soon as the kill began.
			if begun >= 0 {
				at = begun
			}
		default:
			continue
		}
		for _, name := range e.Targets() {
			p := int32(slices.Index(x.h.Processes, name))
			for j := range x.holds {
				if h := &x.holds[j]; h.process == p && h.confirmed <= at && h.believed > at {
					h.believed, h.end = at, byDeath
				}
			}
		}
	}
}

// grants finds out for how long the service stood for each hold.
func (x *extraction) grants(exclusive bool) {
	ends := map[int32]int64{} // of what was granted so far, by key
	last := map[int32]int{}   // the hold that ends then
	for i := range x.holds {
		h := &x.holds[i]
		h.from = h.asked
		if exclusive {
			h.from = max(h.asked, min(ends[h.key], h.confirmed))
			if j, found := last[h.key]; found && x.holds[j].ttl == 0 && x.holds[j].until > h.confirmed {
				// The service let go of it at some time, which only it knows.
				x.holds[j].until, x.holds[j].vague = h.confirmed, true
			}
		}
		h.until = min(h.news, x.last)
		if h.ttl > 0 {
			h.expiry = max(h.renew, h.from) + h.ttl
			h.until = min(h.news, h.expiry)
		}
		if h.until > ends[h.key] {
			ends[h.key], last[h.key] = h.until, i
		}
		h.believed = min(h.believed, max(x.last, h.confirmed))
	}
}

// overlap is a time during which two clients believed at once that they held.
type overlap struct {
	key      int32
	from, to int64
	a, b     int32 // indexes of the two holds
}

// overlapsOf finds, for each grant that was confirmed while another client
// believed that it held, for how long both did.
func overlapsOf(holds []hold) []overlap {
	var all []overlap
	latest := map[int32]int32{} // by key, the hold whose belief lasts longest
	for i := range holds {
		h := &holds[i]
		if h.believed <= h.confirmed {
			continue
		}
		j, found := latest[h.key]
		if found && h.confirmed < holds[j].believed && holds[j].process != h.process {
			all = append(all, overlap{h.key, h.confirmed, min(h.believed, holds[j].believed), j, int32(i)})
		}
		if !found || h.believed > holds[j].believed {
			latest[h.key] = int32(i)
		}
	}
	return all
}

// staleWrites returns the indexes in Applied of writes that were accepted although
// one of a newer grant had been: a write of a lower token, or of a grant confirmed
// before the newer one was even asked for.
func staleWrites(h *history.History, holds []hold) []int32 {
	type newest struct {
		token int64
		has   bool
		asked int64
	}
	byClient := map[slot][]int32{}
	for i := range holds {
		s := slot{holds[i].process, holds[i].key}
		byClient[s] = append(byClient[s], int32(i))
	}
	calls := map[int32]int64{}
	for i := range h.Ops {
		if h.Ops[i].Kind == history.KindWrite {
			calls[h.Ops[i].Index] = h.Ops[i].Call
		}
	}
	tops := map[int32]*newest{}
	var stale []int32
	for i := range h.Applied {
		a := &h.Applied[i]
		if a.Kind != history.KindWrite || !a.Accepted {
			continue
		}
		top := tops[a.Key]
		if top == nil {
			top = &newest{asked: -1}
			tops[a.Key] = top
		}
		if a.HasToken {
			if top.has && a.Token < top.token {
				stale = append(stale, int32(i))
			} else {
				top.token, top.has = a.Token, true
			}
			continue
		}
		call, known := calls[a.Op]
		if !known {
			continue
		}
		mine := byClient[slot{a.Client, a.Key}]
		n := sort.Search(len(mine), func(n int) bool { return holds[mine[n]].confirmed > call })
		if n == 0 {
			continue
		}
		if g := &holds[mine[n-1]]; g.confirmed < top.asked {
			stale = append(stale, int32(i))
		} else {
			top.asked = max(top.asked, g.asked)
		}
	}
	return stale
}

// fault is a fault while it was in effect.
type fault struct {
	Kind   string   `json:"kind"`
	On     []string `json:"on"`
	From   int64    `json:"from"` // in effect
	To     int64    `json:"to"`   // healed, or the end of the history
	Open   bool     `json:"open,omitempty"`
	Failed string   `json:"failed,omitempty"` // it did not come into effect, and why
	Proof  string   `json:"proof,omitempty"`
}

// faultsOf pairs the events of the nemesis.
func faultsOf(h *history.History) []fault {
	last := lastTime(h)
	var all []fault
	same := func(f *fault, e *history.Event, on []string) bool {
		return f.Open && f.Kind == e.F && (len(on) == 0 || slices.Equal(f.On, on))
	}
	for i := range h.Other {
		e := &h.Other[i]
		if e.Process != history.Nemesis || e.F == history.Heal {
			continue
		}
		on := e.Targets()
		switch e.Type {
		case history.OK:
			var v struct {
				Proof any `json:"proof"`
			}
			_ = json.Unmarshal(e.Value, &v) // a proof is shown if there is one
			f := fault{Kind: e.F, On: on, From: e.Time, To: last, Open: true}
			if v.Proof != nil {
				b, _ := json.Marshal(v.Proof) // it was just read from JSON
				f.Proof = cut(string(b))
			}
			all = append(all, f)
		case history.Fail:
			all = append(all, fault{Kind: e.F, On: on, From: e.Time, To: e.Time, Failed: cut(e.Error)})
		case history.Info:
			for j := len(all) - 1; j >= 0; j-- {
				if f := &all[j]; same(f, e, on) {
					f.To, f.Open = e.Time, false
					break
				}
			}
		}
	}
	return all
}

// jump is a place that the page leads to: something that is violated.
type jump struct {
	Property string `json:"property"`
	At       int64  `json:"at"`
	To       int64  `json:"to"`
	Text     string `json:"text"`
}

// firsts are the first violations of the properties that are not drawn one by
// one.
func firsts(properties []*checker.Property) []jump {
	all := []jump{} // a list for the page's script, also if empty
	for _, p := range properties {
		if p.Verdict != checker.Violated || p.Name == checker.Mutex || p.Name == checker.Fence {
			continue
		}
		all = append(all, jump{p.Name, p.First, p.First, cut(p.Why)})
	}
	return all
}
