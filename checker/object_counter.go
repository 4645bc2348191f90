package checker

import (
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

const classBounds = "out of bounds"

// counterRead is a read and what it returned.
type counterRead struct {
	op    int32
	value int64
}

// addition is an add: when it was called, or had returned, and how much.
type addition struct{ t, n int64 }

// sums answers how much had been added, and taken away, by a time.
type sums struct {
	adds     []addition // ascending in time
	up, down []int64    // the sums of what the first i added and took away
}

func newSums(adds []addition) sums {
	order := func(a, b addition) int { return compare64(a.t, b.t) }
	if !slices.IsSortedFunc(adds, order) {
		slices.SortFunc(adds, order)
	}
	s := sums{adds: adds, up: make([]int64, len(adds)+1), down: make([]int64, len(adds)+1)}
	for i, a := range adds {
		s.up[i+1], s.down[i+1] = s.up[i]+max(a.n, 0), s.down[i]+min(a.n, 0)
	}
	return s
}

// until returns the sums of what was added before t, or by t if inclusive.
func (s *sums) until(t int64, inclusive bool) (up, down int64) {
	if inclusive {
		t++
	}
	i := sort.Search(len(s.adds), func(i int) bool { return s.adds[i].t >= t })
	return s.up[i], s.down[i]
}

// checkCounter holds each read of a counter, which starts at 0, against its
// bounds, as Jepsen's counter checker does: at least what had certainly been
// added when it was invoked, at most what may have been added by its return
// (unknown adds included). Where adds are not negative, reads must not fall
// from one that returned to one that was invoked later.
//
// The bounds are necessary, not sufficient; small keys are decided by search,
// and for the others the verdict says that bounds are all that was checked.
func (c *objectCase) checkCounter(ops []int32) {
	before, unsure := c.breaches, c.unsure
	c.boundCounter(ops)
	if c.breaches > before || c.unsure != unsure {
		return
	}
	if len(ops) <= auditLimit {
		switch result, _ := c.searchKey(ops, c.limit.left(c.o)); result {
		case porcupine.Ok:
			return
		case porcupine.Illegal:
			c.found(c.narrow(ops, illegalKey))
			return
		}
	}
	c.note = ", by the bounds of each read (the order of adds between reads was not searched)"
}

// boundCounter reports the reads that are out of bounds.
func (c *objectCase) boundCounter(ops []int32) {
	h := c.h
	var called, done []addition
	var reads []counterRead
	falls := false
	for _, i := range ops {
		o := &h.Ops[i]
		if o.Outcome == history.Failed || o.Kind == history.KindRead && o.Outcome != history.Done {
			continue
		}
		n, err := int64(1), error(nil)
		if o.Value >= 0 {
			n, err = strconv.ParseInt(h.Values[o.Value], 10, 64)
		} else if o.Kind == history.KindRead {
			err = strconv.ErrSyntax
		}
		if err != nil {
			c.doubt(opText(h, o) + " has a value that is not a whole number")
			return
		}
		if o.Kind == history.KindRead {
			reads = append(reads, counterRead{i, n})
			continue
		}
		falls = falls || n < 0
		called = append(called, addition{o.Call, n})
		if o.Outcome == history.Done {
			done = append(done, addition{o.Ret, n})
		}
	}
	c.reads += len(reads)
	sure, maybe := newSums(done), newSums(called)
	for _, r := range reads {
		o := &h.Ops[r.op]
		sureUp, sureDown := sure.until(o.Call, false)
		maybeUp, maybeDown := maybe.until(o.Ret, true)
		least, most := sureUp+maybeDown, maybeUp+sureDown
		if r.value < least || r.value > most {
			c.found(breach{class: classBounds, key: o.Key, at: o.Ret, ops: c.bound(ops, r.op, r.value < least),
				why: fmt.Sprintf("process %s read %d from %s at %s, but by what was added it held %d to %d", h.Processes[o.Process], r.value, object(h, o.Key), when(h, o.Ret), least, most)})
		}
	}
	if !falls {
		c.monotone(reads)
	}
}

// bound is what proves that a read is out of bounds: the read, and the adds
// that had returned (it read too little) or been invoked (too much).
func (c *objectCase) bound(ops []int32, read int32, low bool) []int32 {
	out := []int32{read}
	r := &c.h.Ops[read]
	for _, i := range ops {
		o := &c.h.Ops[i]
		if o.Kind != history.KindAdd || o.Outcome == history.Failed {
			continue
		}
		if low && o.Outcome == history.Done && o.Ret < r.Call || !low && o.Call <= r.Ret {
			out = append(out, i)
		}
	}
	return out
}

// monotone reports reads that returned less than one that had ended before.
func (c *objectCase) monotone(reads []counterRead) {
	h := c.h
	byReturn := slices.Clone(reads)
	slices.SortFunc(byReturn, func(a, b counterRead) int { return compare64(h.Ops[a.op].Ret, h.Ops[b.op].Ret) })
	next := 0
	top := counterRead{op: -1}
	for _, r := range reads { // in the order of their calls
		o := &h.Ops[r.op]
		for ; next < len(byReturn) && h.Ops[byReturn[next].op].Ret < o.Call; next++ {
			if p := byReturn[next]; top.op < 0 || p.value > top.value {
				top = p
			}
		}
		if top.op >= 0 && r.value < top.value {
			p := &h.Ops[top.op]
			c.found(breach{class: classStale, key: o.Key, at: o.Ret, ops: []int32{top.op, r.op},
				why: fmt.Sprintf("process %s read %d from %s at %s, after process %s had read %d at %s, and nothing was taken away",
					h.Processes[o.Process], r.value, object(h, o.Key), when(h, o.Ret), h.Processes[p.Process], top.value, when(h, p.Ret))})
		}
	}
}
