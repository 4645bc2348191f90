package checker

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// Classes of violations of a lock model, which shrinking keeps.
const (
	classOverlap = "overlap"
	classOrphan  = "release without hold"
	classToken   = "token"
	classVisit   = "no room for a released hold"
)

// breach is one violation, and what proves it.
type breach struct {
	class string
	why   string
	key   int32
	at    int64
	ops   []int32 // positions in History.Ops
	holds []tenure
}

// lockCase judges the keys of one history under one lock model.
type lockCase struct {
	h       *history.History
	m       Model
	horizon int64 // time of the last event: where open holds are cut to measure overlap

	breaches int
	overlap  int64
	first    *breach
	unsure   string // why some key could not be decided

	limit    searchTime // for deciding
	opinions searchTime // for second opinions
	refusals lockRefusals
	ended    int
	firstEd  int32
}

// lockRefusals counts acquires that failed, by what the holds say of them. A
// refusal while the lock was free is unavailability, not a lack of safety.
type lockRefusals struct {
	free    int // the lock was certainly free
	unsure  int // explained only by an operation whose outcome is unknown
	firstAt int32
}

// checkLock decides linearizability under a lock model, exactly (T1, T3, T9):
// every hold contains its core, and taking each acquire at its return and each
// release at its call is a linearization if the cores are compatible.
//
// Failed acquires never make a history invalid. A refusal claims that somebody
// held; where nobody can have, the verdict says so.
func checkLock(h *history.History, o Options, m Model) (Property, string) {
	p := Property{Name: Linearizable, Convention: o.convention(m.Name, "1")}
	if why := sequential(h); why != "" {
		p.Verdict, p.Why = Unknown, why
		return p, ""
	}
	c := &lockCase{m: m}
	if len(h.Notices) > 0 {
		h, c.ended, c.firstEd = noticed(h, o.strict())
	}
	c.h = h
	for i := range h.Ops {
		c.horizon = max(c.horizon, h.Ops[i].Call)
		if h.Ops[i].Outcome != history.Unknown {
			c.horizon = max(c.horizon, h.Ops[i].Ret)
		}
	}
	seats := make([]seat, 2*len(h.Processes))
	grants := 0
	for k, ops := range keyed(h, lockOperation) {
		g, err := collect(h, ops, seats, int32(k+1), m.Name == modelRWLock, o.strict())
		if err != "" {
			c.doubt(err)
			continue
		}
		grants += len(g.tenures) + len(g.visits)
		if g.ended > 0 && (c.ended == 0 || h.Ops[g.firstEd].Ret < h.Ops[c.firstEd].Ret) {
			c.firstEd = g.firstEd
		}
		c.ended += g.ended
		before := c.breaches
		c.key(int32(k), ops, g, o)
		if !o.NoSecondOpinion && c.unsure == "" {
			if s := c.audit(ops, g, c.breaches > before, o); s != nil && (p.Second == nil || s.Outcome == Disagrees) {
				p.Second = s
			}
		}
	}
	class := ""
	switch {
	case c.first != nil:
		p.Verdict, p.Why, p.Count, p.Overlap, p.First = Violated, c.first.why, c.breaches, time.Duration(c.overlap), c.first.at
		p.Witness = c.witness(c.first)
		class = c.first.class
		if c.breaches > 1 {
			p.Why += fmt.Sprintf(" (the first of %d violations)", c.breaches)
		}
	case c.unsure != "":
		p.Verdict, p.Why = Unknown, c.unsure
	case grants == 0:
		p.Verdict, p.Why = NotApplicable, "no acquire in the history succeeded"
	default:
		p.Verdict, p.Why = Held, fmt.Sprintf("%s one %s", plural(grants, "grant fits", "grants fit"), m)
	}
	if r := c.refusals; r.free > 0 {
		p.Why += fmt.Sprintf("; %s refused while the lock was certainly free, first at index %d (availability, not safety)", plural(r.free, "acquire was", "acquires were"), h.Ops[r.firstAt].Index)
	}
	if c.ended > 0 {
		f := &h.Ops[c.firstEd]
		p.Why += fmt.Sprintf("; %s release, the first by process %s, which found out at %s (index %d)", plural(c.ended, "hold was lost before its", "holds were lost before their"), h.Processes[f.Process], when(h, f.Ret), f.Index)
	}
	return p, class
}

func (c *lockCase) doubt(why string) {
	if c.unsure == "" {
		c.unsure = why
	}
}

// leads says whether a breach at time t would be the first.
func (c *lockCase) leads(t int64) bool { return c.first == nil || t < c.first.at }

func (c *lockCase) found(b breach) { c.count(b.at, func() breach { return b }) }

