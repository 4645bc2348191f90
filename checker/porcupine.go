package checker

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// The second opinion. Porcupine searches for an order of the grants that a
// correct lock could have made; it shares with the exact checkers what a hold
// is, and nothing of how they decide.
//
// A grant takes effect at one instant of [a, b], and the hold ends, unless its
// lease runs out before, at an instant that is known. So no operation is of
// unknown outcome, which is what makes porcupine run out of memory; and the ends
// show early that a grant was tried too soon.

// taken is a grant as porcupine sees it.
type taken struct {
	*hold
	end  int64 // known end of the hold, never if only its lease ends it
	bars bool  // others are kept out while it stands
	drop bool  // this is the end, not the grant
}

// seen is the state of the lock: the time of the last operation at the earliest,
// who holds it (the index of the grant, -1), the end of that lease at the
// earliest, and the last token.
type seen struct {
	last, lease, token int64
	holder             int32
}

// spec is a correct lock: what it has to keep.
type spec struct {
	exclusive bool // no grant while a hold stands
	tokens    bool // tokens rise
}

// model is the lock as porcupine takes it. For a fixed order of grants the
// earliest schedule is the least in each place, so the state carries it and
// nothing else: a deterministic model of a timed lock.
func (s spec) model(name func(int32) string) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return seen{-1, -1, minToken, -1} },
		Step: func(state, input, _ any) (bool, any) {
			st, t := state.(seen), input.(*taken)
			if t.drop {
				if st.last > t.end {
					return false, state
				}
				st.last = t.end
				if st.holder == t.grant {
					st.holder = -1
				}
				return true, st
			}
			x := max(st.last, t.a)
			if s.exclusive && st.holder >= 0 {
				x = max(x, st.lease)
			}
			if x > t.b || s.tokens && t.hasToken && t.token <= st.token {
				return false, state
			}
			st.last = x
			if s.exclusive {
				st.holder, st.lease = -1, -1
				if t.bars {
					st.holder, st.lease = t.grant, t.expiry(x)
				}
			}
			if t.hasToken {
				st.token = t.token
			}
			return true, st
		},
		Hash: func(state any) uint64 {
			s := state.(seen)
			return uint64(s.last)*0x9e3779b97f4a7c15 ^ uint64(s.lease)*0xff51afd7ed558ccd ^ uint64(s.token)*0xc4ceb9fe1a85ec53 ^ uint64(s.holder)
		},
		DescribeOperation: func(input, _ any) string {
			t := input.(*taken)
			if t.drop {
				return "the hold of " + name(t.process) + " ends"
			}
			d := "granted to " + name(t.process)
			if t.hasToken {
				d += fmt.Sprintf(" with token %d", t.token)
			}
			return d
		},
		DescribeState: func(state any) string {
			switch s := state.(seen); {
			case s.holder < 0:
				return "free"
			case s.lease >= never:
				return "held"
			default:
				return "held until " + at(s.lease) + " at least"
			}
		},
	}
}

const minToken = -1 << 63

// question is what porcupine is asked about one lock: whether these grants are
// those of a correct lock.
type question struct {
	spec
	takes   []taken // ordered by b
	partial bool    // there are more, outside of what the budget allows to see
	first   int     // indexes in takes of the witness, -1
	last    int
}

// ask puts the question on a property of one lock.
func (cs *claims) ask(name string, k *key, j *judged) (question, bool) {
	q := question{first: -1, last: -1}
	var pair [2]int
	violated := false
	leased := k.leases
	switch name {
	case Mutex:
		q.exclusive, pair, violated = true, j.beliefs.pair, j.beliefs.count > 0
	case Lease:
		if !leased {
			return q, false
		}
		q.exclusive = true
		pair, violated = j.lease.pair, j.lease.count > 0
	case Token:
		if k.tokens == 0 {
			return q, false
		}
		q.tokens = true
		// Where tokens are missing the exact checker compares pairs only.
		q.exclusive = j.exclusive && (k.ordered() || j.tokens.count > 0)
		pair, violated = j.tokens.pair, j.tokens.count > 0
	}
	from, to := 0, len(k.holds)
	if budget := cs.o.budget(); to > budget {
		q.partial = true
		if to = sampleOf(budget); violated {
			// What came before may have to be seen as well.
			from, to = max(0, min(pair[0], pair[1])-maxPiece/4), max(pair[0], pair[1])+1
		}
	}
	index := make([]int, to-from)
	q.takes = make([]taken, 0, to-from)
	copies := make([]hold, 0, to-from)
	copied := func(h *hold) *hold {
		copies = append(copies, *h)
		return &copies[len(copies)-1]
	}
	for i := range index {
		h := &k.holds[from+i]
		t := taken{hold: h, end: h.c, bars: true}
		switch {
		case name == Mutex || name == Token && !leased:
			if name == Mutex && !h.believed() {
				continue
			}
			t = taken{hold: copied(h), end: h.u, bars: true}
			t.ttl = 0
		case name == Token && h.resumed && !q.exclusive:
			continue
		case h.ttl == 0:
			t.bars = false // it has no lease that could stand
		}
		if name == Token && h.resumed {
			if t.hold == h {
				t.hold = copied(h)
			}
			t.hasToken = false
		}
		index[i] = len(q.takes)
		q.takes = append(q.takes, t)
	}
	if violated {
		x, y := index[pair[0]-from], index[pair[1]-from]
		q.first, q.last = min(x, y), max(x, y)
	}
	return q, true
}

