package checker

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// Classes of violations of sets and lists.
const (
	classLost       = "lost"
	classUnexpected = "unexpected"
	classDuplicate  = "duplicated"
	classOrder      = "order"
	classDiverged   = "diverged"
)

// maxElements bounds the elements of all reads of one key together.
const maxElements = 50_000_000

// collectionRead is a read of a whole set or list.
type collectionRead struct {
	op       int32
	elements []int32 // numbers of elements, in the order read
}

// collection is what one key's operations say of a set or a list: who added
// each element, and what was read.
type collection struct {
	h     *history.History
	ids   map[string]int32 // JSON text of an element to its number
	texts []string
	adder []int32 // by element: position of its add, -1 if there is none
	twice bool    // an element was added twice
	reads []collectionRead
	bad   string // why a value could not be understood
	total int
}

func gather(h *history.History, ops []int32, add history.Kind) *collection {
	c := &collection{h: h, ids: map[string]int32{}}
	for _, i := range ops {
		o := &h.Ops[i]
		switch {
		case o.Kind == add && o.Outcome != history.Failed:
			text := "null"
			if o.Value >= 0 {
				text = h.Values[o.Value]
			}
			e := c.element(text)
			if c.adder[e] >= 0 {
				c.twice = true
			}
			c.adder[e] = i
		case o.Kind == history.KindRead && o.Outcome == history.Done:
			var raw []json.RawMessage
			if o.Value >= 0 {
				if err := json.Unmarshal([]byte(h.Values[o.Value]), &raw); err != nil {
					c.bad = fmt.Sprintf("the read at index %d returned %s, not a list of elements", o.Index, shorten(h.Values[o.Value]))
					return c
				}
			}
			c.total += len(raw)
			if c.total > maxElements {
				c.bad = fmt.Sprintf("the reads return more than %d elements together", maxElements)
				return c
			}
			r := collectionRead{op: i, elements: make([]int32, len(raw))}
			for k, e := range raw {
				r.elements[k] = c.element(string(e))
			}
			c.reads = append(c.reads, r)
		}
	}
	return c
}

func (c *collection) element(text string) int32 {
	e, ok := c.ids[text]
	if !ok {
		e = int32(len(c.texts))
		c.ids[text] = e
		c.texts = append(c.texts, text)
		c.adder = append(c.adder, -1)
	}
	return e
}

// strangers reports, in each read, the elements that nobody can have added
// before it returned, and those that occur more than once.
func (c *collection) strangers(found func(breach)) {
	h := c.h
	seen := make([]int32, len(c.texts)) // number of the read that last had the element
	told := make([]bool, len(c.texts))
	for n, r := range c.reads {
		o := &h.Ops[r.op]
		for _, e := range r.elements {
			a := c.adder[e]
			switch {
			case told[e]:
			case a < 0:
				told[e] = true
				found(breach{class: classUnexpected, key: o.Key, at: o.Ret, ops: []int32{r.op},
					why: fmt.Sprintf("process %s read the element %s from %s at %s, which nobody had added", h.Processes[o.Process], shorten(c.texts[e]), object(h, o.Key), when(h, o.Ret))})
			case h.Ops[a].Call > o.Ret:
				told[e] = true
				found(breach{class: classUnexpected, key: o.Key, at: o.Ret, ops: []int32{r.op, a},
					why: fmt.Sprintf("process %s read the element %s from %s at %s, before it was added at %s", h.Processes[o.Process], shorten(c.texts[e]), object(h, o.Key), when(h, o.Ret), when(h, h.Ops[a].Call))})
			case seen[e] == int32(n+1):
				told[e] = true
				found(breach{class: classDuplicate, key: o.Key, at: o.Ret, ops: []int32{r.op, a},
					why: fmt.Sprintf("process %s read the element %s from %s more than once at %s", h.Processes[o.Process], shorten(c.texts[e]), object(h, o.Key), when(h, o.Ret))})
			}
			seen[e] = int32(n + 1)
		}
	}
}

// lost reports the acknowledged elements that the last read does not have,
// although they had been added before it was invoked.
func (c *collection) lost(found func(breach)) {
	if len(c.reads) == 0 {
		return
	}
	h := c.h
	last := 0
	for n := range c.reads {
		if h.Ops[c.reads[n].op].Call > h.Ops[c.reads[last].op].Call {
			last = n
		}
	}
	r := &c.reads[last]
	has := make([]bool, len(c.texts))
	for _, e := range r.elements {
		has[e] = true
	}
	for e, a := range c.adder {
		if a < 0 || has[e] || h.Ops[a].Outcome != history.Done || h.Ops[a].Ret >= h.Ops[r.op].Call {
			continue
		}
		o := &h.Ops[a]
		found(breach{class: classLost, key: o.Key, at: h.Ops[r.op].Ret, ops: []int32{a, r.op},
			why: fmt.Sprintf("the element %s, added to %s by process %s at %s, is lost: the last read, at %s, does not have it", shorten(c.texts[e]), object(h, o.Key), h.Processes[o.Process], when(h, o.Ret), when(h, h.Ops[r.op].Call))})
	}
}

