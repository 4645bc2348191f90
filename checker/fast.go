package checker

import (
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// holder is what one process holds during the pass.
type holder struct {
	b, a, token int64
	due         int64 // end of the lease that counts from the last renewal tried
	expiry      int64 // end of the lease that counts from the last one confirmed
	until       int64 // its own deadline
	ttl         int64
	key         int32
	held        bool
	hasToken    bool
	killed      bool // at some time
}

// glance is what the pass shows of one lock that needs no closer look.
type glance struct {
	suspect   bool  // it needs one
	waiting   bool  // an acquire got no answer
	leases    bool  // some hold has a lease
	contended bool  // some acquire found the lock taken
	end       int64 // latest end of a hold so far
	over      int64 // latest answer to a release so far
	last      int64 // latest confirmation of a grant so far
	token     int64 // of the last hold, or minToken
	grants    int
	tokens    int // grants with a token
	writes    int // confirmed writes with a token
	accepted  int // writes that the resource accepted
}

// look passes over a history once and says of each lock whether it was held by
// one client at a time, with rising tokens, and nothing else happened that needs
// explaining. Where that is not certain the lock is suspect, and the exact
// checkers have to look at it hold by hold. It needs memory for processes and
// keys, not for operations.
//
// Holds end in the order of operations, since each ends at its release's
// invocation. Of two that overlap, the one that ends later began before the end
// of the other, so it is enough to compare each with the latest end so far: the
// one-pass form of theorem T1. Where claims do not overlap, leases, which end no
// later, do not either (T6), and tokens that rise along the holds rise in every
// order that the grants can have had (T4). A write with its hold's token that is
// made during the hold cannot come after one of a later hold (T7).
func (cs *claims) look() []glance {
	h := cs.h
	locks := make([]glance, len(h.Keys))
	for i := range locks {
		locks[i].token = minToken
		locks[i].suspect = len(h.Assumptions) > 0
	}
	if len(h.Assumptions) > 0 {
		cs.seen = countKinds(h)
		return locks
	}
	var seen census
	cs.seen = &seen
	for i := range h.Notices {
		locks[h.Notices[i].Key].suspect = true
	}
	holders := make([]holder, len(h.Processes))
	for i := range h.Other {
		if e := &h.Other[i]; e.Process == history.Nemesis && e.F == "kill" {
			for _, name := range e.Targets() {
				if p := slices.Index(h.Processes, name); p >= 0 {
					holders[p].killed = true
				}
			}
		}
	}
	no := int32(slices.Index(h.Values, "false"))
	if no < 0 {
		no = -2
	}
	bound, bounded := cs.bound()
	grace, observed := cs.o.grace(), len(h.Applied) == 0
	ops := h.Ops
	for i := range ops {
		op := &ops[i]
		seen.add(op)
		w, l := &holders[op.Process], &locks[op.Key]
		if l.suspect {
			continue
		}
		switch op.Kind {
		case history.KindAcquire:
			if op.Outcome != history.Done {
				if bounded {
					if op.Outcome == history.Unknown {
						l.waiting = true
					} else if op.Ret-l.last > bound {
						l.suspect = true
					}
				}
				continue
			}
			if w.held && !locks[w.key].suspect {
				// It holds two locks at once, or was granted one twice.
				locks[w.key].suspect, l.suspect = true, true
			}
			l.grants++
			w.a, w.b, w.key, w.held = op.Call, op.Ret, op.Key, true
			w.token, w.hasToken = op.Token, op.HasToken
			w.ttl, w.until = 0, never
			if op.Term != 0 || cs.o.TTL != 0 {
				if w.ttl = cs.ttl(op); w.ttl > 0 {
					l.leases = true
					w.expiry, w.due = op.Call+w.ttl, op.Ret+w.ttl
				}
				if t := h.Terms[op.Term].Until; t > 0 && !h.Timeless {
					w.until = t
				}
			}
			if bounded && (op.Ret-l.last > bound || w.ttl == 0 && w.until <= w.b) || w.killed {
				l.suspect = true
			}
			l.last = max(l.last, op.Ret)
		case history.KindRelease:
			if !w.held || w.key != op.Key || op.Outcome == history.Failed ||
				l.end > w.b || w.ttl > 0 && op.Call > w.due+grace {
				l.suspect = true
				continue
			}
			if w.hasToken {
				if w.token <= l.token {
					l.suspect = true
				}
				l.token = w.token
				l.tokens++
			}
			if w.a < l.over {
				l.contended = true
			}
			l.end = op.Call
			if op.Outcome == history.Done {
				l.over = max(l.over, op.Ret)
			}
			w.held = false
		case history.KindRenew:
			if !w.held || w.key != op.Key {
				l.suspect = op.Outcome == history.Done
				continue
			}
			if op.Outcome == history.Failed || w.ttl > 0 && op.Outcome == history.Done && op.Call > w.expiry {
				l.suspect = true
				continue
			}
			if op.Outcome == history.Done {
				if t := cs.ttl(op); t > 0 {
					w.ttl, l.leases = t, true
				}
				if t := h.Terms[op.Term].Until; t > 0 && !h.Timeless {
					w.until = t
				}
				w.expiry = op.Call + w.ttl
			}
			w.due = max(w.b, op.Call) + w.ttl
		case history.KindCheck:
			l.suspect = op.Outcome == history.Failed || op.Value == no
		case history.KindWrite:
			if !w.held || w.key != op.Key || op.Call <= w.b || op.Call >= w.until || observed && op.HasToken && (!w.hasToken || op.Token != w.token) {
				l.suspect = true
			} else if op.HasToken && op.Outcome == history.Done {
				l.writes++
			}
		}
	}
	end := int64(-1) // of the history
	last := func() int64 {
		if end >= 0 {
			return end
		}
		for i := range ops {
			end = max(end, ops[i].Call)
			if ops[i].Ret < history.Never {
				end = max(end, ops[i].Ret)
			}
		}
		for i := range h.Notices {
			end = max(end, h.Notices[i].Time)
		}
		for i := range h.Applied {
			end = max(end, h.Applied[i].Time)
		}
		for i := range h.Other {
			end = max(end, h.Other[i].Time)
		}
		return end
	}
	for i := range holders {
		w := &holders[i]
		if !w.held || locks[w.key].suspect {
			continue
		}
		l := &locks[w.key]
		if l.end > w.b || w.hasToken && w.token <= l.token || w.ttl > 0 && last() > w.due+grace {
			l.suspect = true
		}
		if w.hasToken {
			l.tokens++
		}
		l.end = history.Never
	}
	if bounded {
		for i := range locks {
			if l := &locks[i]; l.waiting && last()-l.last > bound {
				l.suspect = true
			}
		}
	}
	cs.lookAtResource(locks)
	return locks
}

// ttl is the lease that a grant or a renewal promises.
func (cs *claims) ttl(op *history.Op) int64 {
	if cs.h.Timeless {
		return 0
	}
	ttl := cs.h.Terms[op.Term].TTL
	if ttl == 0 {
		ttl = cs.o.TTL
	}
	return cs.o.lease(ttl)
}

// lookAtResource makes locks suspect whose resource accepted tokens in another
// than rising order, or rejected others than lower ones.
func (cs *claims) lookAtResource(locks []glance) {
	if len(cs.h.Applied) == 0 {
		return
	}
	highest := make([]int64, len(locks))
	for i := range highest {
		highest[i] = minToken
	}
	for i := range cs.h.Applied {
		a := &cs.h.Applied[i]
		if a.Kind != history.KindWrite {
			continue
		}
		l := &locks[a.Key]
		if !a.HasToken || a.Accepted != (a.Token >= highest[a.Key]) {
			l.suspect = true
		}
		if a.Accepted {
			l.accepted++
			highest[a.Key] = a.Token
		}
	}
}

// clear enters what a glance at a lock without fault has shown.
func (k *key) clear(l *glance, resource bool) judged {
	var j judged
	k.tokens, k.leases = l.tokens, l.leases
	if resource {
		j.fence.accepted, j.fence.judged = l.accepted, l.accepted
	} else {
		j.observedJudged = l.writes
	}
	if l.contended {
		j.liveness.tested = 1
	}
	return j
}

// forOpinion are the claims that porcupine is asked about: of suspect locks all,
// of the others those at the beginning of the history, about as many as its
// budget.
func (cs *claims) forOpinion(js []judged) (*claims, []judged) {
	if !slices.Contains(cs.suspect, false) {
		return cs, js
	}
	part := *cs.h
	const perGrant = 3 // operations
	if budget := cs.o.budget(); cs.grants > budget {
		part.Ops = part.Ops[:min(len(part.Ops), perGrant*sampleOf(budget))]
	}
	clear := make([]bool, len(cs.keys))
	for i := range clear {
		clear[i] = !cs.suspect[i]
	}
	s := &claims{h: &part, o: cs.o, suspect: clear}
	s.extract()
	all, some := *cs, make([]judged, len(js))
	all.keys, all.partial = slices.Clone(cs.keys), len(part.Ops) < len(cs.h.Ops)
	for i := range s.keys {
		if cs.suspect[i] {
			some[i] = js[i]
			continue
		}
		k := &s.keys[i]
		if all.partial {
			// Later holds can begin after one that is still open here.
			cut := part.Ops[len(part.Ops)-1].Call
			k.holds = slices.DeleteFunc(k.holds, func(h hold) bool { return h.b > cut })
		}
		all.keys[i] = *k
		some[i].exclusive = k.allBelieved()
	}
	return &all, some
}
