package checker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// listed is how many findings of one code are told; the first says how many
// there are.
const listed = 5

// found collects findings, the first ones of each code.
type found struct {
	findings []Finding
	count    map[string]int
}

// add counts a finding. It asks for its words only if it is listed.
func (f *found) add(code string, events []int64, why func() string) {
	f.count[code]++
	if f.count[code] <= listed {
		f.findings = append(f.findings, Finding{Code: code, Why: why(), Events: events})
	}
}

// findings are the facts beside the verdicts, ordered by code and time.
func (cs *claims) findings(js []judged) []Finding {
	f := &found{count: map[string]int{}}
	for i := range cs.keys {
		k, j := &cs.keys[i], &js[i]
		cs.findLost(f, k)
		cs.findLate(f, k)
		cs.findFalse(f, k, j)
		cs.findGhosts(f, k)
		cs.findAgain(f, k, j)
		for _, w := range j.liveness.stuck {
			f.add(Stuck, cs.opEvents(&cs.h.Ops[w.attempt]), func() string {
				return fmt.Sprintf("nobody got %s from %s to %s, %s, though nobody was entitled to it", cs.lock(k), at(w.from), at(w.to), dur(w.to-w.from))
			})
		}
		for _, n := range j.fence.rejected {
			a := &cs.h.Applied[n]
			f.add(Rejected, []int64{int64(a.Index)}, func() string {
				return fmt.Sprintf("the resource rejected a write by %s to %s at %s, though it had accepted none of a newer grant", cs.writer(a), cs.lock(k), at(a.Time))
			})
		}
	}
	cs.findWorkload(f)
	slices.SortStableFunc(f.findings, func(x, y Finding) int { return cmp.Compare(x.Code, y.Code) })
	last := ""
	for i := range f.findings {
		if x := &f.findings[i]; x.Code != last {
			last = x.Code
			if n := f.count[x.Code]; n > 1 {
				x.Count = n
			}
		}
	}
	return f.findings
}

// findLost finds who lost a lock before releasing it.
func (cs *claims) findLost(f *found, k *key) {
	for i := range k.holds {
		h := &k.holds[i]
		if h.end != byFailedRelease && h.end != byFailedRenewal && h.end != byNotice && h.end != byCheck {
			continue
		}
		f.add(Lost, cs.events(h), func() string {
			s := fmt.Sprintf("%s lost %s before it released it: it was granted it at %s, and believed that it held it %s", cs.process(h.process), cs.lock(k), at(h.b), cs.until(h))
			if h.ttl > 0 {
				s += fmt.Sprintf("; its lease could end at %s", at(h.expiry(h.a)))
			}
			return s
		})
	}
	if len(k.denied) == 0 {
		return
	}
	finder := newFinder(cs, k)
	for _, n := range k.denied {
		op := &cs.h.Ops[n]
		i := finder.lastBefore(op.Process, op.Call)
		if i < 0 {
			continue
		}
		f.add(Lost, slices.Concat(cs.grantEvents(&k.holds[i]), cs.opEvents(op)), func() string {
			return fmt.Sprintf("%s lost %s before it released it: it was granted it at %s, and its release at %s failed", cs.process(op.Process), cs.lock(k), at(k.holds[i].b), at(op.Call))
		})
	}
}

// findLate finds claims that outlived their lease and the grace, counted from
// the last renewal that may have been granted, without notice.
func (cs *claims) findLate(f *found, k *key) {
	for i := range k.holds {
		h := &k.holds[i]
		if h.ttl == 0 || h.early == byDeath || cs.keeps(h.process) {
			continue
		}
		due := max(h.b, h.tried) + h.ttl
		until := min(h.u, max(cs.end, h.b))
		if until <= due+cs.o.grace() {
			continue
		}
		f.add(Late, cs.events(h), func() string {
			return fmt.Sprintf("%s still believed at %s that it held %s, %s after its lease had ended, and nobody had told it", cs.process(h.process), at(until), cs.lock(k), dur(until-due))
		})
	}
}