// count counts a breach at time t, and describes it only if it is the first.
func (c *lockCase) count(t int64, describe func() breach) {
	c.breaches++
	if c.leads(t) {
		b := describe()
		c.first = &b
	}
}

// ops returns the positions of the operations of t.
func (t *tenure) ops() []int32 {
	if t.rel < 0 {
		return []int32{t.acq}
	}
	return []int32{t.acq, t.rel}
}

// key judges one key.
func (c *lockCase) key(k int32, ops []int32, g holdings, o Options) {
	h := c.h
	before := c.breaches
	if g.ownerless(c.m) {
		c.decideBySearch(k, ops, g, o)
		return
	}
	for _, i := range g.orphans {
		o := &h.Ops[i]
		c.count(o.Ret, func() breach {
			return breach{class: classOrphan, key: k, at: o.Ret, ops: []int32{i},
				why: fmt.Sprintf("process %s released %s at %s although it held nothing", h.Processes[o.Process], object(h, k), when(h, o.Call))}
		})
	}
	nested := g.tenures
	if c.m.Name == modelReentrant || c.m.Name == modelReentrantFenced {
		g.tenures = outermost(slices.Clone(g.tenures))
	}
	if c.m.Name == modelReentrantFenced && repeats(h, ops, g.tenures) {
		c.decideBySearch(k, ops, g, o)
		return
	}
	if c.m.Name == modelReentrantFenced {
		c.nestedTokens(k, nested)
	}
	blocked := c.exclusion(k, g.tenures)
	if c.m.Name == modelFenced || c.m.Name == modelReentrantFenced {
		c.tokens(k, g.tenures)
	}
	for _, v := range g.visits {
		if !blocked.bars(v) {
			continue
		}
		o := &h.Ops[v.rel]
		c.count(o.Ret, func() breach {
			b := breach{class: classVisit, key: k, at: o.Ret, ops: []int32{v.acq, v.rel},
				why: fmt.Sprintf("process %s released %s between %s and %s, but others certainly held it all that time", h.Processes[o.Process], object(h, k), when(h, o.Call), when(h, o.Ret))}
			for _, t := range g.tenures {
				if t.ar < v.rr && t.rc > v.rc {
					b.holds = append(b.holds, t)
					b.ops = append(b.ops, t.ops()...)
				}
			}
			return b
		})
	}
	if c.breaches == before {
		switch c.m.Name {
		case modelMutex, modelOwnerMutex, modelFenced:
			c.refusals.add(refusalsMutex(h, g))
		case modelSemaphore:
			c.refusals.add(refusalsCounted(h, g, c.m.Permits))
		}
	}
}

// ---- exclusion ----

// byEnd is a binary heap of tenures, the one that ends first on top.
type byEnd []tenure

func (q *byEnd) push(t tenure) {
	s := append(*q, t)
	i := len(s) - 1
	for i > 0 && s[(i-1)/2].rc > t.rc {
		s[i] = s[(i-1)/2]
		i = (i - 1) / 2
	}
	s[i] = t
	*q = s
}

func (q *byEnd) pop() {
	s := *q
	n := len(s) - 1
	t := s[n]
	s = s[:n]
	*q = s
	for i := 0; i < n; {
		k := 2*i + 1
		if k+1 < n && s[k+1].rc < s[k].rc {
			k++
		}
		if k >= n || t.rc <= s[k].rc {
			s[i] = t
			break
		}
		s[i] = s[k]
		i = k
	}
}

// segment is an open interval of time during which a further hold is
// impossible.
type segment struct{ from, to int64 }

// blockedTimes are the segments for a writer (or any exclusive or counted
// hold) and for a reader, ascending and disjoint.
type blockedTimes struct{ writer, reader []segment }

// bars says whether the release of v lies strictly within a segment.
func (b blockedTimes) bars(v visit) bool {
	s := b.writer
	if v.shared {
		s = b.reader
	}
	j := sort.Search(len(s), func(i int) bool { return s[i].from >= v.rc }) - 1
	return j >= 0 && s[j].to > v.rr
}