// piece is about how many grants porcupine sees at once: its time and memory grow
// with the square. What cannot be cut up to maxPiece it is not asked about.
const (
	piece    = 250
	maxPiece = 2000
)

// sampleOf is how many grants porcupine is asked about of a history that exceeds
// the budget: since it cannot agree on the whole, a part will do.
func sampleOf(budget int) int { return (budget + 3) / 4 }

// pieces cuts the grants where every order agrees on who holds: at a hold whose
// end is known and which certainly stood when it was confirmed, if no other can
// have been granted on the other side of it, theorem T5 of docs/verdicts.md. The
// hold at a cut is in both pieces.
func (q *question) pieces() [][]taken {
	n := len(q.takes)
	if !q.exclusive || n <= piece {
		return [][]taken{q.takes}
	}
	// request is, for each grant, the first request of an unsure one after it.
	request := make([]int64, n+1)
	request[n] = never
	for i := n - 1; i >= 0; i-- {
		t := &q.takes[i]
		request[i] = request[i+1]
		if min(t.end, t.expiry(t.a)) <= t.b {
			request[i] = min(request[i], t.a)
		}
	}
	var ps [][]taken
	from := 0
	for i := 1; i < n; i++ {
		t := &q.takes[i]
		static := t.end <= t.expiry(t.a) || t.q >= 0
		stood := min(t.end, t.expiry(t.a)) > t.b
		if i-from >= piece && static && stood && request[i+1] > t.b {
			ps = append(ps, q.takes[from:i+1])
			from = i
		}
	}
	return append(ps, q.takes[from:])
}

// operations are grants, and the ends of their holds, as porcupine takes them. A
// piece that begins with a cut begins with that hold; one that ends with a cut
// ends while it stands.
func (s spec) operations(ts []taken, begins, ends bool) []porcupine.Operation {
	ops := make([]porcupine.Operation, 0, 2*len(ts))
	for i := range ts {
		t := &ts[i]
		op := porcupine.Operation{ClientId: int(t.process), Input: t, Call: t.a, Return: t.b}
		if begins && i == 0 {
			op.Call = t.b
		}
		ops = append(ops, op)
		if !s.exclusive || !t.bars || t.end >= never || ends && i == len(ts)-1 {
			continue
		}
		end := *t
		end.drop = true
		ops = append(ops, porcupine.Operation{ClientId: int(t.process), Input: &end, Call: t.end, Return: t.end})
	}
	return ops
}

// decide has porcupine answer, on the whole where that fits the budget, else on
// what surrounds the witness. all says whether it saw all grants.
func (q *question) decide(m porcupine.Model, budget int, deadline time.Time) (result porcupine.CheckResult, saw int, all bool) {
	ps, all := q.pieces(), true
	if q.partial || len(q.takes) > budget || slices.ContainsFunc(ps, func(p []taken) bool { return len(p) > maxPiece }) {
		all = false
		if q.first >= 0 {
			// Of grants that a correct lock made every selection is one that
			// it could have made: if these few are not, all are not.
			pair := []taken{q.takes[q.first], q.takes[q.last]}
			if r := porcupine.CheckOperationsTimeout(m, q.operations(pair, false, false), time.Until(deadline)); r == porcupine.Illegal {
				return r, len(pair), false
			}
			from := max(0, q.first-maxPiece/4)
			ps = [][]taken{q.takes[from:min(q.last+1, from+maxPiece)]}
		} else {
			for n := range ps {
				if budget -= len(ps[n]); budget < 0 || len(ps[n]) > maxPiece {
					ps = ps[:n]
					break
				}
			}
		}
	}
	for i, p := range ps {
		left := time.Until(deadline)
		if left <= 0 {
			return porcupine.Unknown, saw, false
		}
		r := porcupine.CheckOperationsTimeout(m, q.operations(p, i > 0, i < len(ps)-1), left)
		if r != porcupine.Ok {
			return r, saw, all
		}
		saw += len(p)
	}
	return porcupine.Ok, saw, all
}

