package checker

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// Shrunk is the smallest part of a history that still violates a property.
type Shrunk struct {
	Property string
	// Verdict is the property's on the part that was kept.
	Verdict Property
	// Events are the indexes of the events to keep, ascending: those of the
	// kept sections, and all that are not operations (header, faults, remarks).
	Events []int64
	// Sections and Before count the sections kept and those of the history.
	Sections, Before int
	// Minimal says that without any one of the sections the property is no
	// longer violated in the same way. It is false if time ran out, or if
	// sections were kept since leaving them out could invent a violation.
	Minimal bool
	// Checks is how many parts were checked.
	Checks int
}

// Shrink reduces a history that violates a property to a minimal one. The
// property is a name of Report.Properties, or Linearizable for o.Model.
//
// What is removed are whole sections: a grant with its renewals, checks, reads,
// writes, notices and release. Removing single operations would invent
// violations, since without its release any hold excludes all later ones. A part
// counts only if it violates in the same way, an overlap as an overlap, say.
// Where that is not enough, since without a write a good read becomes a bad one,
// what changes the object is kept and only reads are removed.
//
// The witness's own sections are tried first, which mostly are the answer; then
// those of its key, then all, by delta debugging (Zeller and Hildebrandt, IEEE
// TSE 28(2), 2002). o.Timeout bounds the time; what was reached by then is
// returned, with Minimal false. It is an error if the property is unknown or
// not violated.
func Shrink(h *history.History, o Options, property string) (*Shrunk, error) {
	o.NoSecondOpinion = true
	s := &shrinking{h: h, o: o, property: property, deadline: time.Now().Add(o.timeout())}
	whole, class, err := judge(h, o, property)
	if err != nil {
		return nil, err
	}
	if whole.Verdict != Violated {
		return nil, fmt.Errorf("nothing to shrink: the property %s is %s: %s", property, whole.Verdict, whole.Why)
	}
	s.class = class
	s.divide()
	pinned, free := s.pin(s.begin(whole))
	kept := s.reduce(pinned, free)
	out := &Shrunk{Property: property, Sections: len(kept), Before: len(s.sections), Checks: s.checks}
	part := s.part(kept)
	out.Verdict, _, err = judge(part, o, property)
	out.Minimal = !s.expired() && (len(pinned) == 0 || len(kept) == 1)
	out.Events = events(part)
	return out, err
}

// judge checks one property, and names the class of its violation.
func judge(h *history.History, o Options, property string) (Property, string, error) {
	switch property {
	case Linearizable:
		p, class := checkModel(h, o)
		return p, class, nil
	case State:
		p, class := stateOf(h, o, countKinds(h))
		return p, class, nil
	}
	p := Check(h, o).Property(property)
	if p == nil {
		return Property{}, "", fmt.Errorf("unknown property %q, or one that this history was not checked for", property)
	}
	return *p, "", nil
}

// section is what is removed or kept as one: positions in the history's slices.
type section struct {
	ops, applied, notices []int32
	key                   int32
	released              bool
}

type shrinking struct {
	h        *history.History
	o        Options
	property string
	class    string
	deadline time.Time
	sections []section
	checks   int
	// writers are, by key and value, the sections that wrote it.
	writers map[[2]int32][]int32
}

func (s *shrinking) expired() bool { return time.Now().After(s.deadline) }

