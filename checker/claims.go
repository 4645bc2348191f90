package checker

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lockcheck/lockcheck/history"
)

// reason says how a client's hold ended.
type reason uint8

const (
	stillOpen reason = iota
	byRelease
	byFailedRelease
	byNotice
	byFailedRenewal
	byCheck
	byAgain
	byRenewal // the lease had lapsed before a renewal was confirmed: the hold goes on as another
)

var reasons = [...]string{"end of history", "release", "failed release", "loss notice", "failed renewal", "check", "acquired again", "renewed after its lease had ended"}

// hold is one grant, or the part of it that follows a renewal after the lease
// had lapsed. Times are those of the history.
type hold struct {
	a, b     int64 // the request was invoked, its ok was read
	c        int64 // release invoked, or news of the loss; history.Never if open
	u        int64 // end of the client's belief: c, or its own deadline or death
	q        int64 // invocation of the last confirmed renewal, -1 if there is none
	tried    int64 // invocation of the last renewal, whatever came out, -1 if there is none
	ttl      int64 // guaranteed lease, drift taken off; 0 for none
	token    int64
	grant    int32 // index of the acquire, or of the renewal, in Ops
	release  int32 // index of the release in Ops, -1 if there is none
	event    int32 // Index of the event that ended it, -1 if there is none
	process  int32
	end      reason
	early    endEarly // why u is before c
	hasToken bool     // it has a token
	resumed  bool     // it goes on after a lapse: not a grant of its own
}

// endEarly says what ended a belief before the service could know.
type endEarly uint8

const (
	notEarly endEarly = iota
	byDeadline
	byDeath
)

// believed says whether the client ever believed that it held.
func (h *hold) believed() bool { return h.u > h.b }

// expiry is the earliest time at which a hold granted at x could end by itself.
func (h *hold) expiry(x int64) int64 {
	if h.ttl == 0 {
		return history.Never
	}
	return max(h.q, x) + h.ttl
}

// until is the earliest end, for the service, of a hold granted at x. Without a
// lease only the client knows: its own deadline and its death count as well.
func (h *hold) until(x int64) int64 {
	if h.ttl == 0 {
		return min(h.c, h.u)
	}
	return min(h.c, h.expiry(x))
}

// key is all that happened to one lock.
type key struct {
	id        int32
	holds     []hold  // ordered by b
	stray     []int32 // indexes in Ops of releases by processes with no hold open
	misses    []int32 // indexes in Ops of acquires that were not granted
	ghosts    []ghost
	confirmed []int32 // renewals confirmed with no hold open
	denied    []int32 // failed releases that the convention ignores
	leases    bool    // some hold has a lease
	tokens    int     // number of holds with a token
}

// ghost is an acquire that was not granted, as far as its caller knows, and a
// release by the same process that was confirmed.
type ghost struct{ acquire, release int32 }

// slot is what one process has to do with one lock.
type slot struct {
	open int32 // index in holds, -1
	done int32 // index in holds of the one that an answer ended last, -1
	miss int32 // index in Ops of its last acquire, if that was not granted; else -1
}

// slots finds the slot of a process and a key.
type slots struct {
	keys  int
	dense []slot
	rest  map[uint64]*slot
}

// maxDense bounds the memory of a dense table of slots.
const maxDense = 1 << 22

func newSlots(processes, keys int) *slots {
	s := &slots{keys: keys}
	if n := processes * keys; n <= maxDense {
		s.dense = make([]slot, n)
		for i := range s.dense {
			s.dense[i] = slot{-1, -1, -1}
		}
	} else {
		s.rest = map[uint64]*slot{}
	}
	return s
}

func (s *slots) at(process, key int32) *slot {
	if s.dense != nil {
		return &s.dense[int(process)*s.keys+int(key)]
	}
	k := uint64(uint32(process))<<32 | uint64(uint32(key))
	t := s.rest[k]
	if t == nil {
		t = &slot{-1, -1, -1}
		s.rest[k] = t
	}
	return t
}

