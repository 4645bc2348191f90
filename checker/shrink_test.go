package checker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// sections makes a valid history of n operations on one lock, in which clients
// take turns and read and write a register that only they change. A part
// unknown of the releases has an unknown outcome, and as many acquires fail to
// answer and were never granted.
func sections(n, clients int, unknown float64, seed uint64) *history.History {
	r := rand.New(rand.NewPCG(seed, 5))
	h := &history.History{Keys: []string{"k"}, Errors: []string{""}, Terms: []history.Term{{}}}
	for i := range clients {
		h.Processes = append(h.Processes, fmt.Sprintf("c%d", i))
	}
	now, event, token := int64(0), int32(0), int64(0)
	invoke := func(p int, k history.Kind, value int32) int {
		now += 1 + r.Int64N(1000)
		h.Ops = append(h.Ops, history.Op{Kind: k, Process: int32(p), Call: now, Ret: history.Never, Index: event, RetIndex: -1, Value: value})
		event++
		return len(h.Ops) - 1
	}
	ok := func(i int) *history.Op {
		now += 1 + r.Int64N(1000)
		o := &h.Ops[i]
		o.Ret, o.RetIndex, o.Outcome = now, event, history.Done
		event++
		return o
	}
	value := func(v int) int32 {
		for len(h.Values) <= v {
			h.Values = append(h.Values, fmt.Sprint(len(h.Values)))
		}
		return int32(v)
	}
	for v := 0; len(h.Ops) < n; {
		p := r.IntN(clients)
		if r.Float64() < unknown {
			invoke(p, history.KindAcquire, -1)
			continue
		}
		token++
		a := ok(invoke(p, history.KindAcquire, -1))
		a.Token, a.HasToken = token, true
		ok(invoke(p, history.KindRead, value(v)))
		v++
		ok(invoke(p, history.KindWrite, value(v)))
		rel := invoke(p, history.KindRelease, -1)
		if r.Float64() >= unknown {
			ok(rel)
		}
	}
	h.Events = int64(event)
	return h
}

// doubleGrant lets another client in while the section in the middle of h is
// open: between its write and its release. It does the same as others do.
func doubleGrant(h *history.History) (first, second string) {
	mid := len(h.Ops) / 2
	for h.Ops[mid].Kind != history.KindWrite {
		mid++
	}
	w := h.Ops[mid]
	var gap []int64 // times between the write and the release
	for t := w.Ret + 1; len(gap) < 4; t++ {
		gap = append(gap, t)
	}
	const room = 100
	for i := range h.Ops { // make room for the events
		o := &h.Ops[i]
		if o.Call > w.Ret {
			o.Call += room
			o.Index += 4
		}
		if o.Ret > w.Ret && o.Ret < history.Never {
			o.Ret += room
			o.RetIndex += 4
		}
	}
	other := (w.Process + 1) % int32(len(h.Processes))
	e := w.RetIndex + 1
	extra := []history.Op{
		{Kind: history.KindAcquire, Process: other, Call: gap[0], Ret: gap[1], Index: e, RetIndex: e + 1, Outcome: history.Done, Value: -1},
		{Kind: history.KindRelease, Process: other, Call: gap[2], Ret: gap[3], Index: e + 2, RetIndex: e + 3, Outcome: history.Done, Value: -1},
	}
	h.Ops = slices.Insert(h.Ops, mid+1, extra...)
	h.Events += 4
	return h.Processes[w.Process], h.Processes[other]
}

func TestShrinkDoubleGrant(t *testing.T) {
	for _, property := range []string{Mutex, Linearizable} {
		for _, unknown := range []float64{0, 0.1} {
			t.Run(fmt.Sprintf("%s, unknown %v", property, unknown), func(t *testing.T) {
				h := sections(100_000, 20, unknown, 1)
				a, b := doubleGrant(h)
				start := time.Now()
				s, err := Shrink(h, Options{Model: "mutex"}, property)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%v, %d checks, %d of %d sections: %s", time.Since(start), s.Checks, s.Sections, s.Before, s.Verdict.Why)
				if s.Sections != 2 || !s.Minimal || s.Verdict.Verdict != Violated {
					t.Errorf("kept %d sections, minimal %v, %s; want the two grants", s.Sections, s.Minimal, s.Verdict.Verdict)
				}
				if !strings.Contains(s.Verdict.Why, a) || !strings.Contains(s.Verdict.Why, b) {
					t.Errorf("the verdict does not name %s and %s: %s", a, b, s.Verdict.Why)
				}
				if len(s.Events) > 12 || !slices.IsSorted(s.Events) {
					t.Errorf("%d events are kept, want at most 12, ascending", len(s.Events))
				}
			})
		}
	}
}

