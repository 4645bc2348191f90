package checker

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockcheck/lockcheck/history"
)

// Check judges a history. It never fails: a history that could be read can
// always be judged, if only as unknown. The history must not change meanwhile;
// Check may be called concurrently.
//
// If o.Model is a lock that the holder may acquire again, its outermost sections
// are judged; if it is one that several may hold, exclusion is judged by what
// the model allows, and the properties of a lock with one holder do not apply.
func Check(h *history.History, o Options) *Report {
	r := &Report{Operations: len(h.Ops), Assumptions: assumptions(h)}
	claimed := h
	switch m, err := ParseModel(o.Model); {
	case err != nil:
	case m.Name == modelReentrant || m.Name == modelReentrantFenced:
		claimed = outermostSections(h, o.strict())
	case m.Name == modelRWLock || m.Permits > 1:
		r.Properties = checkShared(h, o, m)
		r.Grants = countGrants(h)
		r.insertState(checkState(h, o))
		return r
	}
	cs := &claims{h: claimed, o: o}
	locks := cs.look()
	var state Property
	var done sync.WaitGroup
	decideState := func() { state, _ = stateOf(h, o, cs.seen) }
	if cs.seen.unread() {
		decideState()
	} else {
		done.Go(decideState)
	}
	js := cs.judgeAll(locks)
	r.Grants = cs.grants
	r.Properties = cs.verdicts(js)
	r.Findings = append(cs.findings(js), observed(h)...)
	if !o.NoSecondOpinion {
		opinions, js := cs.forOpinion(js)
		each(len(r.Properties), func(i int) { opinions.second(&r.Properties[i], js) })
	}
	done.Wait()
	r.insertState(state)
	return r
}

func (r *Report) insertState(state Property) {
	i := slices.IndexFunc(r.Properties, func(p Property) bool { return p.Name == Release })
	r.Properties = slices.Insert(r.Properties, i, state)
}

// judgeAll decides everything about each lock: at a glance where that will do,
// else hold by hold.
func (cs *claims) judgeAll(locks []glance) []judged {
	cs.suspect = make([]bool, len(locks))
	for i := range locks {
		cs.suspect[i] = locks[i].suspect
	}
	js := cs.enter(locks)
	tested := func(j judged) bool { return j.liveness.tested > 0 }
	if _, bounded := cs.bound(); bounded && !slices.ContainsFunc(js, tested) && slices.Contains(cs.suspect, false) {
		// A glance does not see everybody who found a lock taken.
		for i := range cs.suspect {
			cs.suspect[i] = true
		}
		js = cs.enter(locks)
	}
	return js
}

// enter judges the suspect locks, and adds what is known of the others.
func (cs *claims) enter(locks []glance) []judged {
	cs.extract()
	js := cs.judge()
	for i := range locks {
		if l := &locks[i]; !cs.suspect[i] {
			js[i] = cs.keys[i].clear(l, len(cs.h.Applied) > 0)
			cs.grants += l.grants
		}
	}
	return js
}

// verdicts are those on the lock, in the order of a report.
func (cs *claims) verdicts(js []judged) []Property {
	return []Property{cs.mutex(js), cs.lease(js), cs.token(js), cs.fence(js), cs.release(js), cs.liveness(js)}
}

// judged is what is known of one lock.
type judged struct {
	low     *bounds
	x       []int64 // by hold: the earliest time of its grant, for a correct service
	beliefs overlaps
	lease   leaseResult
	promise *overlaps // what exclusion is judged on: the lease's overlaps, or the beliefs' without leases
	tokens  tokenResult
	sound   bool // tokens can be used for order
	// exclusive says that tokens were judged in the order of holds too.
	exclusive bool
	fence     fenceResult
	release   releaseResult
	liveness  livenessResult

	observed, observedJudged int
	observedPair             [2]int32
}

// judge decides everything about each suspect lock, several at a time.
func (cs *claims) judge() []judged {
	js := make([]judged, len(cs.keys))
	applied := make([][]int32, len(cs.keys))
	writes := make([][]int32, len(cs.keys))
	if !slices.Contains(cs.suspect, true) {
		return js
	}
	for i := range cs.h.Applied {
		if k := cs.h.Applied[i].Key; cs.suspect[k] {
			applied[k] = append(applied[k], int32(i))
		}
	}
	if len(cs.h.Applied) == 0 {
		for i := range cs.h.Ops {
			if op := &cs.h.Ops[i]; cs.suspect[op.Key] && op.Kind == history.KindWrite && op.Outcome == history.Done && op.HasToken {
				writes[op.Key] = append(writes[op.Key], int32(i))
			}
		}
	}
	bound, bounded := cs.bound()
	each(len(js), func(i int) {
		if !cs.suspect[i] {
			return
		}
		k, j := &cs.keys[i], &js[i]
		j.low = k.earliest()
		j.beliefs = cs.beliefs(k)
		j.promise = &j.beliefs
		// The order of confirmations decides first; what it decides tokens
		// for, and tokens may then decide more.
		if k.leases {
			j.lease = k.promises(j.low)
			if j.lease.undecided {
				cs.settle(k, j)
			}
			j.promise = &j.lease.overlaps
		}
		j.exclusive = j.promise.count == 0 && !j.lease.undecided && (k.leases || k.allBelieved())
		j.tokens = k.risingTokens(j.low, j.exclusive)
		j.sound = j.tokens.count == 0
		j.fence = cs.fencing(k, j.low, applied[i], j.sound, j.exclusive)
		j.observed, j.observedJudged, j.observedPair = cs.observed(writes[i])
		j.x = j.lease.x
		if j.x == nil {
			j.x = j.low.low
		}
		j.release = cs.releases(k, j.promise, j.x)
		if bounded {
			j.liveness = cs.waits(k, bound)
		}
	})
	return js
}

// allBelieved says whether every grant was confirmed before its client's own
// deadline: one that was not says nothing about when it stood.
func (k *key) allBelieved() bool {
	return !slices.ContainsFunc(k.holds, func(h hold) bool { return !h.believed() })
}

// each calls f for 0 to n-1, on all processors.
func each(n int, f func(int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i)
			}
		})
	}
	wg.Wait()
}

// bound is how long a lock that nobody holds may be unobtainable.
func (cs *claims) bound() (int64, bool) {
	if cs.h.Timeless {
		return 0, false
	}
	if cs.o.Bound > 0 {
		return int64(cs.o.Bound), true
	}
	ttl := cs.o.TTL
	for i := range cs.h.Terms {
		ttl = max(ttl, cs.h.Terms[i].TTL)
	}
	if ttl == 0 {
		return 0, false
	}
	return ttl + cs.o.grace(), true
}

// assumptions are what the history breaks of what checking assumes.
func assumptions(h *history.History) []Finding {
	var fs []Finding
	for _, a := range h.Assumptions {
		fs = append(fs, Finding{Code: string(a.Code), Why: fmt.Sprintf("line %d: %s", a.Line, a.Why), Events: []int64{a.Index}})
	}
	return fs
}
