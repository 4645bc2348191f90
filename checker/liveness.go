package checker

import (
	"cmp"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// livenessResult is what is known of how soon one lock could be had again.
type livenessResult struct {
	tested int // acquires that found the lock taken
	stuck  []window
}

// window is a time during which a lock was wanted, nobody was entitled to it,
// and nobody got it.
type window struct {
	from, to int64
	attempt  int32 // index in Ops of the acquire that shows it
	last     int   // the hold before, -1 if there is none
}

// attempt is one acquire.
type attempt struct {
	from, to int64
	op       int32
	hold     int // -1 if it was not granted
}

// waits finds the windows longer than bound.
//
// A hold entitles its client until its release was answered, or, where it was
// not released, for a lease from the last renewal that was tried (without a
// lease: until the client stopped to believe; of a client that renews by itself:
// for a lease from when it stopped to). An acquire of unknown outcome may
// be granted behind its caller's back and counts as a hold of one lease. Time
// before a fault has healed does not count, unless the fault was on clients only.
func (cs *claims) waits(k *key, bound int64) livenessResult {
	var r livenessResult
	ops := cs.h.Ops
	attempts := make([]attempt, 0, len(k.holds)+len(k.misses))
	ttl := cs.o.TTL
	for i := range k.holds {
		h := &k.holds[i]
		ttl = max(ttl, h.ttl)
		attempts = append(attempts, attempt{h.a, h.b, h.grant, i})
	}
	var unknown []int64
	for _, i := range k.misses {
		op := &ops[i]
		attempts = append(attempts, attempt{op.Call, min(op.Ret, cs.told(op), max(cs.end, op.Call)), i, -1})
		if op.Outcome == history.Unknown {
			unknown = append(unknown, op.Call)
		}
	}
	slices.SortFunc(attempts, func(x, y attempt) int { return cmp.Compare(x.to, y.to) })
	free, want := int64(0), int64(never)
	last, reported := -1, false
	entitled := func(until int64) {
		if until > free {
			free, want = until, never
		}
	}
	for _, a := range attempts {
		for len(unknown) > 0 && unknown[0] <= a.to {
			if ttl > 0 {
				entitled(unknown[0] + ttl)
			}
			unknown = unknown[1:]
		}
		if a.from < free && last >= 0 && !resumed(k, a) {
			r.tested++
		}
		if a.to > free && !resumed(k, a) {
			want = min(want, a.from)
			from := cs.healed(max(want, free), a.to)
			if a.to-from > bound && !reported {
				r.stuck = append(r.stuck, window{from, a.to, a.op, last})
				reported = true // once until the next grant
			} else if reported && a.hold < 0 {
				r.stuck[len(r.stuck)-1].to = a.to
			}
		}
		if a.hold >= 0 {
			entitled(cs.entitled(&k.holds[a.hold]))
			last, reported = a.hold, false
		}
	}
	return r
}

// told is a time, no later than the answer to an operation of unknown outcome, up
// to which its client waited: that of the event before. It is Never if there is no
// answer. Who was told that it may have been in vain waits no longer, nor do the dead.
func (cs *claims) told(op *history.Op) int64 {
	if op.Outcome != history.Unknown || op.RetIndex < 0 {
		return never
	}
	times := cs.times()
	return max(op.Call, times[min(int(op.RetIndex), len(times)-1)])
}

// times is, by Index of an event, the time of the last event of an operation until
// then.
func times(h *history.History) []int64 {
	var all []int64
	set := func(index int32, t int64) {
		if index < 0 || t == never {
			return
		}
		if n := int(index) + 1; n > len(all) {
			all = slices.Grow(all, n-len(all))[:n]
		}
		all[index] = t
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		set(op.Index, op.Call)
		set(op.RetIndex, op.Ret)
	}
	for i := 1; i < len(all); i++ {
		all[i] = max(all[i], all[i-1])
	}
	return all
}

func resumed(k *key, a attempt) bool { return a.hold >= 0 && k.holds[a.hold].resumed }

// entitled is when, at the latest, a service that keeps its promises may hold
// the lock for a client.
func (cs *claims) entitled(h *hold) int64 {
	if h.release >= 0 {
		if op := &cs.h.Ops[h.release]; op.Outcome != history.Unknown {
			return op.Ret
		}
	}
	switch {
	case h.ttl == 0:
		return min(h.c, h.u)
	case cs.keeps(h.process):
		end := h.c // its own deadline moves with renewals that nobody saw
		if h.early == byDeath {
			end = h.u
		}
		return min(end, never-h.ttl) + h.ttl
	default:
		return max(h.b, h.tried) + h.ttl
	}
}

// keeps says whether a client renews its grants by itself, so that they may stand
// for longer than the history shows.
func (cs *claims) keeps(process int32) bool {
	return slices.Contains(cs.keepers, process)
}

// findKeepers reads from the harness's event which clients do.
func (cs *claims) findKeepers() {
	for i := range cs.h.Other {
		if e := &cs.h.Other[i]; e.Process == history.Harness && e.F == history.Keep {
			for _, name := range e.Targets() {
				if p := slices.Index(cs.h.Processes, name); p >= 0 {
					cs.keepers = append(cs.keepers, int32(p))
				}
			}
		}
	}
}

// healed is the time from which on, in [from, to], no fault was in effect; to if
// there is none.
func (cs *claims) healed(from, to int64) int64 {
	for _, f := range cs.faults {
		if f.from < to && f.to > from {
			from = min(max(from, f.to), to)
		}
	}
	return from
}
