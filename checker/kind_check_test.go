package checker

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// Check holds a history against the kind of lock that it is of: what a plain lock
// forbids is no violation of one that allows it.
func TestCheckOfOtherKinds(t *testing.T) {
	const (
		nested = `
			A acquire 0-1 ok token=1
			A acquire 10-11 ok token=1
			A release 20-21 ok
			A release 30-31 ok
			B acquire 40-41 ok token=2
			B release 50-51 ok`
		inside = `
			A acquire 0-1 ok
			A acquire 10-11 ok
			A release 20-21 ok
			B acquire 24-25 ok
			A release 30-31 ok
			B release 50-51 ok`
		two = `
			A acquire 0-1 ok
			B acquire 10-11 ok
			A release 20-21 ok
			B release 30-31 ok`
		readers = `
			A acquire 0-1 ok value="read"
			B acquire 10-11 ok value="read"
			A release 20-21 ok value="read"
			B release 30-31 ok value="read"`
		writer = `
			A acquire 0-1 ok value="read"
			B acquire 10-11 ok value="write"
			A release 20-21 ok value="read"
			B release 30-31 ok value="write"`
	)
	for _, tt := range []struct {
		model, history string
		want           Verdict
	}{
		{"reentrant-mutex", nested, Held},
		{"reentrant-fenced-mutex", nested, Held},
		{"reentrant-mutex", inside, Violated},
		{"reentrant-mutex", two, Violated},
		{"mutex", two, Violated},
		{"semaphore:1", two, Violated},
		{"semaphore:2", two, Held},
		{"semaphore:2", two + "\nC acquire 12-13 ok\nC release 14-15 ok", Violated},
		{"rwlock", readers, Held},
		{"rwlock", writer, Violated},
	} {
		r := Check(read(t, tt.history), Options{Model: tt.model, TTL: 1000 * ms})
		if p := r.Property(Mutex); p.Verdict != tt.want || tt.want == Violated && p.Witness == nil {
			t.Errorf("%s: mutex is %s: %s\nwant %s of%s", tt.model, p.Verdict, p.Why, tt.want, tt.history)
		}
		for _, p := range r.Properties {
			if p.Name != Mutex && p.Name != Lease && p.Verdict == Violated {
				t.Errorf("%s: %s is violated: %s", tt.model, p.Name, p.Why)
			}
		}
		if r.Grants == 0 || r.Property(State) == nil {
			t.Errorf("%s: %+v", tt.model, r)
		}
		for _, f := range r.Findings {
			if f.Code == Again {
				t.Errorf("%s: %s: %s", tt.model, f.Code, f.Why)
			}
		}
	}
}

// On random histories Check finds exclusion broken only where the model of the
// kind is, and always where two grants overlap and every outcome is known: a
// claim ends with a release of unknown outcome, for a model it may last.
func TestCheckOfOtherKindsAgrees(t *testing.T) {
	for _, name := range []string{"reentrant-mutex", "semaphore:2", "semaphore:3", "rwlock"} {
		m, err := ParseModel(name)
		if err != nil {
			t.Fatal(err)
		}
		violated := 0
		for i := range histories(t, 8_000) {
			h := lockHistory(newRand(i, 9), m)
			o := Options{Model: name, NoSecondOpinion: true}
			want, class := checkModel(h, o)
			got := Check(h, o).Property(Mutex)
			if got.Verdict == Violated {
				violated++
				if want.Verdict == Held || want.Verdict == NotApplicable {
					t.Fatalf("%s, history %d: mutex is violated: %s\nby the model it is %s: %s\n%s", name, i, got.Why, want.Verdict, want.Why, draw(h))
				}
			} else if want.Verdict == Violated && class == classOverlap && known(h) {
				t.Fatalf("%s, history %d: mutex is %s: %s\nby the model two held: %s\n%s", name, i, got.Verdict, got.Why, want.Why, draw(h))
			}
		}
		if violated < 100 {
			t.Errorf("%s: only %d histories were violated", name, violated)
		}
	}
}

func known(h *history.History) bool {
	return !slices.ContainsFunc(h.Ops, func(op history.Op) bool {
		return op.Outcome == history.Unknown || op.Kind == history.KindRelease && op.Outcome == history.Failed
	})
}

// A loss notice ends a hold for a model as well.
func TestModelsHeedLossNotices(t *testing.T) {
	for _, tt := range []struct {
		name, model, history string
		want                 Verdict
		why                  string
	}{
		{"granted to another after the notice", "owner-mutex", `
			A acquire 0-1 ok
			A lost 10
			B acquire 20-21 ok
			B release 30-31 ok`, Held, "1 hold was lost before its release, the first by process A, which found out at 10.0 ms"},
		{"granted to another before the notice", "owner-mutex", `
			A acquire 0-1 ok
			B acquire 5-6 ok
			A lost 10
			B release 30-31 ok`, Violated, `"k" was granted to B at 6.0 ms while A (since 1.0 ms) certainly held it, until 10.0 ms at least`},
		{"a release that comes too late", "owner-mutex", `
			A acquire 0-1 ok
			A lost 10
			B acquire 20-21 ok
			A release 22-23 ok
			B release 30-31 ok`, Held, "lost"},
		{"the notice of an earlier hold", "owner-mutex", `
			A acquire 0-1 ok
			A release 2-3 ok
			A acquire 9-11 ok
			A lost 10
			B acquire 20-21 ok`, Violated, "certainly held it"},
		{"all that a process holds", "reentrant-mutex", `
			A acquire 0-1 ok
			A acquire 2-3 ok
			A lost 10
			B acquire 20-21 ok
			B release 30-31 ok`, Held, "2 holds were lost"},
		{"one permit of two", "semaphore:2", `
			A acquire 0-1 ok
			B acquire 2-3 ok
			A lost 10
			C acquire 20-21 ok`, Held, "lost"},
		{"a reader's", "rwlock", `
			A acquire 0-1 ok value="read"
			A lost 10
			B acquire 20-21 ok value="write"`, Held, "lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := CheckModel(read(t, tt.history), Options{Model: tt.model})
			if p.Verdict != tt.want || !strings.Contains(p.Why, tt.why) {
				t.Errorf("%s: %s\nwant %s: %s", p.Verdict, p.Why, tt.want, tt.why)
			}
			if p.Second != nil && p.Second.Outcome != Agrees {
				t.Errorf("porcupine %s: %s", p.Second.Outcome, p.Second.Detail)
			}
		})
	}
}