// claims are the holds of a history, by key.
type claims struct {
	h       *history.History
	o       Options
	seen    *census
	suspect []bool // by key: its holds are needed
	keys    []key
	grants  int
	end     int64 // time of the last event
	faults  []fault
	keepers []int32        // processes that renew by themselves
	times   func() []int64 // by Index of an event: of the last event of an operation until then
	partial bool           // the holds of some keys are those at the beginning
}

// fault is a time during which the nemesis was at work on something else than
// clients.
type fault struct{ from, to int64 }

// thorough are the claims of a history with the holds of all keys.
func thorough(h *history.History, o Options) *claims {
	cs := &claims{h: h, o: o, suspect: make([]bool, len(h.Keys))}
	for i := range cs.suspect {
		cs.suspect[i] = true
	}
	cs.extract()
	return cs
}

// extract reads the holds of suspect keys out of a history in one pass.
func (cs *claims) extract() {
	h := cs.h
	cs.keys, cs.grants, cs.faults, cs.keepers = make([]key, len(h.Keys)), 0, nil, nil
	for i := range cs.keys {
		cs.keys[i].id = int32(i)
	}
	if !slices.Contains(cs.suspect, true) {
		return
	}
	grants := make([]int, len(h.Keys))
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.KindAcquire && op.Outcome == history.Done {
			grants[op.Key]++
		}
	}
	for i := range cs.keys {
		if cs.suspect[i] {
			cs.keys[i].holds = make([]hold, 0, grants[i])
		}
	}
	cs.times = sync.OnceValue(func() []int64 { return times(h) })
	x := extraction{claims: cs, slots: newSlots(len(h.Processes), len(h.Keys)), no: -1}
	if i := slices.Index(h.Values, "false"); i >= 0 {
		x.no = int32(i)
	}
	x.notices = h.Notices
	for i := range h.Ops {
		op := &h.Ops[i]
		for len(x.notices) > 0 && x.notices[0].Time <= op.Call {
			x.notice(&x.notices[0])
			x.notices = x.notices[1:]
		}
		cs.end = max(cs.end, op.Call)
		if op.Ret < history.Never {
			cs.end = max(cs.end, op.Ret)
		}
		if cs.suspect[op.Key] {
			x.op(int32(i), op)
		}
	}
	for i := range x.notices {
		x.notice(&x.notices[i])
	}
	for i := range h.Applied {
		cs.end = max(cs.end, h.Applied[i].Time)
	}
	cs.nemesis()
	cs.findKeepers()
	for i := range cs.keys {
		k := &cs.keys[i]
		sortHolds(k.holds)
		for j := range k.holds {
			if !k.holds[j].resumed {
				cs.grants++
			}
		}
	}
}

// sortHolds orders holds by the time at which they were confirmed. They come by
// request, almost in order, on which insertion is linear; it gives up for a
// general sort when they do not.
func sortHolds(hs []hold) {
	type place struct {
		b  int64
		at int32
	}
	places := make([]place, len(hs))
	for i := range hs {
		places[i] = place{hs[i].b, int32(i)}
	}
	steps := 64 * (len(hs) + 1)
	for i := 1; i < len(places); i++ {
		p, j := places[i], i
		for ; j > 0 && places[j-1].b > p.b; j-- {
			places[j] = places[j-1]
		}
		places[j] = p
		if steps -= i - j; steps < 0 {
			slices.SortFunc(places, func(x, y place) int { return cmp.Or(cmp.Compare(x.b, y.b), cmp.Compare(x.at, y.at)) })
			break
		}
	}
	for i := range places {
		// Follow the cycle of moves that begins here.
		if places[i].at == int32(i) {
			continue
		}
		first, j := hs[i], i
		for {
			from := int(places[j].at)
			places[j].at = int32(j)
			if from == i {
				hs[j] = first
				break
			}
			hs[j] = hs[from]
			j = from
		}
	}
}

type extraction struct {
	*claims
	slots   *slots
	notices []history.Notice // those to come
	no      int32            // index in Values of "false", -1
}

