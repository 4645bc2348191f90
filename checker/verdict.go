package checker

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// The verdicts on each property, in words.

// noGrants is the verdict on a history in which nobody was granted a lock.
func (cs *claims) noGrants(name, version string) (Property, bool) {
	p := Property{Name: name, Convention: cs.o.convention(name, version)}
	if cs.grants > 0 {
		return p, false
	}
	p.Verdict, p.Why = NotApplicable, "no lock was granted in this history"
	return p, true
}

func (cs *claims) mutex(js []judged) Property {
	p, none := cs.noGrants(Mutex, "1")
	if none {
		return p
	}
	all := make([]overlaps, len(js))
	for i := range js {
		all[i] = js[i].beliefs
	}
	sum, i := sumOverlap(all)
	if i < 0 {
		p.Verdict = Held
		p.Why = fmt.Sprintf("none of %s was made while another client still believed that it held the lock", plural(cs.grants, "grant", "grants"))
		return p
	}
	k := &cs.keys[i]
	a, b := &k.holds[sum.pair[0]], &k.holds[sum.pair[1]]
	p.Verdict, p.Count, p.Overlap, p.First = Violated, sum.count, time.Duration(sum.total), sum.first
	p.FollowsFrom = cs.mutexFollows(js)
	p.Why = cs.mutexWhy(k, &js[i], sum.pair)
	x := js[i].x
	p.Witness = cs.witness(k, p.Why, []Hold{cs.describe(a, x[sum.pair[0]]), cs.describe(b, x[sum.pair[1]])}, cs.events(a), cs.grantEvents(b))
	return p
}

// grantEvents are the events of a grant alone.
func (cs *claims) grantEvents(h *hold) []int64 { return cs.opEvents(&cs.h.Ops[h.grant]) }

// mutexWhy explains why two clients believed at once that they held.
func (cs *claims) mutexWhy(k *key, j *judged, pair [2]int) string {
	a, b := &k.holds[pair[0]], &k.holds[pair[1]]
	A, B := cs.process(a.process), cs.process(b.process)
	end := min(a.u, b.u, max(cs.end, b.b))
	last := fmt.Sprintf("%s still believed that it held %s at %s, %s after %s was granted it", A, cs.lock(k), at(end), dur(end-b.b), B)
	x := j.x[pair[0]]
	switch {
	case slices.Contains(j.release.explained, pair[1]):
		return last + "; a release by a client that did not hold it had freed it in between"
	case a.ttl == 0:
		return last + "; no lease was stated, so nothing but a release could have ended " + A + "'s hold"
	case slices.Contains(j.lease.grants, pair[1]):
		return fmt.Sprintf("%s; the lease of %s stood until %s at least: the service broke its promise", last, A, at(a.until(x)))
	case a.expiry(x) > b.b:
		// Another order of grants than that of their confirmations keeps the
		// promise.
		return fmt.Sprintf("%s; the confirmation of %s's own grant came too late to show that its lease still stood: nothing shows that the service broke its promise", last, A)
	}
	return fmt.Sprintf("%s; %s's lease had ended at %s: the client outlived its lease, the service kept its promise", last, A, at(a.expiry(x)))
}

// mutexFollows is the property whose violations explain all overlaps of beliefs.
func (cs *claims) mutexFollows(js []judged) string {
	release, lease := true, true
	for i := range js {
		for _, g := range js[i].beliefs.grants {
			release = release && slices.Contains(js[i].release.explained, g)
			lease = lease && cs.keys[i].leases && slices.Contains(js[i].lease.grants, g)
		}
	}
	switch {
	case release:
		return Release
	case lease:
		return Lease
	}
	return ""
}