// divide assigns every operation, notice and applied request to a section: the
// one that its process has open on its key, or one of its own.
func (s *shrinking) divide() {
	h := s.h
	type place struct{ process, key int32 }
	open := map[place][]int32{} // numbers of sections, the innermost last
	byIndex := make(map[int32]int32, len(h.Ops))
	s.writers = map[[2]int32][]int32{}
	add := func(key int32) int32 {
		s.sections = append(s.sections, section{key: key})
		return int32(len(s.sections) - 1)
	}
	current := func(process, key int32) int32 {
		if st := open[place{process, key}]; len(st) > 0 {
			return st[len(st)-1]
		}
		return add(key)
	}
	notices := h.Notices
	applied := make([]int32, 0, len(h.Applied)) // those that do not say of which request they are
	for i := range h.Applied {
		if h.Applied[i].Op < 0 {
			applied = append(applied, int32(i))
		}
	}
	until := func(t int64) {
		for ; len(notices) > 0 && notices[0].Time <= t; notices = notices[1:] {
			n := current(notices[0].Process, notices[0].Key)
			s.sections[n].notices = append(s.sections[n].notices, int32(len(h.Notices)-len(notices)))
		}
		for ; len(applied) > 0 && h.Applied[applied[0]].Time <= t; applied = applied[1:] {
			a := &h.Applied[applied[0]]
			n := current(a.Client, a.Key)
			s.sections[n].applied = append(s.sections[n].applied, applied[0])
		}
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		until(o.Call)
		at := place{o.Process, o.Key}
		var n int32
		switch {
		case o.Kind == history.KindAcquire && o.Outcome == history.Failed:
			n = add(o.Key)
		case o.Kind == history.KindAcquire:
			st := open[at]
			if k := len(st); k > 0 && s.sections[st[k-1]].released {
				st = st[:k-1]
			}
			n = add(o.Key)
			open[at] = append(st, n)
		default:
			n = current(o.Process, o.Key)
			if o.Kind == history.KindRelease {
				s.sections[n].released = true
				if st := open[at]; o.Outcome == history.Done && len(st) > 0 {
					open[at] = st[:len(st)-1]
				}
			}
		}
		s.sections[n].ops = append(s.sections[n].ops, int32(i))
		if o.Kind == history.KindWrite && o.Outcome != history.Failed {
			v := [2]int32{o.Key, o.Value}
			s.writers[v] = append(s.writers[v], n)
		}
		byIndex[o.Index] = n
	}
	until(history.Never)
	for i := range h.Applied {
		a := &h.Applied[i]
		if a.Op < 0 {
			continue
		}
		n, ok := byIndex[a.Op]
		if !ok {
			n = add(a.Key)
		}
		s.sections[n].applied = append(s.sections[n].applied, int32(i))
	}
}

// begin returns a part to start from: the smallest of the witness's sections,
// those of its key at about its time, those of its key, and all.
func (s *shrinking) begin(p Property) []int32 {
	all := make([]int32, len(s.sections))
	for i := range all {
		all[i] = int32(i)
	}
	if p.Witness == nil || len(p.Witness.Events) == 0 {
		return all
	}
	events := p.Witness.Events
	named := func(i int32) bool {
		x := &s.sections[i]
		in := func(index int32) bool {
			_, ok := slices.BinarySearch(events, int64(index))
			return index >= 0 && ok
		}
		for _, k := range x.ops {
			if in(s.h.Ops[k].Index) || in(s.h.Ops[k].RetIndex) {
				return true
			}
		}
		for _, k := range x.applied {
			if in(s.h.Applied[k].Index) {
				return true
			}
		}
		for _, k := range x.notices {
			if in(s.h.Notices[k].Index) {
				return true
			}
		}
		return false
	}
	sameKey := func(i int32) bool { return s.h.Keys[s.sections[i].key] == p.Witness.Key }
	near := func(i int32) bool {
		if !sameKey(i) {
			return false
		}
		for _, k := range s.sections[i].ops {
			o := &s.h.Ops[k]
			if int64(o.Index) <= events[len(events)-1] && (o.RetIndex < 0 || int64(o.RetIndex) >= events[0]) {
				return true
			}
		}
		return false
	}
	for _, choose := range []func(int32) bool{named, near, sameKey} {
		var part []int32
		for _, i := range all {
			if choose(i) {
				part = append(part, i)
			}
		}
		if len(part) > 0 && len(part) < len(all) && s.violates(part) {
			return part
		}
	}
	return all
}

// violates checks a part.
func (s *shrinking) violates(kept []int32) bool {
	if !s.closed(kept) {
		return false
	}
	s.checks++
	p, class, err := judge(s.part(kept), s.o, s.property)
	return err == nil && p.Verdict == Violated && class == s.class
}