// op takes one operation. Operations come in the order of their calls, and
// those of one process one after another.
func (x *extraction) op(i int32, op *history.Op) {
	switch op.Kind {
	case history.KindAcquire:
		x.acquire(i, op)
	case history.KindRenew:
		x.renew(i, op)
	case history.KindRelease:
		x.release(i, op)
	case history.KindCheck:
		// An answer that the lock is not held any more is news of the loss.
		if op.Outcome == history.Failed || op.Outcome == history.Done && op.Value >= 0 && op.Value == x.no {
			x.lose(op.Process, op.Key, op.Ret, op.RetIndex, byCheck)
		}
	}
}

func (x *extraction) acquire(i int32, op *history.Op) {
	k, s := &x.keys[op.Key], x.slots.at(op.Process, op.Key)
	if op.Outcome != history.Done {
		k.misses = append(k.misses, i)
		s.miss = i
		return
	}
	s.miss = -1
	if s.open >= 0 {
		// It was granted although it held: by asking it showed that it no
		// longer relied on the first grant.
		k.holds[s.open].close(op.Call, op.Index, byAgain)
	}
	s.open = int32(len(k.holds))
	k.holds = append(k.holds, x.granted(i, op))
	if op.HasToken {
		k.tokens++
	}
	k.leases = k.leases || k.holds[s.open].ttl > 0
}

// granted is the hold that a confirmed acquire or renewal begins.
func (x *extraction) granted(i int32, op *history.Op) hold {
	h := hold{
		a: op.Call, b: op.Ret, c: history.Never, u: history.Never, q: -1, tried: -1,
		token: op.Token, hasToken: op.HasToken, grant: i, release: -1, event: -1, process: op.Process,
	}
	h.ttl = x.ttl(op)
	if t := x.h.Terms[op.Term].Until; t > 0 && !x.h.Timeless {
		h.u, h.early = t, byDeadline
	}
	return h
}

// close ends a hold at t, unless it ended before.
func (h *hold) close(t int64, event int32, why reason) {
	if t < h.c {
		h.c, h.event, h.end = t, event, why
	}
	if t <= h.u {
		h.u, h.early = t, notEarly
	}
}

func (x *extraction) renew(i int32, op *history.Op) {
	k, s := &x.keys[op.Key], x.slots.at(op.Process, op.Key)
	if s.open < 0 {
		if op.Outcome == history.Done {
			k.confirmed = append(k.confirmed, i)
		}
		return
	}
	h := &k.holds[s.open]
	h.tried = op.Call
	switch op.Outcome {
	case history.Failed:
		x.lose(op.Process, op.Key, op.Ret, op.RetIndex, byFailedRenewal)
	case history.Done:
		next := x.granted(i, op)
		if op.Term == 0 || x.h.Terms[op.Term].TTL == 0 {
			next.ttl = h.ttl
		}
		if h.early == byDeadline && next.early == notEarly {
			next.u, next.early = h.u, byDeadline // the deadline stands
		}
		lapsed := h.ttl > 0 && op.Call > h.expiry(h.a)
		if lapsed || h.u < op.Ret {
			if x.overtaken(op) {
				k.confirmed = append(k.confirmed, i)
				return
			}
			if !op.HasToken {
				next.token, next.hasToken = h.token, h.hasToken
			}
			next.resumed, next.q, next.tried = true, op.Call, op.Call
			h.close(op.Ret, op.RetIndex, byRenewal)
			// The lease that follows may count from any time since the renewal was asked
			// for: this one must not keep it from that.
			h.c = min(h.c, op.Call)
			if !lapsed {
				h.q = op.Call
			}
			s.done, s.open = s.open, int32(len(k.holds))
			k.holds = append(k.holds, next)
			return
		}
		h.q, h.ttl, h.u, h.early = op.Call, next.ttl, next.u, next.early
	}
}

