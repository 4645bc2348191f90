package checker

import (
	"cmp"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// releaseResult is what is known of the releases of one lock.
type releaseResult struct {
	tested int // releases by processes that did not hold, or not any more
	faults []badRelease
	// explained are the holds whose grant, while another's stood, is explained
	// by a stray release: ascending indexes in holds.
	explained []int
}

// badRelease is a release that should not have been answered ok, or that took
// away another's lock.
type badRelease struct {
	op     int32 // index in Ops of the release
	own    int   // the releasing process's last hold, -1
	victim int   // the hold that stood, or the later grant that proves the loss
	next   int   // the grant that the deletion allowed, or -1
	fail   int32 // index in Ops of the victim's operation that found its lock gone, or -1
	at     int64
}

// stray is a release by a process that does not hold any more, as far as the
// evidence goes.
type stray struct {
	op  int32
	own int // its last hold before, -1
}

// releases decides whether only holders' releases freed the lock, and whether
// releases after a loss said so. promise is the exclusion that counts for the
// lock: its leases, or its claims where it has none.
func (cs *claims) releases(k *key, promise *overlaps, x []int64) releaseResult {
	var r releaseResult
	strays := cs.strays(k, x)
	bad := map[int32]bool{}
	for _, s := range strays {
		r.tested++
		op := &cs.h.Ops[s.op]
		if op.Outcome != history.Done {
			continue
		}
		if j := cs.proof(k, s, x); j >= 0 {
			bad[s.op] = true
			r.faults = append(r.faults, badRelease{op: s.op, own: s.own, victim: j, next: -1, fail: -1, at: op.Ret})
		}
	}
	cs.shadow(k, promise, x, strays, bad, &r)
	// A holder that was told of its loss before its lease can have ended, and
	// a stray release in between.
	for i := range k.holds {
		h := &k.holds[i]
		at, op := cs.toldEarly(h, x[i])
		if at < 0 {
			continue
		}
		if s, ok := cs.thief(k, strays, i, at); ok {
			r.deleted(bad, badRelease{op: s.op, own: s.own, victim: i, next: -1, fail: op, at: at})
		}
	}
	slices.SortStableFunc(r.faults, func(x, y badRelease) int {
		switch {
		case x.at < y.at:
			return -1
		case x.at > y.at:
			return 1
		}
		return 0
	})
	slices.Sort(r.explained)
	return r
}

// shadow finds the grants made while another's hold stood that are a stray
// release's doing: there is one in between, or one took away a lock not long
// before. For who was robbed does not know, and releases in turn what is
// another's, until no hold stands any more that was granted meanwhile.
func (cs *claims) shadow(k *key, promise *overlaps, x []int64, strays []stray, bad map[int32]bool, r *releaseResult) {
	deletions := slices.Clone(r.faults)
	slices.SortStableFunc(deletions, func(x, y badRelease) int { return cmp.Compare(cs.h.Ops[x.op].Call, cs.h.Ops[y.op].Call) })
	end, next := int64(-1), 0
	for i := range k.holds {
		h := &k.holds[i]
		for len(deletions) > 0 && cs.h.Ops[deletions[0].op].Call < h.b {
			v := deletions[0].victim
			end = max(end, cs.over(&k.holds[v], x[v]))
			deletions = deletions[1:]
		}
		in := h.b < end
		for ; next < promise.count && promise.grants[next] == i; next++ {
			victim := promise.met[next]
			if s, ok := cs.thief(k, strays, victim, h.b); ok {
				r.deleted(bad, badRelease{op: s.op, own: s.own, victim: victim, next: i, fail: -1, at: h.b})
				end, in = max(end, cs.over(&k.holds[victim], x[victim])), true
			}
			if in {
				r.explained = append(r.explained, i)
			}
		}
		if in {
			end = max(end, cs.over(h, x[i]))
		}
	}
}

// over is when a hold, and a release of it that is under way, can be over.
func (cs *claims) over(h *hold, x int64) int64 {
	if h.release < 0 {
		return h.until(x)
	}
	if ret := cs.h.Ops[h.release].Ret; ret < never {
		return max(h.until(x), ret)
	}
	return max(h.until(x), h.expiry(x))
}

// deleted records that a release took away another's lock. It replaces the lesser
// fault that the same release was answered ok.
func (r *releaseResult) deleted(bad map[int32]bool, b badRelease) {
	if bad[b.op] {
		for i := range r.faults {
			f := &r.faults[i]
			if f.op == b.op && f.next < 0 && f.fail < 0 {
				*f = b
				return
			}
		}
		return // it has been blamed for a deletion already
	}
	bad[b.op] = true
	r.faults = append(r.faults, b)
}

// strays lists the releases of a lock by processes that did not hold it.
func (cs *claims) strays(k *key, x []int64) []stray {
	var ss []stray
	if len(k.stray) > 0 || len(k.ghosts) > 0 {
		f := newFinder(cs, k)
		for _, op := range k.stray {
			ss = append(ss, stray{op: op, own: int(f.lastBefore(cs.h.Ops[op].Process, cs.h.Ops[op].Call))})
		}
		for _, g := range k.ghosts {
			ss = append(ss, stray{op: g.release, own: -1})
		}
	}
	for i := range k.holds {
		h := &k.holds[i]
		if h.release < 0 {
			continue
		}
		s := stray{op: h.release, own: i}
		op := &cs.h.Ops[h.release]
		if k.successor(i, op.Call, x) >= 0 || op.Outcome == history.Failed {
			ss = append(ss, s)
		}
	}
	slices.SortFunc(ss, byOp)
	return ss
}

func byOp(x, y stray) int { return int(x.op - y.op) }

// successor is a hold that proves that hold i had ended before t: another
// client's, certainly granted after i, and not before i's lease could end. It is
// -1 where there is none, and where a renewal of unknown outcome may have
// extended the lease.
func (k *key) successor(i int, t int64, x []int64) int {
	h := &k.holds[i]
	if h.ttl == 0 || h.tried > h.q || i+1 == len(k.holds) || k.holds[i+1].b >= t {
		return -1
	}
	e := max(h.expiry(x[i]), h.b)
	j, _ := slices.BinarySearchFunc(k.holds, e, func(h hold, t int64) int {
		if h.b < t {
			return -1
		}
		return 1
	})
	for ; j < len(k.holds) && k.holds[j].b < t; j++ {
		n := &k.holds[j]
		if n.process == h.process {
			return -1
		}
		if h.b < n.a || n.until(min(x[j], n.b)) > h.b {
			return j
		}
	}
	return -1
}

// proof is a hold that proves that a stray release cannot have been its own
// process's to make, or -1.
func (cs *claims) proof(k *key, s stray, x []int64) int {
	op := &cs.h.Ops[s.op]
	if s.own >= 0 {
		if j := k.successor(s.own, op.Call, x); j >= 0 && k.holds[s.own].end != byAgain {
			released := k.holds[s.own].release >= 0 && k.holds[s.own].release != s.op
			if !released {
				return j
			}
		}
		if k.holds[s.own].release == s.op {
			return -1
		}
	}
	// It lies within another's hold: whatever the process asked for before, it
	// did not hold.
	j, _ := slices.BinarySearchFunc(k.holds, op.Call, func(h hold, t int64) int {
		if h.b < t {
			return -1
		}
		return 1
	})
	if j--; j >= 0 && k.holds[j].process != op.Process && op.Ret < k.holds[j].until(x[j]) {
		return j
	}
	return -1
}

// thief is a stray release that can have deleted the victim's lock before t: one
// that was not denied, by another process, invoked after the victim's grant was
// confirmed, or still under way then although its own hold was over.
func (cs *claims) thief(k *key, strays []stray, victim int, t int64) (stray, bool) {
	v := &k.holds[victim]
	n, _ := slices.BinarySearchFunc(strays, t, func(s stray, t int64) int {
		if cs.h.Ops[s.op].Call < t {
			return -1
		}
		return 1
	})
	// A release from long before the victim's grant is no suspect.
	for tries := 0; n > 0 && tries < 64; tries++ {
		n--
		s := strays[n]
		op := &cs.h.Ops[s.op]
		if op.Outcome == history.Failed || op.Process == v.process {
			continue
		}
		late := s.own >= 0 && k.holds[s.own].ttl > 0 && k.holds[s.own].expiry(k.holds[s.own].a) <= v.b
		if op.Call >= v.b || late && op.Ret > v.b {
			return s, true
		}
	}
	return stray{}, false
}

// toldEarly is when and by which operation a client was told that it had lost a
// lease which had certainly not ended by then, or -1, -1.
func (cs *claims) toldEarly(h *hold, x int64) (at int64, op int32) {
	if h.ttl == 0 {
		return -1, -1
	}
	switch {
	case h.end == byFailedRelease && cs.h.Ops[h.release].Ret < h.expiry(x):
		return cs.h.Ops[h.release].Ret, h.release
	case h.end == byFailedRenewal && h.c < h.expiry(x):
		return h.c, -1
	}
	return -1, -1
}
