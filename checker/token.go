package checker

import "slices"

// tokenResult is what is known of the tokens of one lock.
type tokenResult struct {
	count int
	first int64
	pair  [2]int // the grant that came before, and the one whose token is not higher
	rule  string // what the pair breaks
}

func (r *tokenResult) add(before, after int, at int64, rule string) {
	if r.count == 0 || at < r.first {
		r.first, r.pair, r.rule = at, [2]int{before, after}, rule
	}
	r.count++
}

// tokens decides whether the tokens of a lock rise in the order of its grants
// and never repeat, theorem T4 of docs/verdicts.md.
//
// Of two grants one certainly came first if it was confirmed before the other
// was requested. Where exclusion holds, that is where no lease (or, without
// leases, no claim) overlaps another, the holds themselves are in order as well:
// one that cannot have ended before another was confirmed came after it, and the order of tokens must be one in which all leases
// could be kept. Without exclusion nothing but requests and confirmations
// is used.
func (k *key) risingTokens(low *bounds, exclusive bool) tokenResult {
	var r tokenResult
	ids := make([]int32, 0, len(k.holds))
	for i := range k.holds {
		if h := &k.holds[i]; h.hasToken && !h.resumed {
			ids = append(ids, int32(i))
		}
	}
	slices.SortFunc(ids, func(x, y int32) int {
		hx, hy := &k.holds[x], &k.holds[y]
		switch {
		case hx.token < hy.token:
			return -1
		case hx.token > hy.token:
			return 1
		}
		return int(x - y) // by confirmation
	})
	// Among the grants with lower or equal tokens seen so far: the one that
	// was requested last, and the one with the latest mark.
	late, sure := int32(-1), int32(-1)
	for n, i := range ids {
		h := &k.holds[i]
		if n > 0 && k.holds[ids[n-1]].token == h.token {
			r.add(int(ids[n-1]), int(i), h.b, "repeats")
		} else if late >= 0 && h.b < k.holds[late].a {
			r.add(int(i), int(late), k.holds[late].b, "falls")
		} else if exclusive && sure >= 0 && h.b < low.mark(k, sure) {
			r.add(int(i), int(sure), k.holds[sure].b, "falls")
		}
		if late < 0 || h.a > k.holds[late].a {
			late = i
		}
		if sure < 0 || low.mark(k, i) > low.mark(k, sure) {
			sure = i
		}
	}
	if r.count == 0 && exclusive && k.leases && k.ordered() {
		// Pairs of grants do not contradict the tokens, but all together they
		// do if in the order of tokens some lease could not have been kept.
		byToken := leaseResult{order: k.tokenOrder()}
		byToken.schedule(k, low, false)
		for n, i := range byToken.grants {
			r.add(byToken.met[n], i, k.holds[i].b, "contradicts")
		}
	}
	return r
}

// ordered says whether tokens give the order of all holds.
func (k *key) ordered() bool {
	for i := range k.holds {
		if !k.holds[i].hasToken || k.holds[i].resumed {
			return false
		}
	}
	return len(k.holds) > 0
}