// exclusion finds the tenures that begin while too many others hold for
// certain. It sorts ts by the start of their cores.
func (c *lockCase) exclusion(k int32, ts []tenure) blockedTimes {
	slices.SortFunc(ts, func(a, b tenure) int { return compare64(a.ar, b.ar) })
	var writers, readers byEnd
	var out blockedTimes
	n := c.m.Permits
	now := int64(-history.Never)
	writerBlocked := func() bool { return len(writers) >= n || len(readers) > 0 }
	readerBlocked := func() bool { return len(writers) > 0 }
	// writerGap and readerGap say that there was room at the instant now, so
	// that a segment which begins there is not the last one's continuation.
	var writerGap, readerGap bool
	step := func(t int64) {
		if t == now {
			return
		}
		if len(writers) > n || len(writers) > 0 && len(readers) > 0 {
			c.overlap += min(t, c.horizon) - min(now, c.horizon)
		}
		if writerBlocked() {
			out.writer = extend(out.writer, now, t, writerGap)
		}
		if readerBlocked() {
			out.reader = extend(out.reader, now, t, readerGap)
		}
		now, writerGap, readerGap = t, false, false
	}
	expire := func(until int64) {
		for len(writers)+len(readers) > 0 {
			q := &writers
			if len(writers) == 0 || len(readers) > 0 && readers[0].rc < writers[0].rc {
				q = &readers
			}
			t := (*q)[0].rc
			if t > until {
				return
			}
			step(t)
			q.pop()
			writerGap = writerGap || !writerBlocked()
			readerGap = readerGap || !readerBlocked()
		}
	}
	for _, t := range ts {
		expire(t.ar)
		step(t.ar)
		var with []tenure
		switch {
		case t.shared && len(writers) > 0:
			with = writers[:1]
		case !t.shared && len(readers) > 0:
			with = readers[:1]
		case !t.shared && len(writers) >= n:
			with = writers[:n]
		}
		if with != nil {
			c.count(t.ar, func() breach { return c.crowd(k, t, with) })
		}
		if t.shared {
			readers.push(t)
		} else {
			writers.push(t)
		}
	}
	expire(history.Never)
	return out
}

// extend appends the segment (from, to), or lengthens the last one if it ends
// at from with no room there.
func extend(s []segment, from, to int64, gap bool) []segment {
	if n := len(s); n > 0 && !gap && s[n-1].to == from {
		s[n-1].to = to
		return s
	}
	return append(s, segment{from, to})
}

func (c *lockCase) crowd(k int32, t tenure, with []tenure) breach {
	h := c.h
	b := breach{class: classOverlap, key: k, at: t.ar, holds: append(slices.Clone(with), t)}
	var who []string
	until := t.rc
	for _, w := range with {
		who = append(who, fmt.Sprintf("%s (since %s)", h.Processes[w.process], when(h, w.ar)))
		until = min(until, w.rc)
	}
	for _, x := range b.holds {
		b.ops = append(b.ops, x.ops()...)
	}
	if n := len(who); n > 4 {
		who = append(who[:4], fmt.Sprintf("%d more", n-4))
	}
	b.why = fmt.Sprintf("%s was granted to %s at %s while %s certainly held it, until %s at least", object(h, k), h.Processes[t.process], when(h, t.ar), list(who), when(h, until))
	return b
}

// ---- tokens ----

// tokens demands that tokens rise along the order of the cores, which is the
// order of grants when the cores are disjoint (T4).
func (c *lockCase) tokens(k int32, ts []tenure) {
	last := -1
	for i := range ts {
		if !ts[i].hasToken {
			continue
		}
		if last >= 0 && ts[i].token <= ts[last].token {
			a, b := ts[last], ts[i]
			c.count(b.ar, func() breach {
				return breach{class: classToken, key: k, at: b.ar, ops: append(a.ops(), b.ops()...), holds: []tenure{a, b},
					why: fmt.Sprintf("%s was granted to %s with token %d at %s, after %s had been granted token %d at %s",
						object(c.h, k), c.h.Processes[b.process], b.token, when(c.h, b.ar), c.h.Processes[a.process], a.token, when(c.h, a.ar))}
			})
		}
		last = i
	}
}

// nestedTokens demands that a nested grant repeats the token of the outermost.
func (c *lockCase) nestedTokens(k int32, ts []tenure) {
	byProcess(ts)
	outer := -1
	until := int64(0)
	for i := range ts {
		t := &ts[i]
		if outer < 0 || ts[outer].process != t.process || t.ar > until {
			outer, until = i, t.rc
			continue
		}
		until = max(until, t.rc)
		if o := &ts[outer]; !o.hasToken {
			o.token, o.hasToken = t.token, t.hasToken
		} else if t.hasToken && o.token != t.token {
			c.found(breach{class: classToken, key: k, at: t.ar, ops: append(o.ops(), t.ops()...), holds: []tenure{*o, *t},
				why: fmt.Sprintf("process %s acquired %s again at %s and got token %d, not the %d under which it held it", c.h.Processes[t.process], object(c.h, k), when(c.h, t.ar), t.token, o.token)})
		}
	}
}

// ---- refused acquires ----

func (r *lockRefusals) add(s lockRefusals) {
	if r.free == 0 {
		r.firstAt = s.firstAt
	}
	r.free += s.free
	r.unsure += s.unsure
}

func (r *lockRefusals) count(i int32) {
	if r.free == 0 {
		r.firstAt = i
	}
	r.free++
}