func (cs *claims) lease(js []judged) Property {
	p, none := cs.noGrants(Lease, "1")
	if none {
		return p
	}
	all := make([]overlaps, len(js))
	any, undecided := false, -1
	for i := range js {
		all[i] = js[i].lease.overlaps
		any = any || cs.keys[i].leases
		if js[i].lease.undecided {
			undecided = i
		}
	}
	sum, i := sumOverlap(all)
	switch {
	case cs.h.Timeless:
		p.Verdict, p.Why = NotApplicable, "the history states no times, and a lease is a length of time"
	case !any:
		p.Verdict, p.Why = NotApplicable, "no grant states a lease, and none was given with --ttl"
	case i >= 0:
		k, j := &cs.keys[i], &js[i]
		a, b := &k.holds[sum.pair[0]], &k.holds[sum.pair[1]]
		x := j.lease.x[sum.pair[0]]
		p.Verdict, p.Count, p.Overlap, p.First = Violated, sum.count, time.Duration(sum.total), sum.first
		p.FollowsFrom = Release
		for n := range js {
			for _, g := range js[n].lease.grants {
				if !slices.Contains(js[n].release.explained, g) {
					p.FollowsFrom = ""
				}
			}
		}
		end := "its lease could not end before " + at(a.expiry(x))
		if a.c < a.expiry(x) {
			end = "its lease stood " + cs.until(a)
		}
		p.Why = fmt.Sprintf("%s was granted %s at %s although %s held it and %s: the service broke its promise by %s",
			cs.process(b.process), cs.lock(k), at(b.b), cs.process(a.process), end, dur(a.until(x)-b.b))
		if p.FollowsFrom != "" {
			p.Why += ", since it let another client's release free the lock"
		}
		p.Witness = cs.witness(k, p.Why, []Hold{cs.describe(a, x), cs.describe(b, j.lease.x[sum.pair[1]])}, cs.events(a), cs.renewalEvents(a), cs.grantEvents(b))
	case undecided >= 0:
		p.Verdict = Unknown
		p.Why = fmt.Sprintf("the order of some grants of %s is not forced: there are no tokens, and confirmations came after leases can have ended", cs.lock(&cs.keys[undecided]))
	default:
		p.Verdict = Held
		p.Why = fmt.Sprintf("none of %s was made while another lease stood", plural(cs.grants, "grant", "grants"))
	}
	return p
}

// renewalEvents are the events of the last confirmed renewal of a hold.
func (cs *claims) renewalEvents(h *hold) []int64 {
	if h.q < 0 {
		return nil
	}
	for i := range cs.h.Ops {
		if op := &cs.h.Ops[i]; op.Call == h.q && op.Process == h.process {
			return cs.opEvents(op)
		}
	}
	return nil
}

func (cs *claims) token(js []judged) Property {
	p, none := cs.noGrants(Token, "1")
	if none {
		return p
	}
	with, best := 0, -1
	for i := range js {
		with += cs.keys[i].tokens
		if t := &js[i].tokens; t.count > 0 {
			p.Count += t.count
			if best < 0 || t.first < js[best].tokens.first {
				best = i
			}
		}
	}
	switch {
	case with == 0:
		p.Verdict, p.Why = NotApplicable, "no grant carries a token"
	case best < 0:
		p.Verdict = Held
		p.Why = fmt.Sprintf("the tokens of %s rise in the order of the grants and none repeats", plural(with, "grant", "grants"))
	default:
		k, t := &cs.keys[best], &js[best].tokens
		a, b := &k.holds[t.pair[0]], &k.holds[t.pair[1]]
		p.Verdict, p.First = Violated, t.first
		switch t.rule {
		case "repeats":
			p.Why = fmt.Sprintf("%s was granted %s at %s with token %d, which %s had got at %s", cs.process(b.process), cs.lock(k), at(b.b), b.token, cs.process(a.process), at(a.b))
		case "contradicts":
			p.Why = fmt.Sprintf("%s was granted %s with token %d by %s, while the lease of %s, with the lower token %d, stood if tokens are in the order of the grants",
				cs.process(b.process), cs.lock(k), b.token, at(b.b), cs.process(a.process), a.token)
		default:
			p.Why = fmt.Sprintf("%s was granted %s at %s with token %d, after %s had been granted it at %s with the higher token %d", cs.process(b.process), cs.lock(k), at(b.b), b.token, cs.process(a.process), at(a.b), a.token)
		}
		x := js[best].x
		p.Witness = cs.witness(k, p.Why, []Hold{cs.describe(a, x[t.pair[0]]), cs.describe(b, x[t.pair[1]])}, cs.grantEvents(a), cs.grantEvents(b))
	}
	return p
}

