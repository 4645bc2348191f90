package checker

import (
	"cmp"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// write is one request that the resource applied, with the grant under which it
// was made.
type write struct {
	applied int32 // index in History.Applied
	hold    int32 // index in holds, -1 if it was made under no known grant
}

// fenceResult is what is known of the resource behind one lock.
type fenceResult struct {
	accepted int // writes accepted
	judged   int // of these, writes with a known grant or token
	count    int
	first    int64
	pair     [2]write // the newer grant's write, and the older one's that was accepted after it
	// rejected are writes that were rejected though none of a newer grant had
	// been accepted.
	rejected []int32
}

func (r *fenceResult) add(newer, older write, at int64) {
	if r.count == 0 {
		r.first, r.pair = at, [2]write{newer, older}
	}
	r.count++
}

// fencing decides, in the order in which the resource applied writes, whether it
// accepted one of an older grant after one of a newer grant, theorem T7.
//
// Grants are ordered by token where tokens are sound, else by what is certain of
// their order: requests after confirmations, and the order of holds where
// exclusion holds. So locks that hand out no token are judged too.
func (cs *claims) fencing(k *key, low *bounds, applied []int32, soundTokens, exclusive bool) fenceResult {
	var r fenceResult
	if len(applied) == 0 {
		return r
	}
	f := newFinder(cs, k)
	var top, late, sure, any write // accepted so far: highest token, last requested, latest mark
	top.hold, late.hold, sure.hold, any.hold = -1, -1, -1, -1
	topToken, seen := int64(0), false
	for _, i := range applied {
		a := &cs.h.Applied[i]
		if a.Kind != history.KindWrite {
			continue
		}
		w := write{i, f.grant(a)}
		if a.Accepted {
			r.accepted++
		}
		if soundTokens && a.HasToken {
			switch {
			case !a.Accepted:
				if !seen || a.Token >= topToken {
					r.rejected = append(r.rejected, i)
				}
			default:
				r.judged++
				if seen && a.Token < topToken {
					r.add(top, w, a.Time)
				} else {
					top, topToken, seen = w, a.Token, true
				}
			}
			continue
		}
		if w.hold < 0 {
			continue
		}
		h := &k.holds[w.hold]
		newer := write{hold: -1}
		if late.hold >= 0 && h.b < k.holds[late.hold].a {
			newer = late
		} else if exclusive && sure.hold >= 0 && h.b < low.mark(k, sure.hold) {
			newer = sure
		}
		if !a.Accepted {
			if any.hold >= 0 && newer.hold < 0 && !a.HasToken {
				r.rejected = append(r.rejected, i)
			}
			continue
		}
		r.judged++
		any = w
		if newer.hold >= 0 {
			r.add(newer, w, a.Time)
			continue
		}
		if late.hold < 0 || h.a > k.holds[late.hold].a {
			late = w
		}
		if sure.hold < 0 || low.mark(k, w.hold) > low.mark(k, sure.hold) {
			sure = w
		}
	}
	return r
}

// finder finds the grant under which a request was made.
type finder struct {
	cs    *claims
	k     *key
	token map[int64]int32 // first hold with the token; made when needed
	by    map[int32]*own
	near  int // position in Ops of the operation found last
}

// own are the holds of one process, in the order of confirmation.
type own struct {
	holds []int32
	near  int // the number found last
}

func newFinder(cs *claims, k *key) *finder {
	f := &finder{cs: cs, k: k, by: map[int32]*own{}}
	var last *own // histories repeat themselves
	process := int32(-1)
	for i := range k.holds {
		if p := k.holds[i].process; p != process {
			process, last = p, f.by[p]
			if last == nil {
				last = &own{}
				f.by[p] = last
			}
		}
		last.holds = append(last.holds, int32(i))
	}
	return f
}

// withToken is the first hold with a token.
func (f *finder) withToken(token int64) (int32, bool) {
	if f.token == nil {
		f.token = make(map[int64]int32, f.k.tokens)
		for i := range f.k.holds {
			if h := &f.k.holds[i]; h.hasToken && !h.resumed {
				if _, ok := f.token[h.token]; !ok {
					f.token[h.token] = int32(i)
				}
			}
		}
	}
	n, ok := f.token[token]
	return n, ok
}

// grant is the index of the hold under which a request was made, or -1: that
// with its token if the client has such a grant, else the client's last grant
// before it sent the request, or, if it is not known when that was, before it
// was applied, so that a write is never called older than it may be.
func (f *finder) grant(a *history.Applied) int32 {
	client, sent := a.Client, a.Time
	if op := f.cs.operationNear(a.Op, &f.near); op != nil {
		client, sent = op.Process, op.Call
	}
	i := f.lastBefore(client, sent)
	if !a.HasToken || i < 0 || f.k.holds[i].token == a.Token {
		return i
	}
	if n, ok := f.withToken(a.Token); ok && f.k.holds[n].process == client {
		return n
	}
	return i
}

// lastBefore is the last hold of a process that was confirmed by t, or -1. It is
// mostly near the one that was found last.
func (f *finder) lastBefore(process int32, t int64) int32 {
	o := f.by[process]
	if o == nil {
		return -1
	}
	lo, hi := 0, len(o.holds)
	after := func(n int) bool { return f.k.holds[o.holds[n]].b > t }
	if n := o.near; n > 0 && after(n-1) {
		hi = n - 1
	} else if lo = n; n < hi && !after(n) {
		if lo++; lo < hi && after(lo) {
			hi = lo
		}
	} else {
		hi = n
	}
	for lo < hi {
		mid := (lo + hi) / 2
		if after(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if o.near = lo; lo == 0 {
		return -1
	}
	return o.holds[lo-1]
}

// operation is the operation whose invocation has the index, or nil.
func (cs *claims) operation(index int32) *history.Op {
	var near int
	return cs.operationNear(index, &near)
}

// operationNear looks for it first near a position in Ops, which it updates: the
// resource applies requests almost in the order in which they were made.
func (cs *claims) operationNear(index int32, near *int) *history.Op {
	if index < 0 {
		return nil
	}
	ops := cs.h.Ops
	lo, hi := 0, len(ops)
	const far = 64
	if n := *near; n < len(ops) && ops[n].Index <= index {
		lo = n
		if m := n + far; m < hi && ops[m].Index > index {
			hi = m
		}
	} else if m := n - far; m >= 0 && n < len(ops) && ops[m].Index <= index {
		lo, hi = m, n
	}
	for lo < hi {
		mid := (lo + hi) / 2
		if ops[mid].Index < index {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(ops) && ops[lo].Index == index {
		*near = lo
		return &ops[lo]
	}
	return nil
}

// observed judges writes as the clients saw them, for a history without the
// resource's own record: a write with a lower token that was invoked after one
// with a higher token had been confirmed was accepted out of order.
func (cs *claims) observed(ops []int32) (count, judged int, pair [2]int32) {
	slices.SortStableFunc(ops, func(x, y int32) int { return cmp.Compare(cs.h.Ops[x].Token, cs.h.Ops[y].Token) })
	late := int32(-1) // of those with a lower token, the one that was invoked last
	for n := 0; n < len(ops); {
		same := n
		next := late
		for ; same < len(ops) && cs.h.Ops[ops[same]].Token == cs.h.Ops[ops[n]].Token; same++ {
			op := &cs.h.Ops[ops[same]]
			if late >= 0 && op.Ret < cs.h.Ops[late].Call {
				if count == 0 {
					pair = [2]int32{ops[same], late}
				}
				count++
			}
			if next < 0 || op.Call > cs.h.Ops[next].Call {
				next = ops[same]
			}
		}
		late, n = next, same
	}
	return count, len(ops), pair
}
