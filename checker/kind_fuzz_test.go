package checker

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// histories is how many random histories each fuzzing test tries; the variable
// LOCKCHECK_FUZZ multiplies it.
func histories(t testing.TB, n int) int {
	if testing.Short() {
		n /= 10
	}
	if s := os.Getenv("LOCKCHECK_FUZZ"); s != "" {
		k, err := strconv.Atoi(s)
		if err != nil || k < 1 {
			t.Fatalf("LOCKCHECK_FUZZ=%q: want a whole number, by which the number of histories is multiplied", s)
		}
		n *= k
	}
	return n
}

// simOp is an operation on its way through a simulated service.
type simOp struct {
	pos  int // in Ops
	done bool
}

// simulate runs a few processes against a service and records what they see.
// Each step begins an operation, lets one take effect, or returns one; some
// never return, and may take effect later. effect performs the operation and
// returns its outcome, or false to let it wait.
func simulate(r *rand.Rand, processes, n int, pUnknown float64, next func(p int) history.Op, effect func(*history.Op) bool) *history.History {
	h := &history.History{Keys: []string{"k"}, Errors: []string{""}, Terms: []history.Term{{}}}
	for p := range processes {
		h.Processes = append(h.Processes, string(rune('A'+p)))
	}
	open := make([]*simOp, processes) // by process, nil if idle
	var limbo []*simOp                // abandoned by their process
	now := int64(0)
	event := int32(0)
	for steps := 0; steps < 40*n; steps++ {
		p := r.IntN(processes)
		if len(limbo) > 0 && r.IntN(6) == 0 {
			k := r.IntN(len(limbo))
			o := h.Ops[limbo[k].pos]
			if effect(&o) {
				h.Ops[limbo[k].pos].Token = o.Token // as the service would know; unseen
				limbo = slices.Delete(limbo, k, k+1)
			}
			continue
		}
		s := open[p]
		switch {
		case s == nil:
			if len(h.Ops) == n {
				continue
			}
			o := next(p)
			now++
			o.Process, o.Call, o.Ret, o.Index, o.RetIndex, o.Outcome = int32(p), now, history.Never, event, -1, history.Unknown
			event++
			h.Ops = append(h.Ops, o)
			open[p] = &simOp{pos: len(h.Ops) - 1}
		case !s.done && r.Float64() < pUnknown:
			limbo = append(limbo, s)
			open[p] = nil
		case !s.done:
			o := h.Ops[s.pos]
			if effect(&o) {
				s.done = true
				h.Ops[s.pos] = o
			}
		case r.Float64() < pUnknown:
			h.Ops[s.pos].Outcome = history.Unknown
			open[p] = nil
		default:
			now++
			h.Ops[s.pos].Ret, h.Ops[s.pos].RetIndex = now, event
			event++
			open[p] = nil
		}
	}
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Ret == history.Never {
			o.Outcome = history.Unknown
			o.HasToken = false
			if o.Kind == history.KindRead {
				o.Value = -1
			}
		}
	}
	h.Events = int64(event)
	return h
}

// lockHistory is a random history of a service that is the lock m, or nearly.
func lockHistory(r *rand.Rand, m Model) *history.History {
	processes := 2 + r.IntN(3)
	n := 3 + r.IntN(8)
	faulty := 0.0
	if r.IntN(2) == 0 {
		faulty = 0.15
	}
	pUnknown := []float64{0, 0.1, 0.3}[r.IntN(3)]
	state := lockState{token: -1}
	var acquires []*lockInput // of the service
	believed := make([]int, processes)
	values := []string{`"read"`, `"write"`}
	next := func(p int) history.Op {
		o := history.Op{Kind: history.KindAcquire, Value: -1}
		if believed[p] > 0 && r.IntN(4) > 0 || r.IntN(12) == 0 {
			o.Kind = history.KindRelease
		}
		if m.Name == modelRWLock {
			o.Value = int32(r.IntN(2))
		}
		return o
	}
	effect := func(o *history.Op) bool {
		p := int(o.Process)
		in := &lockInput{id: len(acquires), acquire: o.Kind == history.KindAcquire, outcome: history.Done, owner: o.Process, token: -1}
		in.shared = m.Name == modelRWLock && o.Value == 0
		mine := -1
		for i, id := range state.ids {
			if acquires[id].owner == in.owner && acquires[id].shared == in.shared {
				mine = i
			}
		}
		if in.acquire && (m.Name == modelFenced || m.Name == modelReentrantFenced) {
			in.token = state.token + 1 + int64(r.IntN(2))
			if m.Name == modelReentrantFenced && mine >= 0 {
				in.token = state.token
			}
		}
		var after lockState
		ok := mine >= 0
		if in.acquire {
			acquires = append(acquires, in)
			if after, ok = lockGrant(m, acquires, state, in); !ok {
				acquires = acquires[:in.id]
			}
		} else if ok {
			after = state.without(mine)
		}
		wrong := r.Float64() < faulty
		switch {
		case ok:
			state = after
		case in.acquire && !wrong:
			if r.IntN(3) > 0 {
				return false // wait
			}
			o.Outcome = history.Failed
			return true
		case !wrong:
			o.Outcome = history.Failed
			return true
		}
		o.Outcome = history.Done
		if ok && wrong && !in.acquire && r.IntN(2) == 0 {
			o.Outcome = history.Failed
		}
		if in.acquire {
			believed[p]++
			if in.token >= 0 {
				o.Token, o.HasToken = in.token, r.IntN(10) > 0
				if wrong {
					o.Token = int64(r.IntN(4))
				}
			}
		} else if believed[p] > 0 {
			believed[p]--
		}
		return true
	}
	h := simulate(r, processes, n, pUnknown, next, effect)
	h.Values = values
	return h
}

