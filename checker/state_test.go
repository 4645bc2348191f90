package checker

import (
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

func TestState(t *testing.T) {
	for _, tt := range []struct {
		name    string
		history string
		want    Verdict
		count   int
		why     string
	}{
		{
			name: "one at a time", want: Held,
			history: `
				A acquire 0-1 ok
				A read 2-3 ok value=5
				A write 4-5 ok value=6
				A release 6-7 ok
				B acquire 8-9 ok
				B read 10-11 ok value=6
				B write 12-13 ok value=7`,
		}, {
			name: "two updates from one value", want: Violated, count: 1,
			why: `an update of "k" is lost: process B wrote 6 (invoked at 12.0 ms) and process A wrote 6 (invoked at 20.0 ms), both from 5`,
			history: `
				A acquire 0-1 ok
				A read 2-3 ok value=5
				B acquire 8-9 ok
				B read 10-11 ok value=5
				B write 12-13 ok value=6
				A write 20-21 ok value=6`,
		}, {
			name: "three updates from one value are two lost", want: Violated, count: 2,
			history: `
				A acquire 0-1 ok
				A read 2-3 ok value=5
				B acquire 8-9 ok
				B read 10-11 ok value=5
				B write 12-13 ok value=6
				C acquire 14-15 ok
				C read 16-17 ok value=5
				C write 18-19 ok value=8
				A write 20-21 ok value=7`,
		}, {
			name: "a write that nobody saw need not have happened", want: Held,
			history: `
				A acquire 0-1 ok
				A read 2-3 ok value=5
				A write 4-? info value=6
				A release 6-7 ok
				B acquire 8-9 ok
				B read 10-11 ok value=5
				B write 12-13 ok value=7
				B read 14-15 ok value=7`,
		}, {
			name: "the resource's log knows better", want: Violated, count: 1, why: "an update of \"k\" is lost",
			history: `
				A acquire 0-1 ok
				A read 2-3 ok value=5
				A write 4-? info value=6
				A release 6-7 ok
				B acquire 8-9 ok
				B read 10-11 ok value=5
				B write 12-13 ok value=7
				resource 4.5 accept A op=2
				resource 12.5 accept B op=6`,
		}, {
			name: "a rejected write is none", want: Held,
			history: `
				A acquire 0-1 ok
				A read 2-3 ok value=5
				B acquire 8-9 ok
				B read 10-11 ok value=5
				B write 12-13 ok value=6
				A write 20-21 fail value=6`,
		}, {
			name: "a write outside of a section between a read and its write", want: Violated, count: 1, why: "lets each section's write follow its read",
			history: `
				A acquire 0-1 ok
				A read 2-3 ok value=5
				B write 4-5 ok value=9
				A write 6-7 ok value=6
				A read 8-9 ok value=6`,
		}, {
			name: "a lock's values may come round", want: Held,
			history: `
				A acquire 0-1 ok
				A read 2-3 ok value=0
				A write 4-5 ok value=1
				A release 6-7 ok
				B acquire 8-9 ok
				B read 10-11 ok value=1
				B write 12-13 ok value=0
				B release 14-15 ok
				A acquire 16-17 ok
				A read 18-19 ok value=0
				A write 20-21 ok value=1`,
		}, {
			name: "only writes say nothing", want: NotApplicable, why: "no read",
			history: `
				A acquire 0-1 ok
				A write 4-5 ok value=1`,
		}, {
			name: "no object", want: NotApplicable, why: "no operations of a register",
			history: `A acquire 0-1 ok`,
		}, {
			name: "a set under a lock", want: Violated, count: 1, why: "is lost",
			history: `
				A acquire 0-1 ok
				A add 2-3 ok value=1
				A release 4-5 ok
				B acquire 8-9 ok
				B read 12-13 ok value=[]`,
		}, {
			name: "a counter under a lock", want: Held,
			history: `
				A acquire 0-1 ok
				A add 2-3 ok
				A release 4-5 ok
				B acquire 8-9 ok
				B read 12-13 ok value=1`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := checkState(readObjects(t, tt.history), Options{})
			if p.Verdict != tt.want || p.Count != tt.count || !strings.Contains(p.Why, tt.why) {
				t.Errorf("%s, %d: %s\nwant %s, %d: %s", p.Verdict, p.Count, p.Why, tt.want, tt.count, tt.why)
			}
			if p.Second != nil && p.Second.Outcome != Agrees {
				t.Errorf("porcupine %s: %s", p.Second.Outcome, p.Second.Detail)
			}
		})
	}
}

// TestVerdictsDoNotDependOnNames holds verdicts against changes of a history
// that mean nothing: times moved, processes renamed, another key, an acquire
// that was never answered. (The last means something to a plain mutex, which
// another process may release.)
func TestVerdictsDoNotDependOnNames(t *testing.T) {
	for _, name := range lockModels {
		m, err := ParseModel(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range histories(t, 500) {
			h := lockHistory(newRand(i, 8), m)
			o := Options{Model: name, NoSecondOpinion: true}
			want := CheckModel(h, o)

			moved := *h
			moved.Ops = nil
			for _, op := range h.Ops {
				op.Call += 1 << 40
				if op.Ret < history.Never {
					op.Ret += 1 << 40
				}
				op.Process = int32(len(h.Processes)) - 1 - op.Process
				moved.Ops = append(moved.Ops, op)
			}
			moved.Keys = append([]string{"other"}, h.Keys...)
			moved.Processes = append(append([]string(nil), h.Processes...), "silent")
			for k := range moved.Ops {
				moved.Ops[k].Key = 1
			}
			if name != modelMutex {
				moved.Ops = append([]history.Op{{Kind: history.KindAcquire, Process: int32(len(h.Processes)), Key: 1, Ret: history.Never, RetIndex: -1, Value: -1}}, moved.Ops...)
			}
			if got := CheckModel(&moved, o); got.Verdict != want.Verdict || got.Count != want.Count {
				t.Fatalf("%s, history %d: %s (%d), and after changes that mean nothing %s (%d)\n%s", name, i, want.Verdict, want.Count, got.Verdict, got.Count, draw(h))
			}
		}
	}
}