// overtaken says whether news of a loss comes before an answer does.
func (x *extraction) overtaken(op *history.Op) bool {
	for i := range x.notices {
		switch n := &x.notices[i]; {
		case n.Time >= op.Ret:
			return false
		case n.Process == op.Process && n.Key == op.Key:
			return true
		}
	}
	return false
}

func (x *extraction) release(i int32, op *history.Op) {
	k, s := &x.keys[op.Key], x.slots.at(op.Process, op.Key)
	if s.open < 0 {
		if s.miss >= 0 && op.Outcome == history.Done {
			k.ghosts = append(k.ghosts, ghost{s.miss, i})
			s.miss = -1
			return
		}
		k.stray = append(k.stray, i)
		return
	}
	if op.Outcome == history.Failed && x.o.strict() {
		k.denied = append(k.denied, i)
		return
	}
	h := &k.holds[s.open]
	h.release = i
	why := byRelease
	if op.Outcome == history.Failed {
		why = byFailedRelease
	}
	h.close(op.Call, op.Index, why)
	s.open = -1
}

// lose ends what a process holds because it was told so at t. That may be
// before the answer that ended the last hold, because what an answer does is done
// in the order of calls: the first news counts.
func (x *extraction) lose(process, key int32, t int64, event int32, why reason) {
	k, s := &x.keys[key], x.slots.at(process, key)
	if s.done >= 0 {
		if h := &k.holds[s.done]; h.b <= t {
			h.close(t, event, why)
		}
	}
	if s.open < 0 {
		return
	}
	h := &k.holds[s.open]
	if t < h.b {
		return // the news was of an earlier hold
	}
	h.close(t, event, why)
	s.done, s.open = s.open, -1
}

func (x *extraction) notice(n *history.Notice) {
	x.end = max(x.end, n.Time)
	x.lose(n.Process, n.Key, n.Time, n.Index, byNotice)
}

// nemesis reads from the fault events who died when, and when faults were in
// effect. A client that is dead believes nothing; its lease stands.
func (cs *claims) nemesis() {
	type open struct {
		f       string
		from    int64
		clients bool
	}
	var opened []open
	for i := range cs.h.Other {
		e := &cs.h.Other[i]
		cs.end = max(cs.end, e.Time)
		if e.Process == history.Harness && e.F == history.Close {
			cs.died(e, e.Time)
		}
		if e.Process != history.Nemesis {
			continue
		}
		switch e.Type {
		case history.Invoke:
			opened = append(opened, open{e.F, e.Time, cs.onClients(e)})
		case history.Info, history.Fail: // healed, or never in effect
			for j := len(opened) - 1; j >= 0; j-- {
				if opened[j].f == e.F {
					if !opened[j].clients {
						cs.faults = append(cs.faults, fault{opened[j].from, e.Time})
					}
					opened = slices.Delete(opened, j, j+1)
					break
				}
			}
		case history.OK:
			if e.F == "kill" {
				// Never widen a claim: it may have died as soon as the kill began.
				from := e.Time
				for _, o := range opened {
					if o.f == e.F {
						from = o.from
					}
				}
				cs.died(e, from)
			}
		}
	}
	for _, f := range opened {
		if !f.clients {
			cs.faults = append(cs.faults, fault{f.from, history.Never})
		}
	}
}

// onClients says whether a fault's event names nothing but clients.
func (cs *claims) onClients(e *history.Event) bool {
	on := e.Targets()
	for _, name := range on {
		if !slices.Contains(cs.h.Processes, name) {
			return false
		}
	}
	return len(on) > 0
}

// died ends at t the belief of the processes that a kill's event names.
func (cs *claims) died(e *history.Event, t int64) {
	for _, name := range e.Targets() {
		p := int32(slices.Index(cs.h.Processes, name))
		if p < 0 {
			continue
		}
		for i := range cs.keys {
			for j := range cs.keys[i].holds {
				h := &cs.keys[i].holds[j]
				if h.process == p && h.b <= t && t < h.u {
					h.u, h.early = t, byDeath
				}
			}
		}
	}
}