var lockModels = []string{
	"mutex", "owner-mutex", "reentrant-mutex", "fenced-mutex", "reentrant-fenced-mutex",
	"semaphore:1", "semaphore:2", "semaphore:3", "rwlock",
}

func newRand(i int, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(i), stream)) }

func allPositions(h *history.History) []int32 {
	out := make([]int32, len(h.Ops))
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// TestLocksAgainstPorcupine compares the exact checkers with porcupine's models
// of the same kinds, under both conventions.
func TestLocksAgainstPorcupine(t *testing.T) {
	for _, name := range lockModels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := ParseModel(name)
			if err != nil {
				t.Fatal(err)
			}
			total := histories(t, 8_000)
			seen := map[Verdict]int{}
			for i := range total {
				r := newRand(i, 1)
				h := lockHistory(r, m)
				o := Options{Model: name, NoSecondOpinion: true}
				if r.IntN(2) == 0 {
					o.Convention = FailedIgnored
				}
				p := CheckModel(h, o)
				seen[p.Verdict]++
				if p.Verdict == Unknown {
					continue
				}
				g, _ := collect(h, allPositions(h), make([]seat, 2*len(h.Processes)), 1, m.Name == modelRWLock, o.strict())
				ops, acquires := lockOperations(h, m, allPositions(h))
				legal := porcupine.CheckOperations(lockModel(m, acquires, g.ownerless(m), o.strict()), ops)
				if legal == (p.Verdict == Violated) {
					t.Fatalf("history %d: %s (%s); porcupine: linearizable is %v\n%s", i, p.Verdict, p.Why, legal, draw(h))
				}
			}
			t.Logf("%d histories: %v", total, seen)
			if seen[Held] < total/20 || seen[Violated] < total/50 {
				t.Errorf("the histories are lopsided: %v", seen)
			}
			if seen[Unknown] > total/20 {
				t.Errorf("%d of %d histories are undecided", seen[Unknown], total)
			}
		})
	}
}

// TestRefusalsAgainstPorcupine compares what is said of refused acquires with
// a model in which they claim that the lock was not to be had.
func TestRefusalsAgainstPorcupine(t *testing.T) {
	for _, name := range []string{"owner-mutex", "semaphore:1", "semaphore:2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := ParseModel(name)
			var right, wrong, unsure int
			for i := range histories(t, 4_000) {
				r := newRand(i, 2)
				h := lockHistory(r, m)
				for k := range h.Ops { // some refusals that were not
					if o := &h.Ops[k]; o.Kind == history.KindAcquire && o.Ret < history.Never && r.IntN(8) == 0 {
						o.Outcome = history.Failed
					}
				}
				c := &lockCase{h: h, m: m}
				g, why := collect(h, allPositions(h), make([]seat, 2*len(h.Processes)), 1, false, true)
				if why != "" || len(g.orphans) > 0 || g.stray {
					continue
				}
				c.key(0, allPositions(h), g, Options{NoSecondOpinion: true, Convention: FailedIgnored})
				if c.breaches > 0 {
					continue
				}
				ops, acquires := lockOperations(h, m, allPositions(h))
				pm := lockModel(m, acquires, false, true)
				step := pm.Step
				pm.StepContext = nil
				pm.Step = func(state, in, out any) (bool, any) {
					op := in.(*lockInput)
					if op.acquire && op.outcome == history.Failed {
						var possible []any
						for _, s := range state.([]any) {
							if _, free := lockGrant(m, acquires, s.(lockState), op); !free {
								possible = append(possible, s)
							}
						}
						return len(possible) > 0, possible
					}
					return step(state, in, out)
				}
				legal := porcupine.CheckOperations(pm, ops)
				switch {
				case c.refusals.free > 0:
					wrong++
					if legal {
						t.Fatalf("history %d: %+v, but porcupine finds an order\n%s", i, c.refusals, draw(h))
					}
				case c.refusals.unsure > 0:
					unsure++
				default:
					right++
					if !legal {
						t.Fatalf("history %d: no refusal is wrong, but porcupine finds no order\n%s", i, draw(h))
					}
				}
			}
			t.Logf("refusals all right %d, some wrong %d, unsure %d", right, wrong, unsure)
			if right == 0 || wrong == 0 {
				t.Error("the histories are lopsided")
			}
		})
	}
}

// draw shows a small history, a line an operation.
func draw(h *history.History) string {
	var b strings.Builder
	outcomes := map[history.Outcome]string{history.Unknown: "?", history.Done: "ok", history.Failed: "fail"}
	kinds := map[history.Kind]string{history.KindAcquire: "acquire", history.KindRelease: "release", history.KindRead: "read", history.KindWrite: "write", history.KindAdd: "add", history.KindAppend: "append", history.KindCAS: "cas"}
	for i := range h.Ops {
		o := &h.Ops[i]
		ret := "..."
		if o.Ret < history.Never {
			ret = strconv.FormatInt(o.Ret, 10)
		}
		fmt.Fprintf(&b, "%s [%d, %s] %s", h.Processes[o.Process], o.Call, ret, kinds[o.Kind])
		if o.Value >= 0 {
			fmt.Fprintf(&b, " %s", h.Values[o.Value])
		}
		if o.HasToken {
			fmt.Fprintf(&b, " token %d", o.Token)
		}
		fmt.Fprintf(&b, " %s\n", outcomes[o.Outcome])
	}
	return b.String()
}
