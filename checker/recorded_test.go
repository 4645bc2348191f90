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
