package checker

import (
	"cmp"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// checkShared is the verdicts on a lock that several may hold at once.
func checkShared(h *history.History, o Options, m Model) []Property {
	p, _ := checkLock(h, o, m)
	p.Name = Mutex
	ps := []Property{p}
	for _, name := range []string{Lease, Token, Fence, Release, Liveness} {
		ps = append(ps, Property{Name: name, Convention: o.convention(name, "1"), Verdict: NotApplicable, Why: "it is a property of a lock with one holder, and a " + m.String() + " may have several"})
	}
	return ps
}

func countGrants(h *history.History) (n int) {
	for i := range h.Ops {
		if op := &h.Ops[i]; op.Kind == history.KindAcquire && op.Outcome == history.Done {
			n++
		}
	}
	return n
}

// place is a process at a lock.
type place struct{ process, key int32 }

// outermostSections is the history of a reentrant lock without nested acquires
// and their releases: what is left is one of a plain lock, theorem T9. An
// acquire of unknown outcome adds no depth and a release of unknown outcome
// takes one away, so that no section is longer than is certain.
func outermostSections(h *history.History, strict bool) *history.History {
	out := *h
	out.Ops = make([]history.Op, 0, len(h.Ops))
	depth := map[place]int{}
	notices := h.Notices
	for _, op := range h.Ops {
		for ; len(notices) > 0 && notices[0].Time <= op.Call; notices = notices[1:] {
			delete(depth, place{notices[0].Process, notices[0].Key})
		}
		at := place{op.Process, op.Key}
		switch d := depth[at]; op.Kind {
		case history.KindAcquire:
			if op.Outcome == history.Done {
				depth[at] = d + 1
			}
			if d > 0 {
				continue
			}
		case history.KindRelease:
			switch {
			case op.Outcome == history.Failed && strict:
			case op.Outcome == history.Failed:
				delete(depth, at) // it held nothing any more
			case d > 1:
				depth[at] = d - 1
				continue
			default:
				delete(depth, at)
			}
		}
		out.Ops = append(out.Ops, op)
	}
	return &out
}

// noticed is the history with each loss notice as the release of what its
// process held, and without the releases of that which came too late. It also
// returns the number of holds that were lost so, and the index of the first
// notice in Ops, -1 if there is none.
func noticed(h *history.History, strict bool) (out *history.History, lost int, first int32) {
	type held struct {
		acquires []int32
		told     int // holds whose release is still to come
	}
	at := map[place]*held{}
	var ends []history.Op
	late := map[int32]bool{}
	notices := h.Notices
	tell := func(until int64) {
		for ; len(notices) > 0 && notices[0].Time <= until; notices = notices[1:] {
			n := &notices[0]
			x := at[place{n.Process, n.Key}]
			if x == nil {
				continue
			}
			kept := x.acquires[:0]
			for _, i := range x.acquires {
				a := &h.Ops[i]
				if a.Ret > n.Time {
					kept = append(kept, i) // the news was of an earlier hold
					continue
				}
				ends = append(ends, history.Op{
					Call: n.Time, Ret: n.Time, Process: n.Process, Key: n.Key, Index: n.Index, RetIndex: -1,
					Value: a.Value, Kind: history.KindRelease, Outcome: history.Done,
				})
				x.told++
			}
			x.acquires = kept
		}
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		tell(op.Call)
		p := place{op.Process, op.Key}
		x := at[p]
		switch {
		case op.Kind == history.KindAcquire && op.Outcome == history.Done:
			if x == nil {
				x = &held{}
				at[p] = x
			}
			x.acquires, x.told = append(x.acquires, int32(i)), 0
		case op.Kind != history.KindRelease || x == nil || op.Outcome == history.Failed && strict:
		case len(x.acquires) > 0:
			x.acquires = x.acquires[:len(x.acquires)-1]
		case x.told > 0:
			x.told--
			late[int32(i)] = true
		}
	}
	tell(history.Never)
	c := *h
	c.Ops, c.Notices = make([]history.Op, 0, len(h.Ops)+len(ends)), nil
	for i := range h.Ops {
		if !late[int32(i)] {
			c.Ops = append(c.Ops, h.Ops[i])
		}
	}
	c.Ops = append(c.Ops, ends...)
	slices.SortStableFunc(c.Ops, func(x, y history.Op) int { return cmp.Compare(x.Call, y.Call) })
	first = -1
	if len(ends) > 0 {
		first = int32(slices.IndexFunc(c.Ops, func(op history.Op) bool { return op.Index == ends[0].Index }))
	}
	return &c, len(ends), first
}
