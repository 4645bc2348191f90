package checker

import (
	"slices"
	"sort"
)

// leaseResult is what is known of the service's promise on one lock.
type leaseResult struct {
	overlaps
	undecided bool    // without tokens the order of some grants is not forced, and one order breaks the lease
	order     []int32 // holds in the order in which they were judged
	x         []int64 // by hold: the earliest time of its grant, for a correct service
}

// promises finds the grants that a service cannot have made without breaking an
// earlier lease, theorem T6 of docs/verdicts.md.
//
// A hold that was granted at some x in [a, b] stands for the service until it is
// released, its loss is announced, or x (a later confirmed renewal's invocation)
// plus the lease have passed. For a given order of grants the earliest schedule,
// x = max(a, end of the hold before), is the least in each place, so that a
// correct service exists if and only if x <= b throughout.
//
// The order of confirmations is tried first. It is forced among holds that
// certainly stood when they were confirmed; a hold whose lease may have been over
// by then can have come earlier. Tokens are left out: whether they are in the
// order of the grants is a question of its own.
func (k *key) promises(low *bounds) leaseResult {
	r := leaseResult{order: identity(len(k.holds))}
	r.schedule(k, low, false)
	if r.count == 0 {
		return r
	}
	for i := range k.holds {
		if !low.sure(k, int32(i)) {
			// Only what is forced can prove a violation.
			forced := leaseResult{order: r.order}
			forced.schedule(k, low, true)
			forced.undecided = forced.count == 0
			return forced
		}
	}
	return r
}

// bounds are what is certain of when the holds of a lock were granted, whatever
// their order: by hold, indexed as the holds, a time before which it was not,
// since it was requested then or a hold before it ended then, and which hold that
// is, -1 for the request.
type bounds struct {
	low []int64
	by  []int32
}

// earliest finds the bounds. Of two holds i came first if j cannot have ended by
// the time i was confirmed, for then j was not over before i was granted. So what
// j must have waited for shows how long it stood, and that in turn which others
// came before it.
func (k *key) earliest() *bounds {
	n := len(k.holds)
	l := &bounds{make([]int64, n), make([]int32, n)}
	if !k.leases {
		for i := range k.holds {
			l.low[i], l.by[i] = k.holds[i].a, -1
		}
		return l
	}
	ends := make([]int64, n+1) // the latest end of the first i holds, and whose it is
	whose := make([]int32, n+1)
	ends[0], whose[0] = -1, -1
	for j := range k.holds {
		h := &k.holds[j]
		low, by := h.a, int32(-1)
		for before := 0; ; {
			end := h.until(min(low, h.b))
			next := j
			if end <= h.b {
				next = before + sort.Search(j-before, func(i int) bool { return k.holds[before+i].b >= end })
			}
			if ends[next] > low {
				low, by = ends[next], whose[next]
			}
			if next == before || next == j {
				break
			}
			before = next
		}
		l.low[j], l.by[j] = low, by
		ends[j+1], whose[j+1] = ends[j], whose[j]
		if e := h.until(min(low, h.b)); h.ttl > 0 && e > ends[j] {
			ends[j+1], whose[j+1] = e, int32(j)
		}
	}
	return l
}

// stood is a time up to which a hold certainly had not ended.
func (l *bounds) stood(k *key, i int32) int64 {
	h := &k.holds[i]
	return h.until(min(l.low[i], h.b))
}

// sure says whether a hold certainly stood when it was confirmed.
func (l *bounds) sure(k *key, i int32) bool { return l.stood(k, i) > k.holds[i].b }

// mark is a time such that all holds confirmed before it certainly came before
// hold i, if exclusion holds.
func (l *bounds) mark(k *key, i int32) int64 { return min(k.holds[i].b, l.stood(k, i)) }

// schedule runs through the holds in order. With sureOnly it leaves out those
// whose place is not forced, but reports one that lies inside another's hold.
func (r *leaseResult) schedule(k *key, l *bounds, sureOnly bool) {
	r.x = slices.Clone(l.low)
	last := int32(-1)
	end, covered := int64(-1), int64(-1)
	for _, i := range r.order {
		h := &k.holds[i]
		x, by := l.low[i], l.by[i]
		forced := !sureOnly || l.sure(k, i)
		inside := last >= 0 && h.a >= k.holds[last].b
		if (forced || inside) && end > x {
			x, by = end, last
		}
		if x > h.b {
			r.add(int(by), int(i), h.b)
			x = h.b
			if stop := min(k.holds[by].until(min(r.x[by], k.holds[by].b)), h.until(x)); h.ttl > 0 {
				if from := max(h.b, covered); stop > from {
					r.total += stop - from
					covered = stop
				}
			}
		} else if !forced {
			x = l.low[i]
		}
		r.x[i] = x
		if e := h.until(x); forced && h.ttl > 0 && e > end {
			end, last = e, i
		}
	}
}

func identity(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// tokenOrder is the order of the holds by token, and of the parts of one grant
// by time.
func (k *key) tokenOrder() []int32 {
	ids := identity(len(k.holds))
	slices.SortStableFunc(ids, func(x, y int32) int {
		switch tx, ty := k.holds[x].token, k.holds[y].token; {
		case tx < ty:
			return -1
		case tx > ty:
			return 1
		}
		return 0
	})
	return ids
}