// pin divides a part into the sections that have to stay and the others.
func (s *shrinking) pin(part []int32) (pinned, free []int32) {
	switch s.class {
	case classSearch, classBounds, classUnexpected, classUnwritten:
	default:
		return nil, part
	}
	changes := func(o *history.Op) bool {
		switch o.Kind {
		case history.KindWrite, history.KindCAS, history.KindAppend, history.KindAdd:
			return o.Outcome != history.Failed
		case history.KindAcquire, history.KindRelease:
			return s.property == Linearizable && o.Outcome != history.Failed
		}
		return false
	}
	for _, i := range part {
		if slices.ContainsFunc(s.sections[i].ops, func(k int32) bool { return changes(&s.h.Ops[k]) }) {
			pinned = append(pinned, i)
		} else {
			free = append(free, i)
		}
	}
	return pinned, free
}

// closed says whether a part has the writes of the values that it reads, so
// that none of them is taken for the initial value. In a lock's sections, one
// that was written once may be: it is there to be read once either way.
func (s *shrinking) closed(kept []int32) bool {
	m, err := ParseModel(s.o.Model)
	if s.property != State && (s.property != Linearizable || err != nil || m.Lock()) {
		return true
	}
	var has map[int32]bool
	for _, i := range kept {
		for _, k := range s.sections[i].ops {
			o := &s.h.Ops[k]
			if o.Kind != history.KindRead || o.Outcome != history.Done {
				continue
			}
			writers := s.writers[[2]int32{o.Key, o.Value}]
			if len(writers) == 0 || s.class == classLostUpdate && len(writers) == 1 {
				continue
			}
			if has == nil {
				has = make(map[int32]bool, len(kept))
				for _, j := range kept {
					has[j] = true
				}
			}
			for _, w := range writers {
				if !has[w] {
					return false
				}
			}
		}
	}
	return true
}

// reduce removes free sections until none can be removed: first in large
// pieces, halving their size, last one by one until a whole round removes
// nothing. It returns what is left, pinned sections included.
func (s *shrinking) reduce(pinned, free []int32) []int32 {
	for size := max(len(free)/2, 1); ; {
		removed := false
		for from := 0; from < len(free); {
			if s.expired() {
				return slices.Concat(pinned, free)
			}
			to := min(from+size, len(free))
			rest := slices.Concat(free[:from], free[to:])
			if part := slices.Concat(pinned, rest); len(part) > 0 && s.violates(part) {
				free, removed = rest, true
				continue
			}
			from = to
		}
		switch {
		case size > 1:
			size = max(size/2, 1)
		case !removed:
			return slices.Concat(pinned, free)
		}
	}
}

// part is the history that consists of some sections.
func (s *shrinking) part(kept []int32) *history.History {
	var ops, applied, notices []int32
	for _, i := range kept {
		x := &s.sections[i]
		ops = append(ops, x.ops...)
		applied = append(applied, x.applied...)
		notices = append(notices, x.notices...)
	}
	slices.Sort(ops)
	slices.Sort(applied)
	slices.Sort(notices)
	p := *s.h
	p.Ops = make([]history.Op, len(ops))
	for k, i := range ops {
		p.Ops[k] = s.h.Ops[i]
	}
	p.Applied = make([]history.Applied, len(applied))
	for k, i := range applied {
		p.Applied[k] = s.h.Applied[i]
	}
	p.Notices = make([]history.Notice, len(notices))
	for k, i := range notices {
		p.Notices[k] = s.h.Notices[i]
	}
	return &p
}

// events lists the indexes of all events of a history.
func events(h *history.History) []int64 {
	out := make([]int64, 0, 2*len(h.Ops)+len(h.Applied)+len(h.Notices)+len(h.Other))
	for i := range h.Ops {
		out = append(out, int64(h.Ops[i].Index))
		if h.Ops[i].RetIndex >= 0 {
			out = append(out, int64(h.Ops[i].RetIndex))
		}
	}
	for i := range h.Applied {
		out = append(out, int64(h.Applied[i].Index))
	}
	for i := range h.Notices {
		out = append(out, int64(h.Notices[i].Index))
	}
	for i := range h.Other {
		out = append(out, h.Other[i].Index)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
