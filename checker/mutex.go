package checker

import "github.com/lockcheck/lockcheck/history"

// overlaps describes, for one lock, the grants that were made while an earlier
// hold stood.
type overlaps struct {
	count int
	total int64 // time during which two or more held
	first int64
	// pair is the first such grant and the hold that it met, indexes in holds.
	pair [2]int
	// grants are the indexes in holds of all such grants, ascending.
	grants []int
	// met are, for each of grants, the index of the hold that it met.
	met []int
}

func (o *overlaps) add(earlier, later int, at int64) {
	if o.count == 0 || at < o.first {
		o.first, o.pair = at, [2]int{earlier, later}
	}
	o.count++
	o.grants = append(o.grants, later)
	o.met = append(o.met, earlier)
}

// beliefs finds where two clients believed at once that they held.
//
// A client believes from b, when the ok of its acquire was read, until u. Both
// are the harness's own observations, so that two intervals [b, u) overlap or
// do not: nothing is unknown here. Two of one client never do, since a second grant
// closes the first. With holds ordered by b, a grant overlaps an
// earlier hold exactly if it was confirmed before the latest end so far. That is
// theorem T1 of docs/verdicts.md: the history of claims is linearizable as a
// mutex if and only if no two cores overlap.
func (cs *claims) beliefs(k *key) overlaps {
	var o overlaps
	last, covered := -1, int64(-1) // hold with the latest end; end of what is counted in total
	for i := range k.holds {
		h := &k.holds[i]
		if !h.believed() {
			continue
		}
		if last >= 0 {
			l := &k.holds[last]
			if h.b < l.u {
				o.add(last, i, h.b)
				end := min(h.u, l.u, max(cs.end, h.b))
				if from := max(h.b, covered); end > from {
					o.total += end - from
					covered = end
				}
			}
			if h.u <= l.u {
				continue
			}
		}
		last = i
	}
	return o
}

// sumOverlap adds up what was found on each key.
func sumOverlap(keys []overlaps) (sum overlaps, at int) {
	at = -1
	for i := range keys {
		k := &keys[i]
		if k.count == 0 {
			continue
		}
		if at < 0 || k.first < sum.first {
			sum.first, sum.pair, at = k.first, k.pair, i
		}
		sum.count += k.count
		sum.total += k.total
	}
	return sum, at
}

// never is a time that does not come.
const never = history.Never