// second asks porcupine for its opinion on a property and records it.
func (cs *claims) second(p *Property, js []judged) {
	if p.Verdict != Held && p.Verdict != Violated {
		return
	}
	switch p.Name {
	case Mutex, Lease, Token:
	default:
		return // decided by the resource's own order, or by durations: no search
	}
	deadline := time.Now().Add(cs.o.opinion())
	budget, total, saw, whole := cs.o.budget(), 0, 0, true
	if cs.grants > budget {
		budget = sampleOf(budget)
	}
	illegal, wrong := 0, ""
	for _, i := range cs.worstFirst(p.Name, js) {
		k := &cs.keys[i]
		q, ok := cs.ask(p.Name, k, &js[i])
		if !ok || len(q.takes) == 0 {
			continue
		}
		total += len(q.takes)
		if q.partial {
			total += len(k.holds) - len(q.takes)
		}
		if budget <= 0 && q.first < 0 {
			whole = false
			continue
		}
		r, n, all := q.decide(q.model(cs.process), budget, deadline)
		budget -= max(n, 1)
		saw += n
		whole = whole && all && r != porcupine.Unknown
		switch {
		case r == porcupine.Illegal:
			illegal++
			if q.first < 0 {
				wrong = fmt.Sprintf("porcupine finds no order for the grants of %s that a correct lock could have made; the exact checker does", cs.lock(k))
			}
		case r == porcupine.Ok && q.first >= 0 && all:
			wrong = fmt.Sprintf("the exact checker says of %s: %s; porcupine finds an order for its grants that a correct lock could have made", cs.lock(k), p.Why)
		}
	}
	if cs.partial {
		whole, total = false, max(total, cs.grants)
	}
	switch {
	case wrong != "":
		p.Second = &Opinion{Disagrees, wrong}
	case p.Verdict == Violated && illegal > 0:
		p.Second = &Opinion{Outcome: Agrees}
	case p.Verdict == Held && whole:
		p.Second = &Opinion{Outcome: Agrees}
	default:
		p.Second = &Opinion{NotDecided, fmt.Sprintf("porcupine saw %d of %d grants, found nothing else there, and came to the end of its budget of %d grants and %s", saw, total, cs.o.budget(), cs.o.opinion())}
	}
}

// worstFirst orders the locks so that those on which the property is violated
// come first.
func (cs *claims) worstFirst(name string, js []judged) []int {
	ids := make([]int, len(js))
	for i := range ids {
		ids[i] = i
	}
	count := func(i int) int {
		switch name {
		case Mutex:
			return js[i].beliefs.count
		case Lease:
			return js[i].lease.count
		}
		return js[i].tokens.count
	}
	slices.SortStableFunc(ids, func(x, y int) int { return min(count(y), 1) - min(count(x), 1) })
	return ids
}

// settle has porcupine decide what the order of confirmations leaves open.
func (cs *claims) settle(k *key, j *judged) {
	q, _ := cs.ask(Lease, k, j)
	if len(q.takes) > cs.o.budget() {
		return
	}
	switch r, _, all := q.decide(q.model(cs.process), cs.o.budget(), time.Now().Add(cs.o.timeout())); {
	case r == porcupine.Ok && all:
		j.lease.undecided = false
	case r == porcupine.Illegal:
		// The order of confirmations names the grant that has no place.
		j.lease.undecided = false
		j.lease.schedule(k, j.low, false)
	}
}

// ErrNothingToShow says that a property has no violation that porcupine could
// draw.
var ErrNothingToShow = errors.New("no violation to show")

// Visualize writes porcupine's picture, an HTML page, of the first violation of
// the property: one of Mutex, Lease and Token. It returns ErrNothingToShow if
// there is none.
func Visualize(h *history.History, o Options, property string, w io.Writer) error {
	cs := thorough(h, o)
	js := cs.judge()
	worst := cs.worstFirst(property, js)
	if len(worst) == 0 {
		return fmt.Errorf("%s: %w", property, ErrNothingToShow)
	}
	q, ok := cs.ask(property, &cs.keys[worst[0]], &js[worst[0]])
	if !ok || q.first < 0 {
		return fmt.Errorf("%s: %w", property, ErrNothingToShow)
	}
	const around = 50
	ts := q.takes[max(0, q.first-around):min(len(q.takes), q.last+around)]
	if len(ts) > 4*around {
		ts = []taken{q.takes[q.first], q.takes[q.last]}
	}
	m := q.model(cs.process)
	_, info := porcupine.CheckOperationsVerbose(m, q.operations(ts, false, false), o.timeout())
	if err := porcupine.Visualize(m, info, w); err != nil {
		return fmt.Errorf("draw %s: %w", property, err)
	}
	return nil
}