// refusalsMutex judges refusals of an exclusive lock whose cores are disjoint
// and sorted (T2): a refusal is right if it touches a core, or the latest end
// of the hold before it, or the earliest start of the hold after it.
func refusalsMutex(h *history.History, g holdings) lockRefusals {
	var r lockRefusals
	earliest := int64(history.Never) // an unknown acquire that nothing followed can only be the last holder
	for _, i := range g.open {
		earliest = min(earliest, h.Ops[i].Call)
	}
	for _, i := range g.refused {
		f := &h.Ops[i]
		j := sort.Search(len(g.tenures), func(k int) bool { return g.tenures[k].rc >= f.Call })
		if j < len(g.tenures) && g.tenures[j].ar <= f.Ret {
			continue
		}
		before, after := int64(-history.Never), earliest
		lo, hi := int64(-history.Never), int64(history.Never)
		if j > 0 {
			before, lo = g.tenures[j-1].rr, g.tenures[j-1].rc
		}
		if j < len(g.tenures) {
			after, hi = g.tenures[j].ac, g.tenures[j].ar
		}
		stretched := f.Call <= before || f.Ret >= after
		switch {
		case stretched && len(g.visits) == 0:
		case stretched, touches(g.visits, lo, hi, f.Ret), touches(g.maybe, lo, hi, f.Ret):
			r.unsure++ // visits may need the time that the neighbours would take
		default:
			r.count(i)
		}
	}
	return r
}

// touches says whether some visit can lie in the gap (lo, hi) and begin by t.
func touches(vs []visit, lo, hi, t int64) bool {
	for _, v := range vs {
		if v.rr >= lo && v.ac <= hi && v.ac <= t {
			return true
		}
	}
	return false
}

// refusalsCounted judges refusals of a semaphore from both sides: right where
// the cores alone reach the permits, wrong where even the widest holds do not.
func refusalsCounted(h *history.History, g holdings, permits int) lockRefusals {
	var r lockRefusals
	if len(g.refused) == 0 {
		return r
	}
	var sure, wide []edge
	for i := range g.tenures {
		t := &g.tenures[i]
		sure = append(sure, edge{t.ar, 1}, edge{t.rc, -1})
		wide = append(wide, edge{t.ac, 1}, edge{t.rr, -1})
	}
	for _, vs := range [][]visit{g.visits, g.maybe} {
		for _, v := range vs {
			wide = append(wide, edge{v.ac, 1}, edge{v.rr, -1})
		}
	}
	for _, i := range g.open {
		wide = append(wide, edge{h.Ops[i].Call, 1})
	}
	full, perhaps := stretches(sure, permits), stretches(wide, permits)
	for _, i := range g.refused {
		f := &h.Ops[i]
		switch {
		case hits(full, f.Call, f.Ret):
		case hits(perhaps, f.Call, f.Ret):
			r.unsure++
		default:
			r.count(i)
		}
	}
	return r
}

type edge struct {
	t int64
	d int
}

// stretches returns the closed intervals during which at least n hold.
func stretches(es []edge, n int) [][2]int64 {
	slices.SortFunc(es, func(a, b edge) int {
		if c := compare64(a.t, b.t); c != 0 {
			return c
		}
		return b.d - a.d
	})
	var out [][2]int64
	held := 0
	for _, e := range es {
		was := held
		held += e.d
		switch {
		case was < n && held >= n:
			out = append(out, [2]int64{e.t, history.Never})
		case was >= n && held < n:
			out[len(out)-1][1] = e.t
		}
	}
	return out
}

func hits(s [][2]int64, from, to int64) bool {
	j := sort.Search(len(s), func(i int) bool { return s[i][1] >= from })
	return j < len(s) && s[j][0] <= to
}

// ---- witness ----

func (c *lockCase) witness(b *breach) *Witness {
	h := c.h
	w := &Witness{Why: b.why, Key: h.Keys[b.key], Events: opEvents(h, b.ops)}
	for _, t := range b.holds {
		x := Hold{Process: h.Processes[t.process], Acquire: int64(h.Ops[t.acq].Index), From: t.ar, To: t.rc, End: "release"}
		if t.rel < 0 {
			x.End = "end of history"
		}
		if t.hasToken {
			token := t.token
			x.Token = &token
		}
		w.Holds = append(w.Holds, x)
	}
	return w
}

// opEvents returns the indexes of the events of some operations, ascending.
func opEvents(h *history.History, ops []int32) []int64 {
	ev := make([]int64, 0, 2*len(ops))
	for _, i := range ops {
		ev = append(ev, int64(h.Ops[i].Index))
		if h.Ops[i].RetIndex >= 0 {
			ev = append(ev, int64(h.Ops[i].RetIndex))
		}
	}
	slices.Sort(ev)
	return slices.Compact(ev)
}