func (cs *claims) fence(js []judged) Property {
	p := Property{Name: Fence, Convention: cs.o.convention(Fence, "1")}
	accepted, judgedWrites, best := 0, 0, -1
	for i := range js {
		f := &js[i].fence
		accepted += f.accepted
		judgedWrites += f.judged
		if f.count > 0 {
			p.Count += f.count
			if best < 0 || f.first < js[best].fence.first {
				best = i
			}
		}
	}
	switch {
	case len(cs.h.Applied) == 0:
		return cs.observedFence(p, js)
	case accepted == 0:
		p.Verdict, p.Why = NotApplicable, "the resource accepted no write"
	case best >= 0:
		k, f := &cs.keys[best], &js[best].fence
		p.Verdict, p.First = Violated, f.first
		newer, older := &cs.h.Applied[f.pair[0].applied], &cs.h.Applied[f.pair[1].applied]
		p.Why = fmt.Sprintf("the resource accepted a write by %s at %s, %s after it had accepted one by %s, whose grant of %s is newer",
			cs.writer(older), at(older.Time), dur(older.Time-newer.Time), cs.writer(newer), cs.lock(k))
		if older.HasToken && newer.HasToken && older.Token < newer.Token {
			p.Why += fmt.Sprintf(" (token %d after token %d)", older.Token, newer.Token)
		} else if !older.HasToken {
			p.Why += "; the write carried no token, so the resource could not tell"
		}
		events := []int64{int64(newer.Index), int64(older.Index)}
		var holds []Hold
		x := js[best].x
		for _, w := range []write{f.pair[1], f.pair[0]} {
			if w.hold >= 0 {
				holds = append(holds, cs.describe(&k.holds[w.hold], x[w.hold]))
				events = append(events, cs.grantEvents(&k.holds[w.hold])...)
			}
		}
		p.Witness = cs.witness(k, p.Why, holds, events)
	case judgedWrites == 0:
		p.Verdict, p.Why = Unknown, "no accepted write can be traced to a grant: resource events state neither a token nor a client that was granted the lock"
	default:
		p.Verdict = Held
		p.Why = fmt.Sprintf("none of %s was accepted after one of a newer grant", plural(judgedWrites, "accepted write", "accepted writes"))
	}
	return p
}

func (cs *claims) writer(a *history.Applied) string {
	if op := cs.operation(a.Op); op != nil {
		return cs.process(op.Process)
	}
	if name := cs.process(a.Client); name != "" {
		return name
	}
	return "an unnamed client"
}

// observedFence is the verdict where only the clients saw their writes.
func (cs *claims) observedFence(p Property, js []judged) Property {
	judgedWrites, best := 0, -1
	for i := range js {
		judgedWrites += js[i].observedJudged
		p.Count += js[i].observed
		if js[i].observed > 0 && best < 0 {
			best = i
		}
	}
	switch {
	case judgedWrites == 0:
		p.Verdict, p.Why = NotApplicable, "the history has no resource events and no writes with tokens"
	case best >= 0:
		newer, older := &cs.h.Ops[js[best].observedPair[0]], &cs.h.Ops[js[best].observedPair[1]]
		p.Verdict, p.First = Violated, older.Ret
		p.Why = fmt.Sprintf("a write by %s with token %d, invoked at %s, was accepted after one by %s with token %d had been confirmed at %s",
			cs.process(older.Process), older.Token, at(older.Call), cs.process(newer.Process), newer.Token, at(newer.Ret))
		p.Witness = cs.witness(&cs.keys[best], p.Why, nil, cs.opEvents(newer), cs.opEvents(older))
	default:
		p.Verdict = Held
		p.Why = fmt.Sprintf("no client saw one of %s accepted after one with a higher token; the resource's own record is missing", plural(judgedWrites, "write", "writes"))
	}
	return p
}

