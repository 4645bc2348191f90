package checker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// recorded opens a history recorded by others, or skips the test.
func recorded(t *testing.T, path string) *history.History {
	t.Helper()
	path = filepath.Join("..", "..", "shared", "histories", path)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the recorded histories are not here: %v", err)
	}
	h, err := history.Open(path, history.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRecordedEtcdRegisters(t *testing.T) {
	linearizable := []int{2, 18, 38, 48, 56, 76, 80, 92, 98, 100, 102}
	for i := 0; i <= 102; i++ {
		name := fmt.Sprintf("etcd_%03d.log", i)
		if i%2 == 1 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			h := recorded(t, filepath.Join("porcupine-etcd", name))
			want := Violated
			if slices.Contains(linearizable, i) {
				want = Held
			}
			p := CheckModel(h, Options{Model: "cas-register", Timeout: time.Minute})
			if p.Verdict != want {
				t.Errorf("%s: %s, want %s", p.Verdict, p.Why, want)
			}
		})
	}
}

func TestRecordedKeyValueStores(t *testing.T) {
	for _, name := range []string{"c01-ok", "c01-bad", "c10-ok", "c10-bad"} {
		t.Run(name, func(t *testing.T) {
			h := recorded(t, filepath.Join("porcupine-kv", name+".txt"))
			want := Held
			if strings.HasSuffix(name, "-bad") {
				want = Violated
			}
			p := CheckModel(h, Options{Model: "kv", Timeout: time.Minute})
			if p.Verdict != want {
				t.Errorf("%s: %s, want %s", p.Verdict, p.Why, want)
			}
		})
	}
}

func TestRecordedMutexUnderPartitions(t *testing.T) {
	h := recorded(t, filepath.Join("knossos", "etcd-mutex-prefix1118.edn"))
	for _, model := range []string{"mutex", "owner-mutex", "reentrant-mutex", "semaphore:1", "rwlock"} {
		for _, convention := range []string{FailedEnds, FailedIgnored} {
			p := CheckModel(h, Options{Model: model, Convention: convention})
			if p.Verdict != Held || p.Overlap != 0 {
				t.Errorf("%s, %s: %s, overlap %v: %s", model, convention, p.Verdict, p.Overlap, p.Why)
			}
		}
	}
}

// The same history, judged as claims: nobody believed while another did, under
// either convention. Of the releases that failed in it none was within a hold;
// one that is names who lost the lock before it released it.
func TestRecordedClaimsUnderPartitions(t *testing.T) {
	whole := recorded(t, filepath.Join("knossos", "etcd-mutex-prefix1118.edn"))
	for _, convention := range []string{FailedEnds, FailedIgnored} {
		for _, loses := range []bool{false, true} {
			h := *whole
			if loses {
				last := whole.Ops[len(whole.Ops)-1]
				op := history.Op{Key: last.Key, Process: int32(len(h.Processes)), Value: -1, Kind: history.KindAcquire, Outcome: history.Done}
				op.Call, op.Ret, op.Index, op.RetIndex = 100e9, 101e9, int32(h.Events), int32(h.Events)+1
				fails := op
				fails.Kind, fails.Outcome = history.KindRelease, history.Failed
				fails.Call, fails.Ret, fails.Index, fails.RetIndex = 102e9, 103e9, op.Index+2, op.Index+3
				h.Processes = append(slices.Clone(h.Processes), "loser")
				h.Ops = append(slices.Clone(h.Ops), op, fails)
			}
			r := Check(&h, Options{Convention: convention})
			p := r.Property(Mutex)
			if p.Verdict != Held || p.Overlap != 0 || p.Count != 0 {
				t.Errorf("%s: mutex is %s, overlap %v: %s", convention, p.Verdict, p.Overlap, p.Why)
			}
			if p.Second == nil || p.Second.Outcome != Agrees {
				t.Errorf("%s: the second opinion is %+v", convention, p.Second)
			}
			var lost []string
			for _, f := range r.Findings {
				if f.Code == Lost {
					lost = append(lost, f.Why)
				}
			}
			switch {
			case !loses && len(lost) > 0:
				t.Errorf("%s: no release failed within a hold, but %q", convention, lost)
			case loses && (len(lost) != 1 || !strings.HasPrefix(lost[0], "loser lost ")):
				t.Errorf("%s: who lost the lock is not named: %q", convention, lost)
			}
		}
	}
}

// Without being told the model, Check sees what the others' objects are.
func TestRecordedObjectsAreInferred(t *testing.T) {
	for name, want := range map[string]Verdict{
		"porcupine-etcd/etcd_002.log": Held, "porcupine-etcd/etcd_000.log": Violated,
		"porcupine-etcd/etcd_102.log": Held, "porcupine-etcd/etcd_010.log": Violated,
		"porcupine-kv/c01-ok.txt": Held, "porcupine-kv/c01-bad.txt": Violated,
		"porcupine-kv/c10-ok.txt": Held, "porcupine-kv/c10-bad.txt": Violated,
	} {
		t.Run(name, func(t *testing.T) {
			r := Check(recorded(t, name), Options{Timeout: time.Minute})
			for _, p := range r.Properties {
				if p.Name == State && p.Verdict != want {
					t.Errorf("state is %s: %s, want %s", p.Verdict, p.Why, want)
				} else if p.Name != State && p.Verdict != NotApplicable {
					t.Errorf("%s is %s: %s, but there is no lock", p.Name, p.Verdict, p.Why)
				}
			}
		})
	}
}
