package checker

import (
	"fmt"
	"hash/maphash"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// auditLimit is the number of operations of one key up to which porcupine
// gives its opinion on a lock model.
const auditLimit = 1000

// lockInput is an operation as the porcupine models of locks see it.
type lockInput struct {
	id      int // acquires: its bit of the state, in the order of calls
	acquire bool
	outcome history.Outcome
	shared  bool // a reader's
	owner   int32
	earlier int   // releases: acquires with a smaller id were invoked before it
	token   int64 // of a grant, -1 without
}

// lockState is the grants in force, each the id of an acquire, ascending, two
// bytes each, so that states compare and hash as they are; and the last token.
type lockState struct {
	held  string
	token int64
	blank bool // of a reentrant lock: the section's token is not known yet
}

func (s lockState) ids(yield func(int, int) bool) {
	for i := 0; i < len(s.held); i += 2 {
		if !yield(i, int(s.held[i])<<8|int(s.held[i+1])) {
			return
		}
	}
}

func (s lockState) with(id int) lockState {
	at := len(s.held)
	for i, x := range s.ids {
		if x > id {
			at = i
			break
		}
	}
	s.held = s.held[:at] + string([]byte{byte(id >> 8), byte(id)}) + s.held[at:]
	return s
}

func (s lockState) without(i int) lockState {
	s.held = s.held[:i] + s.held[i+2:]
	return s
}

// lockModel is the sequential specification of a kind of lock, with refusals
// that carry no information. A release ends a grant that its process asked for
// before it; of a mutex without owners, any. An unknown operation, and a failed
// release under the convention that it ends the hold, may have had its effect
// or not.
//
// It is written apart from the exact checkers, as their second opinion, and
// decides what they leave open.
func lockModel(m Model, acquires []*lockInput, ownerless, strict bool) porcupine.Model {
	seed := maphash.MakeSeed()
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{lockState{token: -1}} },
		Step: func(state, in, _ any) []any {
			s, op := state.(lockState), in.(*lockInput)
			if op.outcome == history.Failed && (op.acquire || strict) {
				return []any{s} // did not happen
			}
			var next []any
			if op.acquire {
				if t, ok := lockGrant(m, acquires, s, op); ok {
					next = append(next, t)
				}
			} else {
				for i, id := range s.ids {
					a := acquires[id]
					if ownerless || a.owner == op.owner && a.shared == op.shared && id < op.earlier {
						next = append(next, s.without(i))
					}
				}
			}
			if op.outcome != history.Done {
				next = append(next, s)
			}
			return next
		},
		Hash: func(state any) uint64 {
			s := state.(lockState)
			return maphash.String(seed, s.held) ^ uint64(s.token)*0x9E3779B97F4A7C15
		},
	}
	return nm.ToModel()
}

// lockGrant grants op, if the lock allows it.
func lockGrant(m Model, acquires []*lockInput, s lockState, op *lockInput) (lockState, bool) {
	total, writers, mine := 0, 0, 0
	for _, id := range s.ids {
		total++
		if !acquires[id].shared {
			writers++
		}
		if acquires[id].owner == op.owner {
			mine++
		}
	}
	allowed := total == 0
	switch m.Name {
	case modelSemaphore:
		allowed = total < m.Permits
	case modelReentrant, modelReentrantFenced:
		allowed = total == mine
	case modelRWLock:
		allowed = total == 0 || op.shared && writers == 0
	}
	if !allowed {
		return s, false
	}
	if m.Name == modelFenced || m.Name == modelReentrantFenced {
		nested := mine > 0 && !s.blank
		switch {
		case op.token < 0:
			s.blank = s.blank || m.Name == modelReentrantFenced && mine == 0
		case nested && op.token != s.token, !nested && op.token <= s.token:
			return s, false
		default:
			s.token, s.blank = op.token, false
		}
	}
	return s.with(op.id), true
}

// lockOperations translates the operations of one key, in the order of their
// calls. The second result is the acquires, by id.
func lockOperations(h *history.History, m Model, ops []int32) ([]porcupine.Operation, []*lockInput) {
	out := make([]porcupine.Operation, 0, len(ops))
	var acquires []*lockInput
	for _, i := range ops {
		o := &h.Ops[i]
		in := &lockInput{acquire: o.Kind == history.KindAcquire, outcome: o.Outcome, owner: o.Process, earlier: len(acquires), token: -1}
		in.shared = m.Name == modelRWLock && o.Value >= 0 && h.Values[o.Value] == `"read"`
		if in.acquire {
			if o.HasToken && o.Outcome == history.Done {
				in.token = o.Token
			}
			in.id = len(acquires)
			acquires = append(acquires, in)
		}
		out = append(out, porcupine.Operation{ClientId: int(o.Process), Input: in, Call: o.Call, Return: o.Ret})
	}
	return out, acquires
}

// audit asks porcupine about one small key.
func (c *lockCase) audit(ops []int32, g holdings, violated bool, o Options) *Opinion {
	if len(ops) == 0 || len(ops) > auditLimit {
		return nil
	}
	if c.m.Name == modelRWLock {
		for _, i := range ops {
			if c.h.Ops[i].Kind == history.KindRelease && c.h.Ops[i].Value < 0 {
				return nil // the model needs to be told whose hold it was
			}
		}
	}
	result, why := c.searchLock(ops, g.ownerless(c.m), o, &c.opinions)
	switch agreed := agreement(result, violated); agreed {
	case NotDecided:
		return &Opinion{Outcome: agreed, Detail: why}
	case Disagrees:
		return &Opinion{Outcome: agreed, Detail: fmt.Sprintf("porcupine says %s, the exact checker violated=%v", result, violated)}
	default:
		return &Opinion{Outcome: agreed}
	}
}

func (c *lockCase) searchLock(ops []int32, ownerless bool, o Options, limit *searchTime) (porcupine.CheckResult, string) {
	pops, acquires := lockOperations(c.h, c.m, ops)
	if len(acquires) > 1<<16 {
		return porcupine.Unknown, fmt.Sprintf("%d acquires are more than a search is tried on", len(acquires))
	}
	return search(lockModel(c.m, acquires, ownerless, o.strict()), pops, limit.left(o), searchMemory)
}

// ownerless says whether a key needs a model in which any process may end any
// hold: that of a plain mutex released by one that had not acquired it.
func (g *holdings) ownerless(m Model) bool {
	return m.Name == modelMutex && (len(g.orphans) > 0 || g.stray)
}

// decideBySearch decides a key on which only a search can tell.
func (c *lockCase) decideBySearch(k int32, ops []int32, g holdings, o Options) {
	switch result, why := c.searchLock(ops, g.ownerless(c.m), o, &c.limit); result {
	case porcupine.Unknown:
		c.doubt(object(c.h, k) + " was released by processes that had not acquired it, or granted twice with one token after unknown outcomes, so that only a search decides: " + why)
	case porcupine.Illegal:
		c.found(breach{class: classSearch, key: k, at: c.h.Ops[ops[0]].Call, ops: ops,
			why: fmt.Sprintf("no order of the %d operations on %s is one of a %s", len(ops), object(c.h, k), c.m)})
	}
}
