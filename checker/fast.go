package checker

import (
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// glance is what one pass over a history shows if nothing in it needs a closer
// look.
type glance struct {
	grants, tokens int
	leases         bool
	contended      bool // some acquire found the lock taken
	accepted       int  // writes that the resource accepted
	objects        bool // there are operations on what the lock protects
}

// holder is what one process holds during the pass.
type holder struct {
	b, a, token int64
	due         int64 // end of the lease that counts from the last renewal tried
	expiry      int64 // end of the lease that counts from the last one confirmed
	ttl         int64
	key         int32
	held        bool
	missed      bool // its last acquire was not granted
	hasToken    bool
}

// guarded is one lock during the pass.
type guarded struct {
	end      int64 // latest end of a hold so far
	over     int64 // latest answer to a release so far
	last     int64 // latest confirmation of a grant so far
	token    int64
	hasToken bool
	waiting  bool // an acquire got no answer
}

// look passes over a history once and says whether every lock was held by one
// client at a time, with rising tokens, and nothing else happened that needs
// explaining. It is false where that is not certain; then the exact checkers
// have to look at it hold by hold. It needs memory for processes and keys, not
// for operations.
//
// Holds end in the order of operations, since each ends at its release's
// invocation. Of two that overlap, the one that ends later began before the end
// of the other, so it is enough to compare each with the latest end so far: the
// one-pass form of theorem T1. Where claims do not overlap, leases, which end no
// later, do not either (T6), and tokens that rise along the holds rise in every
// order that the grants can have had (T4).
func (cs *claims) look() (g glance, clear bool) {
	h := cs.h
	if len(h.Notices) > 0 || len(h.Assumptions) > 0 {
		return g, false
	}
	for i := range h.Other {
		if h.Other[i].Process == history.Nemesis && h.Other[i].F == "kill" {
			return g, false
		}
	}
	for i := range h.Terms {
		if h.Terms[i].Until > 0 {
			return g, false
		}
	}
	no := int32(slices.Index(h.Values, "false"))
	if no < 0 {
		no = -2
	}
	bound, bounded := cs.bound()
	grace, observed := cs.o.grace(), len(h.Applied) == 0
	holders := make([]holder, len(h.Processes))
	locks := make([]guarded, len(h.Keys))
	for i := range locks {
		locks[i].token = minToken
	}
	ops := h.Ops
	for i := range ops {
		op := &ops[i]
		w := &holders[op.Process]
		switch op.Kind {
		case history.KindAcquire:
			l := &locks[op.Key]
			if op.Outcome != history.Done {
				if bounded {
					if op.Outcome == history.Unknown {
						l.waiting = true
					} else if op.Ret-l.last > bound {
						return g, false
					}
				}
				if !w.held {
					w.missed = true
				}
				continue
			}
			if w.held {
				return g, false
			}
			g.grants++
			w.a, w.b, w.key, w.held, w.missed = op.Call, op.Ret, op.Key, true, false
			w.token, w.hasToken = op.Token, op.HasToken
			w.ttl = 0
			if op.Term != 0 || cs.o.TTL != 0 {
				if w.ttl = cs.ttl(op); w.ttl > 0 {
					g.leases = true
					w.expiry, w.due = op.Call+w.ttl, op.Ret+w.ttl
				}
			}
			if bounded && op.Ret-l.last > bound {
				return g, false
			}
			l.last = max(l.last, op.Ret)
		case history.KindRelease:
			if !w.held || w.key != op.Key || op.Outcome == history.Failed {
				return g, false
			}
			l := &locks[op.Key]
			if l.end > w.b || w.ttl > 0 && op.Call > w.due+grace {
				return g, false
			}
			if w.hasToken {
				if w.token <= l.token {
					return g, false
				}
				l.token = w.token
				g.tokens++
			}
			if w.a < l.over {
				g.contended = true
			}
			l.end = op.Call
			if op.Outcome == history.Done {
				l.over = max(l.over, op.Ret)
			}
			w.held = false
		case history.KindRenew:
			if !w.held || w.key != op.Key {
				if op.Outcome == history.Done {
					return g, false
				}
				continue
			}
			if op.Outcome == history.Failed || w.ttl > 0 && op.Outcome == history.Done && op.Call > w.expiry {
				return g, false
			}
			if op.Outcome == history.Done {
				if t := cs.ttl(op); t > 0 {
					w.ttl, g.leases = t, true
				}
				w.expiry = op.Call + w.ttl
			}
			w.due = max(w.b, op.Call) + w.ttl
		case history.KindCheck:
			if op.Outcome == history.Failed || op.Value == no {
				return g, false
			}
		case history.KindWrite:
			if !w.held || w.key != op.Key || op.Call <= w.b || observed && op.HasToken {
				return g, false
			}
			g.objects = true
		default:
			g.objects = true
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
		return end
	}
	for i := range holders {
		w := &holders[i]
		if !w.held {
			continue
		}
		l := &locks[w.key]
		if l.end > w.b || w.hasToken && w.token <= l.token || w.ttl > 0 && last() > w.due+grace {
			return g, false
		}
		if w.hasToken {
			g.tokens++
		}
		l.end = history.Never
	}
	if bounded {
		for i := range locks {
			if locks[i].waiting && last()-locks[i].last > bound {
				return g, false
			}
		}
	}
	return g, cs.glanceApplied(&g)
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

// glanceApplied says whether the resource accepted tokens in rising order only,
// and rejected only lower ones.
func (cs *claims) glanceApplied(g *glance) bool {
	if len(cs.h.Applied) == 0 {
		return true
	}
	highest := make([]int64, len(cs.h.Keys))
	for i := range highest {
		highest[i] = minToken
	}
	for i := range cs.h.Applied {
		a := &cs.h.Applied[i]
		if a.Kind != history.KindWrite {
			continue
		}
		if !a.HasToken || a.Accepted != (a.Token >= highest[a.Key]) {
			return false
		}
		if a.Accepted {
			g.accepted++
			highest[a.Key] = a.Token
		}
	}
	return true
}

// report puts the verdicts on a history without fault into words.
func (cs *claims) report(g glance) []Property {
	cs.grants = g.grants
	js := make([]judged, len(cs.keys))
	if len(js) > 0 {
		cs.keys[0].tokens, cs.keys[0].leases = g.tokens, g.leases
		js[0].fence.accepted, js[0].fence.judged = g.accepted, g.accepted
		if g.contended {
			js[0].liveness.tested = 1
		}
	}
	return cs.verdicts(js)
}

// sample is the beginning of a history without fault, for porcupine: all grants
// that were confirmed before some time, about as many as its budget.
func (cs *claims) sample() (*claims, []judged) {
	part := *cs.h
	const perGrant = 3 // operations
	if n := perGrant * cs.o.budget(); len(part.Ops) > n {
		part.Ops = part.Ops[:n]
	}
	s := extract(&part, cs.o)
	js := make([]judged, len(s.keys))
	for i := range s.keys {
		k := &s.keys[i]
		if len(part.Ops) < len(cs.h.Ops) {
			// Later holds can begin after one that is still open here.
			cut := part.Ops[len(part.Ops)-1].Call
			k.holds = slices.DeleteFunc(k.holds, func(h hold) bool { return h.b > cut })
		}
		js[i].exclusive = k.allBelieved()
	}
	if len(part.Ops) < len(cs.h.Ops) {
		s.of = cs.grants
	}
	return s, js
}