func (cs *claims) release(js []judged) Property {
	p, none := cs.noGrants(Release, "1")
	if none {
		return p
	}
	tested, best := 0, -1
	for i := range js {
		r := &js[i].release
		tested += r.tested
		p.Count += len(r.faults)
		if len(r.faults) > 0 && (best < 0 || r.faults[0].at < js[best].release.faults[0].at) {
			best = i
		}
	}
	switch {
	case best >= 0:
		k, f := &cs.keys[best], &js[best].release.faults[0]
		p.Verdict, p.First = Violated, f.at
		p.Why = cs.releaseWhy(k, f)
		x := js[best].x
		events := [][]int64{cs.opEvents(&cs.h.Ops[f.op]), cs.grantEvents(&k.holds[f.victim])}
		var holds []Hold
		for _, i := range []int{f.own, f.victim, f.next} {
			if i >= 0 {
				holds = append(holds, cs.describe(&k.holds[i], x[i]))
				events = append(events, cs.grantEvents(&k.holds[i]))
			}
		}
		if f.fail >= 0 {
			events = append(events, cs.opEvents(&cs.h.Ops[f.fail]))
		}
		p.Witness = cs.witness(k, p.Why, holds, events...)
	case tested == 0:
		p.Verdict, p.Why = NotApplicable, "nobody tried to release a lock that it did not hold, or had lost"
	default:
		p.Verdict = Held
		p.Why = fmt.Sprintf("none of %s by clients that did not hold the lock, or had lost it, is known to have freed it or to have been answered ok wrongly", plural(tested, "release", "releases"))
	}
	return p
}

func (cs *claims) releaseWhy(k *key, f *badRelease) string {
	op := &cs.h.Ops[f.op]
	who, victim := cs.process(op.Process), &k.holds[f.victim]
	V := cs.process(victim.process)
	answer := "answered ok"
	if op.Outcome == history.Unknown {
		answer = "of unknown outcome"
	}
	switch {
	case f.next >= 0:
		n := &k.holds[f.next]
		return fmt.Sprintf("a release of %s by %s at %s, %s, took away the lock that %s had held since %s: %s was granted it at %s",
			cs.lock(k), who, at(op.Call), answer, V, at(victim.b), cs.process(n.process), at(n.b))
	case f.fail >= 0 || f.victim != f.own && victim.end == byFailedRenewal && f.at == victim.c:
		return fmt.Sprintf("a release of %s by %s at %s, %s, took away the lock that %s had held since %s: %s was told at %s that it did not hold it, before its lease can have ended",
			cs.lock(k), who, at(op.Call), answer, V, at(victim.b), V, at(f.at))
	default:
		return fmt.Sprintf("a release of %s by %s at %s was answered ok although %s had been granted it at %s", cs.lock(k), who, at(op.Call), V, at(victim.b))
	}
}

func (cs *claims) liveness(js []judged) Property {
	p, none := cs.noGrants(Liveness, "1")
	bound, bounded := cs.bound()
	tested, best := 0, -1
	for i := range js {
		l := &js[i].liveness
		tested += l.tested
		p.Count += len(l.stuck)
		if len(l.stuck) > 0 && (best < 0 || l.stuck[0].from < js[best].liveness.stuck[0].from) {
			best = i
		}
	}
	switch {
	case none && best < 0:
	case cs.h.Timeless:
		p.Verdict, p.Why = NotApplicable, "the history states no times"
	case !bounded:
		p.Verdict, p.Why = NotApplicable, "no bound was given and no grant states a lease, so nothing says how soon the lock must be free again"
	case best >= 0:
		k, w := &cs.keys[best], &js[best].liveness.stuck[0]
		p.Verdict, p.First = Violated, w.from+bound
		op := &cs.h.Ops[w.attempt]
		p.Why = fmt.Sprintf("nobody got %s from %s to %s although %s wanted it and nobody was entitled to it: %s, and the bound is %s",
			cs.lock(k), at(w.from), at(w.to), cs.process(op.Process), dur(w.to-w.from), dur(bound))
		events := [][]int64{cs.opEvents(op)}
		var holds []Hold
		if w.last >= 0 {
			h := &k.holds[w.last]
			holds = append(holds, cs.describe(h, js[best].x[w.last]))
			events = append(events, cs.events(h))
		}
		p.Witness = cs.witness(k, p.Why, holds, events...)
	case tested == 0:
		p.Verdict, p.Why = NotApplicable, "nobody had to wait for a lock"
	default:
		p.Verdict = Held
		p.Why = fmt.Sprintf("clients found the lock taken, and none went without it for longer than %s while nobody was entitled to it", dur(bound))
	}
	return p
}
