package checker

import (
	"fmt"
	"slices"
	"sort"

	"github.com/lockcheck/lockcheck/history"
)

// Classes of violations of a register.
const (
	classStale     = "stale read"
	classUnwritten = "read of a value that was not written"
	classFuture    = "read before its write"
	classSearch    = "no order of the operations"
)

// cluster is a written value: its write and the reads that returned it.
type cluster struct {
	lo, hi      int64 // least return, greatest call
	called      int64 // call of the write
	first, last int32 // positions of the operations that set lo and hi; -1 for the initial write
	write       int32 // position of the write; -1 for the initial value, -2 if there is none
	reads       int32
	epoch       int32
	unknown     bool // whether the write happened is not known
}

// zone is the part of time in which a value is known to be needed (forward:
// from the first return to the last call) or within which it must be placed
// (backward: from the last call to the first return).
type zone struct {
	lo, hi int64
	value  int32 // index into clusters
}

const (
	initialWrite = -1
	noWrite      = -2
)

// registerZones decides registers whose written values are unique: the history
// is linearizable if and only if no two forward zones overlap and no backward
// zone lies within a forward one (Gibbons and Korach, SIAM J. Comput. 26(4),
// 1997). Near-linear in the operations: zones come almost in order.
//
// It is reused from key to key and holds one cluster a value.
type registerZones struct {
	h        *history.History
	null     int32     // index of "null" in Values, or len(Values)
	clusters []cluster // by index of the value
	epoch    int32
	order    []int32 // values of the key, in the order of their first operations
	zones    []zone  // backing of forward, from its start, and of backward, from its end
	forward  []zone  // ascending
	backward []zone  // roughly descending
}

func newRegisterZones(h *history.History) *registerZones {
	z := &registerZones{h: h, null: int32(slices.Index(h.Values, "null"))}
	if z.null < 0 {
		z.null = int32(len(h.Values))
	}
	z.clusters = make([]cluster, len(h.Values)+1)
	return z
}

// value is the index of what an operation wrote or read; nothing is null.
func (z *registerZones) value(o *history.Op) int32 {
	if o.Value < 0 {
		return z.null
	}
	return o.Value
}

func (z *registerZones) at(v int32) *cluster {
	c := &z.clusters[v]
	if c.epoch != z.epoch {
		*c = cluster{lo: history.Never + 1, hi: -history.Never, write: noWrite, epoch: z.epoch}
	}
	return c
}

// check judges one key and reports each breach to found. It returns false if a
// value was written twice, so that zones do not decide.
//
// The initial value is null; if that is never read, it is the value that was
// read first and never written.
func (z *registerZones) check(ops []int32, found func(breach)) bool {
	h := z.h
	z.epoch++
	if n := min(len(ops), len(z.clusters)); cap(z.order) < n {
		z.order = make([]int32, 0, n)
	}
	order := z.order[:0]
	for _, i := range ops {
		o := &h.Ops[i]
		if o.Outcome == history.Failed || o.Kind == history.KindRead && o.Outcome != history.Done {
			continue
		}
		v := z.value(o)
		c := z.at(v)
		if c.hi == -history.Never {
			order = append(order, v)
		}
		if o.Kind == history.KindWrite {
			if c.write != noWrite {
				return false
			}
			c.write, c.called, c.unknown = i, o.Call, o.Outcome == history.Unknown
		} else {
			c.reads++
		}
		if o.Ret < c.lo || c.hi == -history.Never {
			c.lo, c.first = o.Ret, i
		}
		if o.Call > c.hi {
			c.hi, c.last = o.Call, i
		}
	}
	z.order = order
	initial := z.initial(order)
	if initial >= 0 {
		c := z.at(initial)
		if c.write != noWrite {
			return false // it is written again later
		}
		c.write, c.called, c.lo, c.first = initialWrite, -history.Never, -history.Never, initialWrite
	}
	if cap(z.zones) < len(order) {
		z.zones = make([]zone, len(order))
	}
	zones := z.zones[:len(order)]
	n, m := 0, len(order)
	for _, v := range order {
		c := &z.clusters[v]
		switch {
		case c.write == noWrite:
			o := &h.Ops[c.first]
			found(breach{class: classUnwritten, key: o.Key, at: o.Ret, ops: []int32{c.first},
				why: fmt.Sprintf("process %s read %s from %s at %s, which nobody had written", h.Processes[o.Process], z.text(v), object(h, o.Key), when(h, o.Ret))})
		case c.reads > 0 && c.write >= 0 && c.lo < c.called:
			o := &h.Ops[c.first]
			found(breach{class: classFuture, key: o.Key, at: o.Ret, ops: []int32{c.first, c.write},
				why: fmt.Sprintf("process %s read %s from %s at %s, before its write was invoked at %s", h.Processes[o.Process], z.text(v), object(h, o.Key), when(h, o.Ret), when(h, c.called))})
		case c.reads == 0 && c.unknown:
			// Nobody saw it: it need not have happened.
		case c.lo < c.hi:
			zones[n] = zone{c.lo, c.hi, v}
			n++
		default:
			m--
			zones[m] = zone{c.hi, c.lo, v}
		}
	}
	z.forward, z.backward = zones[:n], zones[m:]
	sortZones(z.forward)
	widest := 0
	for k := 1; k < n; k++ {
		if z.forward[widest].hi > z.forward[k].lo {
			found(z.overlap(z.forward[widest], z.forward[k]))
		}
		if z.forward[k].hi > z.forward[widest].hi {
			widest = k
		}
	}
	z.within(found)
	return true
}

