package checker

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// texts numbers values as a decoder does: each text once.
type texts struct {
	all []string
	ids map[string]int32
}

func (x *texts) id(s string) int32 {
	if x.ids == nil {
		x.ids = map[string]int32{}
	}
	if n, ok := x.ids[s]; ok {
		return n
	}
	x.all = append(x.all, s)
	x.ids[s] = int32(len(x.all) - 1)
	return x.ids[s]
}

// objectHistory is a random history of an object, or nearly.
func objectHistory(r *rand.Rand, name string) *history.History {
	processes := 2 + r.IntN(3)
	n := 3 + r.IntN(7)
	faulty := []float64{0, 0.1, 0.3}[r.IntN(3)]
	pUnknown := []float64{0, 0.1, 0.3}[r.IntN(3)]
	var x texts
	written := 0
	number := 0
	var list []string
	var past []string // what reads could have returned earlier
	render := func() string {
		switch name {
		case modelCounter:
			return strconv.Itoa(number)
		case modelSet, modelList:
			l := slices.Clone(list)
			if name == modelSet {
				r.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
			}
			raw := make([]json.RawMessage, len(l))
			for i := range l {
				raw[i] = json.RawMessage(l[i])
			}
			b, _ := json.Marshal(raw)
			return string(b)
		}
		if len(list) == 0 {
			return "null"
		}
		return list[len(list)-1]
	}
	next := func(int) history.Op {
		o := history.Op{Kind: history.KindRead, Value: -1}
		if r.IntN(2) == 0 {
			return o
		}
		written++
		v := written
		o.Kind = map[string]history.Kind{modelCounter: history.KindAdd, modelSet: history.KindAdd, modelList: history.KindAppend}[name]
		switch name {
		case modelRegister:
			o.Kind = history.KindWrite
		case modelCounter:
			v = 1 + r.IntN(3)
			if r.IntN(6) == 0 {
				v = -1
			}
		}
		o.Value = x.id(strconv.Itoa(v))
		return o
	}
	effect := func(o *history.Op) bool {
		o.Outcome = history.Done
		wrong := r.Float64() < faulty
		if o.Kind == history.KindRead {
			v := render()
			if wrong && len(past) > 0 {
				v = past[r.IntN(len(past))]
			}
			o.Value = x.id(v)
			return true
		}
		past = append(past, render())
		if !wrong { // else it is lost
			list = append(list, x.all[o.Value])
			k, _ := strconv.Atoi(x.all[o.Value])
			number += k
		} else if r.IntN(3) == 0 {
			o.Outcome = history.Failed
		}
		return true
	}
	h := simulate(r, processes, n, pUnknown, next, effect)
	h.Values = x.all
	return h
}

// TestObjectsAgainstPorcupine compares the exact checkers with porcupine's
// models of the same objects. A counter's bounds may only err on one side.
func TestObjectsAgainstPorcupine(t *testing.T) {
	for _, name := range []string{modelRegister, modelSet, modelList, modelCounter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Model{Name: name}
			total := histories(t, 6_000)
			seen := map[Verdict]int{}
			missed := 0
			for i := range total {
				h := objectHistory(newRand(i, 3), name)
				c := &objectCase{h: h, o: Options{NoSecondOpinion: true}, m: m}
				ops := allPositions(h)
				switch name {
				case modelRegister:
					if !c.checkRegister(ops) {
						t.Fatalf("history %d: values are unique\n%s", i, draw(h))
					}
				case modelSet:
					c.checkSet(ops)
				case modelList:
					c.checkList(ops)
				case modelCounter:
					c.boundCounter(ops)
				}
				p, _ := c.property(Linearizable, len(ops))
				seen[p.Verdict]++
				if p.Verdict == Unknown {
					t.Fatalf("history %d: %s\n%s", i, p.Why, draw(h))
				}
				result, why := c.searchKey(ops, 0)
				if why != "" {
					t.Fatal(why)
				}
				illegal := result == porcupine.Illegal
				if name == modelCounter && illegal && p.Verdict != Violated {
					missed++
					continue
				}
				if illegal != (p.Verdict == Violated) {
					t.Fatalf("history %d: %s (%s); porcupine: %s\n%s", i, p.Verdict, p.Why, result, draw(h))
				}
			}
			t.Logf("%d histories: %v, missed by bounds alone: %d", total, seen, missed)
			if seen[Held] < total/20 || seen[Violated] < total/20 {
				t.Errorf("the histories are lopsided: %v", seen)
			}
			if missed > total/20 {
				t.Errorf("the bounds of a counter miss %d of %d", missed, total)
			}
		})
	}
}

