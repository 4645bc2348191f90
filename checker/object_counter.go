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

// sums answers how much had been added by a time.
type sums struct {
	times []int64
	total []int64 // total[i] is the sum of the first i
}

type addition struct{ t, n int64 }

func newSums(as []addition) sums {
	slices.SortFunc(as, func(a, b addition) int { return compare64(a.t, b.t) })
	s := sums{times: make([]int64, len(as)), total: make([]int64, len(as)+1)}
	for i, a := range as {
		s.times[i] = a.t
		s.total[i+1] = s.total[i] + a.n
	}
	return s
}

// before is the sum of what was added before t, or at t too if inclusive.
func (s *sums) before(t int64, inclusive bool) int64 {
	return s.total[sort.Search(len(s.times), func(i int) bool {
		if inclusive {
			return s.times[i] > t
		}
		return s.times[i] >= t
	})]
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
		switch result, _ := c.searchKey(ops, c.o.timeout()); result {
		case porcupine.Ok:
			return
		case porcupine.Illegal:
			c.found(c.narrow(ops))
			return
		}
	}
	c.note = ", by the bounds of each read (the order of adds between reads was not searched)"
}

// boundCounter reports the reads that are out of bounds.
func (c *objectCase) boundCounter(ops []int32) {
	h := c.h
	var sureUp, sureDown, maybeUp, maybeDown []addition
	var reads []int32
	values := map[int32]int64{}
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
			reads = append(reads, i)
			values[i] = n
			continue
		}
		up, down := max(n, 0), min(n, 0)
		falls = falls || n < 0
		maybeUp, maybeDown = append(maybeUp, addition{o.Call, up}), append(maybeDown, addition{o.Call, down})
		if o.Outcome == history.Done {
			sureUp, sureDown = append(sureUp, addition{o.Ret, up}), append(sureDown, addition{o.Ret, down})
		}
	}
	c.reads += len(reads)
	su, sd, mu, md := newSums(sureUp), newSums(sureDown), newSums(maybeUp), newSums(maybeDown)
	for _, i := range reads {
		o := &h.Ops[i]
		least := su.before(o.Call, false) + md.before(o.Ret, true)
		most := mu.before(o.Ret, true) + sd.before(o.Call, false)
		if v := values[i]; v < least || v > most {
			c.found(breach{class: classBounds, key: o.Key, at: o.Ret, ops: c.bound(ops, i, v < least),
				why: fmt.Sprintf("process %s read %d from %s at %s, but by what was added it held %d to %d", h.Processes[o.Process], v, object(h, o.Key), when(h, o.Ret), least, most)})
		}
	}
	if !falls {
		c.monotone(reads, values)
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
func (c *objectCase) monotone(reads []int32, values map[int32]int64) {
	h := c.h
	byReturn := slices.Clone(reads)
	slices.SortFunc(byReturn, func(a, b int32) int { return compare64(h.Ops[a].Ret, h.Ops[b].Ret) })
	next, top := 0, int32(-1)
	for _, i := range reads { // in the order of their calls
		o := &h.Ops[i]
		for ; next < len(byReturn) && h.Ops[byReturn[next]].Ret < o.Call; next++ {
			if p := byReturn[next]; top < 0 || values[p] > values[top] {
				top = p
			}
		}
		if top >= 0 && values[i] < values[top] {
			p := &h.Ops[top]
			c.found(breach{class: classStale, key: o.Key, at: o.Ret, ops: []int32{top, i},
				why: fmt.Sprintf("process %s read %d from %s at %s, after process %s had read %d at %s, and nothing was taken away",
					h.Processes[o.Process], values[i], object(h, o.Key), when(h, o.Ret), h.Processes[p.Process], values[top], when(h, p.Ret))})
		}
	}
}