// findFalse finds answers that contradict what the service did.
func (cs *claims) findFalse(f *found, k *key, j *judged) {
	for _, n := range k.confirmed {
		op := &cs.h.Ops[n]
		f.add(False, cs.opEvents(op), func() string {
			return fmt.Sprintf("a renewal of %s by %s at %s was answered ok, though it did not hold it", cs.lock(k), cs.process(op.Process), at(op.Call))
		})
	}
	for i := range k.holds {
		h := &k.holds[i]
		if h.resumed {
			cs.findRevived(f, k, i)
		}
		t, _ := cs.toldEarly(h, j.x[i])
		if t < 0 || cs.othersIn(k, h, t) {
			continue
		}
		f.add(False, cs.events(h), func() string {
			return fmt.Sprintf("%s was told at %s that it did not hold %s, though its lease could not end before %s", cs.process(h.process), at(t), cs.lock(k), at(h.expiry(h.a)))
		})
	}
}

// othersIn says whether another client was granted the lock during a hold,
// before t: then there is more wrong than an answer.
func (cs *claims) othersIn(k *key, h *hold, t int64) bool {
	n, _ := slices.BinarySearchFunc(k.holds, h.b, func(x hold, b int64) int { return cmp.Compare(x.b, b+1) })
	return n < len(k.holds) && k.holds[n].b < t
}

// findRevived finds a renewal that was confirmed after another client had been
// granted the lock.
func (cs *claims) findRevived(f *found, k *key, i int) {
	h := &k.holds[i]
	for n := i - 1; n >= 0 && k.holds[n].process != h.process; n-- {
		o := &k.holds[n]
		if o.b < h.a {
			f.add(False, slices.Concat(cs.grantEvents(h), cs.grantEvents(o)), func() string {
				return fmt.Sprintf("a renewal of %s by %s at %s was answered ok, though %s had been granted it at %s", cs.lock(k), cs.process(h.process), at(h.a), cs.process(o.process), at(o.b))
			})
			return
		}
	}
}

// findGhosts finds grants that the caller was not told of: its later release was
// answered ok.
func (cs *claims) findGhosts(f *found, k *key) {
	for _, g := range k.ghosts {
		a, r := &cs.h.Ops[g.acquire], &cs.h.Ops[g.release]
		events := slices.Concat(cs.opEvents(a), cs.opEvents(r))
		told := "got no answer to its acquire of"
		if a.Outcome == history.Failed {
			told = "was told that it did not get"
			f.add(False, events, func() string {
				return fmt.Sprintf("an acquire of %s by %s at %s was answered no, though a release at %s was answered ok", cs.lock(k), cs.process(a.Process), at(a.Call), at(r.Call))
			})
		}
		f.add(Ghost, events, func() string {
			return fmt.Sprintf("%s %s %s at %s, yet its release at %s was answered ok: the service had granted it", cs.process(a.Process), told, cs.lock(k), at(a.Call), at(r.Call))
		})
	}
}

// findAgain finds a client that was granted a lock which it held.
func (cs *claims) findAgain(f *found, k *key, j *judged) {
	for i := range k.holds {
		h := &k.holds[i]
		if h.end != byAgain || h.c >= h.expiry(j.x[i]) {
			continue
		}
		f.add(Again, cs.events(h), func() string {
			return fmt.Sprintf("%s was granted %s at %s and, without a release, asked at %s and was granted it again", cs.process(h.process), cs.lock(k), at(h.b), at(h.c))
		})
	}
}

// findWorkload finds writes that were begun outside of a claim.
func (cs *claims) findWorkload(f *found) {
	if !slices.Contains(cs.suspect, true) {
		return
	}
	finders := make([]*finder, len(cs.keys))
	for i := range cs.h.Ops {
		op := &cs.h.Ops[i]
		if op.Kind != history.KindWrite {
			continue
		}
		k := &cs.keys[op.Key]
		if len(k.holds)+len(k.misses) == 0 {
			continue // no lock guards it
		}
		if finders[op.Key] == nil {
			finders[op.Key] = newFinder(cs, k)
		}
		n := finders[op.Key].lastBefore(op.Process, op.Call)
		if n >= 0 && op.Call < k.holds[n].u {
			continue
		}
		f.add(Workload, cs.opEvents(op), func() string {
			s := fmt.Sprintf("%s wrote to %s at %s ", cs.process(op.Process), cs.lock(k), at(op.Call))
			if n < 0 {
				return s + "without having been granted the lock"
			}
			return s + "though it had believed that it held the lock only " + cs.until(&k.holds[n])
		})
	}
}