func (c *collection) replay(found func(breach)) *replay {
	return newReplay(c.h, classOrder, found, func(before, after *history.Op) string {
		return fmt.Sprintf("%s took effect before %s by what was read, but began after that had ended", opText(c.h, before), opText(c.h, after))
	})
}

// unread returns the acknowledged adds that no read saw.
func (c *collection) unread(seen func(e int32) bool) []int32 {
	var ops []int32
	for e, a := range c.adder {
		if a >= 0 && c.h.Ops[a].Outcome == history.Done && !seen(int32(e)) {
			ops = append(ops, a)
		}
	}
	return ops
}

// checkSet decides a set that only grows, each element added once. Lost,
// unexpected and duplicated elements are counted as Jepsen's set checkers do.
// Beyond that the reads must be nested, which forces the order of everything
// that was seen: then it is exact.
func (c *objectCase) checkSet(ops []int32) {
	g := gather(c.h, ops, history.KindAdd)
	if g.bad != "" {
		c.doubt(g.bad)
		return
	}
	before := c.breaches
	g.strangers(c.found)
	g.lost(c.found)
	c.reads += len(g.reads)
	if c.breaches > before {
		return
	}
	if g.twice {
		c.doubt("an element was added twice to " + object(c.h, c.h.Ops[ops[0]].Key) + ": its reads do not say which add they saw")
		return
	}
	slices.SortStableFunc(g.reads, func(a, b collectionRead) int { return len(a.elements) - len(b.elements) })
	rank := make([]int32, len(g.texts)) // 1 + number of the first group of reads that has the element
	r := g.replay(c.found)
	group := int32(0)
	for i := 0; i < len(g.reads); {
		group++
		var adds, reads []int32
		old := 0
		for _, e := range g.reads[i].elements {
			if rank[e] == 0 {
				rank[e] = group
				adds = append(adds, g.adder[e])
			} else {
				old++
			}
		}
		if i > 0 && old < len(g.reads[i-1].elements) {
			c.diverged(&g.reads[i-1], &g.reads[i])
			return
		}
		j := i
		for ; j < len(g.reads) && len(g.reads[j].elements) == len(g.reads[i].elements); j++ {
			for _, e := range g.reads[j].elements {
				if rank[e] == 0 {
					c.diverged(&g.reads[i], &g.reads[j])
					return
				}
			}
			reads = append(reads, g.reads[j].op)
		}
		r.group(adds...)
		r.group(reads...)
		i = j
	}
	r.group(g.unread(func(e int32) bool { return rank[e] > 0 })...)
}

// diverged reports two reads of which neither continues the other.
func (c *objectCase) diverged(a, b *collectionRead) {
	x, y := &c.h.Ops[a.op], &c.h.Ops[b.op]
	c.found(breach{class: classDiverged, key: x.Key, at: max(x.Ret, y.Ret), ops: []int32{a.op, b.op},
		why: fmt.Sprintf("process %s (at %s) and process %s (at %s) read %s with contents of which neither continues the other",
			c.h.Processes[x.Process], when(c.h, x.Ret), c.h.Processes[y.Process], when(c.h, y.Ret), object(c.h, x.Key))})
}

// checkList decides a list that only grows, each element appended once. Every
// read must be a prefix of the longest, as traceability in Elle (VLDB 2020);
// that forces the order of everything that was seen: then it is exact.
func (c *objectCase) checkList(ops []int32) {
	g := gather(c.h, ops, history.KindAppend)
	if g.bad != "" {
		c.doubt(g.bad)
		return
	}
	before := c.breaches
	g.strangers(c.found)
	g.lost(c.found)
	c.reads += len(g.reads)
	if c.breaches > before {
		return
	}
	if g.twice {
		c.doubt("an element was appended twice to " + object(c.h, c.h.Ops[ops[0]].Key) + ": its reads do not say which append they saw")
		return
	}
	slices.SortStableFunc(g.reads, func(a, b collectionRead) int { return len(a.elements) - len(b.elements) })
	var longest collectionRead
	if n := len(g.reads); n > 0 {
		longest = g.reads[n-1]
	}
	for i := range g.reads {
		if !slices.Equal(g.reads[i].elements, longest.elements[:len(g.reads[i].elements)]) {
			c.diverged(&g.reads[i], &longest)
			return
		}
	}
	r := g.replay(c.found)
	next := 0
	seen := make([]bool, len(g.texts))
	readsOf := func(n int) {
		var same []int32
		for ; next < len(g.reads) && len(g.reads[next].elements) == n; next++ {
			same = append(same, g.reads[next].op)
		}
		r.group(same...)
	}
	readsOf(0)
	for n, e := range longest.elements {
		seen[e] = true
		r.group(g.adder[e])
		readsOf(n + 1)
	}
	r.group(g.unread(func(e int32) bool { return seen[e] })...)
}