// updateHistory is a random history of sections that read a register and write
// a new value, under a lock that sometimes lets two in.
func updateHistory(r *rand.Rand, unique bool) *history.History {
	processes := 2 + r.IntN(2)
	n := 6 + r.IntN(10)
	pUnknown := []float64{0, 0.05, 0.15}[r.IntN(3)]
	leaky := []float64{0, 0.1, 0.4}[r.IntN(3)]
	var x texts
	value, holder, written := 0, -1, 0
	step := make([]int, processes) // 0 acquire, 1 read, 2 write, 3 release
	read := make([]int, processes)
	x.id("0")
	next := func(p int) history.Op {
		o := history.Op{Value: -1}
		switch step[p] {
		case 0:
			o.Kind = history.KindAcquire
		case 1:
			o.Kind = history.KindRead
		case 2:
			o.Kind = history.KindWrite
			written++
			v := read[p] + 1
			if unique {
				v = written
			}
			o.Value = x.id(strconv.Itoa(v))
		default:
			o.Kind = history.KindRelease
		}
		step[p] = (step[p] + 1) % 4
		if o.Kind == history.KindRead && r.IntN(10) == 0 { // only looks
			step[p] = 3
		}
		return o
	}
	effect := func(o *history.Op) bool {
		p := int(o.Process)
		o.Outcome = history.Done
		switch o.Kind {
		case history.KindAcquire:
			if holder >= 0 && holder != p && r.Float64() >= leaky {
				return false
			}
			holder = p
		case history.KindRelease:
			if holder == p {
				holder = -1
			}
		case history.KindRead:
			read[p] = value
			o.Value = x.id(strconv.Itoa(value))
		case history.KindWrite:
			value, _ = strconv.Atoi(x.all[o.Value])
		}
		return true
	}
	h := simulate(r, processes, n, pUnknown, next, effect)
	h.Values = x.all
	return h
}

// TestUpdatesAgainstPorcupine compares the property State of sections that read
// and write with a model of them.
func TestUpdatesAgainstPorcupine(t *testing.T) {
	for _, unique := range []bool{true, false} {
		t.Run(fmt.Sprintf("unique=%v", unique), func(t *testing.T) {
			t.Parallel()
			total := histories(t, 6_000)
			seen := map[Verdict]int{}
			lost := 0
			for i := range total {
				h := updateHistory(newRand(i, 4), unique)
				p, class := stateOf(h, Options{NoSecondOpinion: true}, countKinds(h))
				seen[p.Verdict]++
				if p.Verdict == NotApplicable || p.Verdict == Unknown {
					continue
				}
				if class == classLostUpdate {
					lost++
				}
				c := &objectCase{h: h, m: Model{Name: modelRegister}}
				ops := keyed(h, operatesOn(c.m))[0]
				in, first, why := c.translate(ops)
				if why != "" || len(in) == 0 {
					t.Fatalf("history %d: %q", i, why)
				}
				initial := int32(slices.Index(h.Values, first))
				result, why := c.searchUpdates(ops, updates(h, allPositions(h)), initial)
				if result == porcupine.Unknown {
					t.Fatal(why)
				}
				legal := result == porcupine.Ok
				if !legal && p.Verdict == Held {
					t.Fatalf("history %d: held (%s), but porcupine finds no order\n%s", i, p.Why, draw(h))
				}
				if legal && p.Verdict == Violated {
					t.Fatalf("history %d: %s (%s), but porcupine finds an order\n%s", i, class, p.Why, draw(h))
				}
			}
			t.Logf("%d histories: %v, lost updates in %d", total, seen, lost)
			if seen[Held] < total/20 || lost < total/20 {
				t.Errorf("the histories are lopsided: %v, %d with lost updates", seen, lost)
			}
		})
	}
}