// TestShrinkIsMinimal shrinks random violations of every kind and checks that
// no section can be left out.
func TestShrinkIsMinimal(t *testing.T) {
	for _, name := range lockModels {
		t.Run(name, func(t *testing.T) {
			m, err := ParseModel(name)
			if err != nil {
				t.Fatal(err)
			}
			shrunk := 0
			for i := 0; shrunk < 50; i++ {
				if i > 10_000 {
					t.Fatal("too few violations")
				}
				h := lockHistory(newRand(i, 6), m)
				o := Options{Model: name, NoSecondOpinion: true}
				whole, class := checkModel(h, o)
				if whole.Verdict != Violated {
					continue
				}
				shrunk++
				s, err := Shrink(h, o, Linearizable)
				if err != nil {
					t.Fatal(err)
				}
				keep := func(index int32) bool { return slices.Contains(s.Events, int64(index)) }
				part := *h
				part.Ops = nil
				for _, op := range h.Ops {
					if keep(op.Index) {
						part.Ops = append(part.Ops, op)
					}
				}
				if p, c := checkModel(&part, o); p.Verdict != Violated || c != class {
					t.Fatalf("history %d: the kept events are %s (%s), not %s\n%s", i, p.Verdict, c, class, draw(&part))
				}
				again := &shrinking{h: &part, o: o, property: Linearizable, class: class}
				again.divide()
				if len(again.sections) != s.Sections {
					t.Fatalf("history %d: %d sections were kept, the events have %d\n%s", i, s.Sections, len(again.sections), draw(&part))
				}
				for k := range again.sections {
					if !s.Minimal {
						break // some sections had to stay
					}
					var rest []int32
					for j := range again.sections {
						if j != k {
							rest = append(rest, int32(j))
						}
					}
					if len(rest) > 0 && again.violates(rest) {
						t.Fatalf("history %d: section %d can be left out\n%s", i, k, draw(&part))
					}
				}
			}
		})
	}
}

func TestShrinkLostUpdate(t *testing.T) {
	h := sections(2_000, 5, 0.05, 2)
	for i := len(h.Ops) / 2; ; i++ { // a section begins from what the one before it had read
		if h.Ops[i].Kind == history.KindRead && h.Ops[i-2].Kind == history.KindWrite {
			h.Ops[i].Value--
			break
		}
		if h.Ops[i].Kind == history.KindRead {
			j := i - 1
			for h.Ops[j].Kind != history.KindRead {
				j--
			}
			h.Ops[i].Value = h.Ops[j].Value
			break
		}
	}
	s, err := Shrink(h, Options{}, State)
	if err != nil {
		t.Fatal(err)
	}
	if s.Sections != 2 || !s.Minimal {
		t.Errorf("kept %d sections, minimal %v: %s", s.Sections, s.Minimal, s.Verdict.Why)
	}
}

// TestShrinkInventsNothing shrinks violations which must not turn into others:
// without the write of 2, say, the good read of 2 would be one.
func TestShrinkInventsNothing(t *testing.T) {
	for _, tt := range []struct{ model, history, kept string }{
		{"cas-register", `
			A write 0-10 ok value=1
			A write 20-30 ok value=2
			B read 40-50 ok value=2
			A write 60-70 ok value=1
			B read 80-90 ok value=2
			B read 91-92 ok value=1`, "w1 w2 w1 r2"},
		{"counter", `
			A add 0-10 ok value=2
			B read 20-30 ok value=2
			A add 40-50 ok value=2
			B read 60-70 ok value=2`, "a2 a2 r2"},
		{"register", `
			A write 0-10 ok value=1
			B read 12-13 ok value=1
			A write 20-30 ok value=2
			B read 40-50 ok value=2
			B read 60-70 ok value=1`, "w1 w2 r1"},
		{"set", `
			A add 0-10 ok value=1
			A add 20-30 ok value=2
			B read 40-50 ok value=[1]
			B read 60-70 ok value=[2]`, "a1 a2 r[2]"},
	} {
		t.Run(tt.model, func(t *testing.T) {
			h := readObjects(t, tt.history)
			s, err := Shrink(h, Options{Model: tt.model}, Linearizable)
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, o := range h.Ops {
				if slices.Contains(s.Events, int64(o.Index)) {
					letter := map[history.Kind]string{history.KindRead: "r", history.KindWrite: "w", history.KindAdd: "a"}[o.Kind]
					kept = append(kept, letter+h.Values[o.Value])
				}
			}
			if got := strings.Join(kept, " "); got != tt.kept {
				t.Errorf("kept %s, want %s: %s", got, tt.kept, s.Verdict.Why)
			}
		})
	}
}

func TestShrinkRefuses(t *testing.T) {
	h := sections(100, 3, 0, 3)
	for property, want := range map[string]string{
		Linearizable: "nothing to shrink",
		"nonsense":   "unknown property",
	} {
		if _, err := Shrink(h, Options{}, property); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", property, err, want)
		}
	}
}