// initial is the value that the register held before the first write, as far
// as it was read, or -1.
func (z *registerZones) initial(order []int32) int32 {
	if c := z.at(z.null); c.reads > 0 && (c.write == noWrite || c.lo < c.called) {
		return z.null
	}
	best := int32(-1)
	for _, v := range order {
		c := &z.clusters[v]
		if c.write == noWrite || c.reads > 0 && c.lo < c.called {
			if best < 0 || c.lo < z.clusters[best].lo {
				best = v
			}
		}
	}
	return best
}

func (z *registerZones) text(v int32) string {
	if int(v) == len(z.h.Values) {
		return "null"
	}
	return shorten(z.h.Values[v])
}

// shorten keeps long values out of sentences.
func shorten(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}

func (z *registerZones) overlap(a, b zone) breach {
	h := z.h
	x, y := z.at(a.value), z.at(b.value)
	late := &h.Ops[x.last]
	bre := breach{class: classStale, key: late.Key, at: late.Call, ops: z.proof(x, y)}
	bre.why = fmt.Sprintf("%s was still read from %s by process %s at %s, though %s had been seen at %s, after %s had been seen at %s",
		z.text(a.value), object(h, late.Key), h.Processes[late.Process], when(h, late.Call), z.text(b.value), when(h, b.lo), z.text(a.value), when(h, a.lo))
	return bre
}

// proof is the operations that bound two clusters.
func (z *registerZones) proof(cs ...*cluster) []int32 {
	var ops []int32
	for _, c := range cs {
		for _, i := range []int32{c.write, c.first, c.last} {
			if i >= 0 {
				ops = append(ops, i)
			}
		}
	}
	slices.Sort(ops)
	return slices.Compact(ops)
}

// within reports the backward zones that lie inside a forward one. Both come
// almost in order, so the search goes on from where the last one ended.
func (z *registerZones) within(found func(breach)) {
	n := len(z.forward)
	j := n
	for _, b := range z.backward {
		// j becomes the number of forward zones that begin before b.
		for steps := 0; j < n && z.forward[j].lo < b.lo; j++ {
			if steps++; steps > 64 {
				j = sort.Search(n, func(k int) bool { return z.forward[k].lo >= b.lo })
				break
			}
		}
		for steps := 0; j > 0 && z.forward[j-1].lo >= b.lo; j-- {
			if steps++; steps > 64 {
				j = sort.Search(n, func(k int) bool { return z.forward[k].lo >= b.lo })
				break
			}
		}
		if j == 0 || z.forward[j-1].hi <= b.hi {
			continue
		}
		f := z.forward[j-1]
		x, y := z.at(f.value), z.at(b.value)
		late := &z.h.Ops[x.last]
		found(breach{class: classStale, key: late.Key, at: late.Call, ops: z.proof(x, y),
			why: fmt.Sprintf("%s was still read from %s by process %s at %s, though %s was written between %s and %s, after %s had been seen at %s",
				z.text(f.value), object(z.h, late.Key), z.h.Processes[late.Process], when(z.h, late.Call), z.text(b.value), when(z.h, b.lo), when(z.h, b.hi), z.text(f.value), when(z.h, f.lo))})
	}
}

// sortZones sorts by lo. Insertion is linear on what is almost sorted; it gives
// up for a general sort when it is not.
func sortZones(s []zone) {
	budget := 8*len(s) + 64
	for i := 1; i < len(s); i++ {
		x := s[i]
		j := i
		for ; j > 0 && s[j-1].lo > x.lo; j-- {
			s[j] = s[j-1]
			budget--
		}
		s[j] = x
		if budget < 0 {
			slices.SortFunc(s, func(a, b zone) int { return compare64(a.lo, b.lo) })
			return
		}
	}
}
