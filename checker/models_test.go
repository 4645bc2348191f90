package checker

import (
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

func TestParseModel(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want string // the model, or
		err  string // what the error says
	}{
		{in: "", want: "mutex"},
		{in: "mutex", want: "mutex"},
		{in: "semaphore:3", want: "semaphore:3"},
		{in: "cas-register", want: "cas-register"},
		{in: "semaphore", err: `a semaphore needs its number of permits, 1 to 1048576, as in "semaphore:3"`},
		{in: "semaphore:0", err: "needs its number of permits"},
		{in: "semaphore:-1", err: "needs its number of permits"},
		{in: "semaphore:x", err: "needs its number of permits"},
		{in: "semaphore:9999999999999999999", err: "needs its number of permits"},
		{in: "mutex:2", err: "mutex takes no argument"},
		{in: ":2", err: "unknown model"},
		{in: "queue", err: `unknown model "queue"; models are mutex, owner-mutex, reentrant-mutex, fenced-mutex`},
	} {
		m, err := ParseModel(tt.in)
		switch {
		case tt.err == "" && (err != nil || m.String() != tt.want):
			t.Errorf("%q: %v, %v, want %s", tt.in, m, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%q: %v, %v, want an error that says %q", tt.in, m, err, tt.err)
		}
	}
	for _, m := range Models() {
		name := strings.Replace(m.Name, ":N", ":2", 1)
		if got, err := ParseModel(name); err != nil || got.String() != name {
			t.Errorf("the listed model %s does not parse: %v, %v", m.Name, got, err)
		}
	}
}

// readObjects is read, with the operations "add", "append" and "cas" besides.
func readObjects(t *testing.T, text string) *history.History {
	t.Helper()
	more := map[string]history.Kind{"add": history.KindAdd, "append": history.KindAppend, "cas": history.KindCAS}
	b := newBuilder()
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		k, ok := more[f[1]]
		if ok {
			f[1] = "write"
		}
		n := len(b.ops)
		b.line(t, f)
		if ok {
			b.ops[n].Kind = k
		}
	}
	return b.history()
}

func TestCheckModel(t *testing.T) {
	for _, tt := range []struct {
		name, model, convention string
		history                 string
		want                    Verdict
		why                     string // part of the sentence
	}{
		{
			name: "two grants at once", model: "mutex", want: Violated,
			why: `"k" was granted to B at 20.0 ms while A (since 10.0 ms) certainly held it, until 30.0 ms at least`,
			history: `
				A acquire 0-10 ok
				B acquire 5-20 ok
				A release 30-40 ok
				B release 50-60 ok`,
		}, {
			name: "the release may have come before its answer", model: "mutex", want: Held,
			history: `
				A acquire 0-10 ok
				A release 20-40 ok
				B acquire 15-30 ok`,
		}, {
			name: "refused while free is not a lack of safety", model: "mutex", want: Held,
			why: "1 acquire was refused while the lock was certainly free",
			history: `
				A acquire 0-10 ok
				A release 20-30 ok
				B acquire 40-50 fail`,
		}, {
			name: "a failed release ends the hold", model: "mutex", want: Held,
			why: "1 hold was lost before its release, the first by process A",
			history: `
				A acquire 0-10 ok
				A release 20-30 fail
				B acquire 40-50 ok`,
		}, {
			name: "a failed release did not happen", model: "mutex", convention: FailedIgnored, want: Violated,
			history: `
				A acquire 0-10 ok
				A release 20-30 fail
				B acquire 40-50 ok`,
		}, {
			name: "anybody may release a mutex", model: "mutex", want: Held,
			history: `
				A acquire 0-10 ok
				B release 20-30 ok
				B acquire 40-50 ok`,
		}, {
			name: "only the holder may release an owner-mutex", model: "owner-mutex", want: Violated,
			why: `process B released "k" at 20.0 ms although it held nothing`,
			history: `
				A acquire 0-10 ok
				B release 20-30 ok`,
		}, {
			name: "an unknown acquire that was released was a hold", model: "mutex", want: Violated,
			why: "others certainly held it all that time",
			history: `
				A acquire 0-10 ok
				B acquire 5-? info
				B release 20-30 ok
				A release 40-50 ok`,
		}, {
			name: "a second acquire needs reentrancy", model: "owner-mutex", want: Violated,
			history: `
				A acquire 0-10 ok
				A acquire 20-30 ok`,
		}, {
			name: "the lock is free after the last release only", model: "reentrant-mutex", want: Violated,
			history: `
				A acquire 0-10 ok
				A acquire 20-30 ok
				A release 40-50 ok
				B acquire 60-70 ok
				A release 80-90 ok`,
		}, {
			name: "nested and released", model: "reentrant-mutex", want: Held,
			history: `
				A acquire 0-10 ok
				A acquire 20-30 ok
				A release 40-50 ok
				A release 60-70 ok
				B acquire 80-90 ok`,
		}, {
			name: "tokens rise", model: "fenced-mutex", want: Violated,
			why: `"k" was granted to B with token 7 at 50.0 ms, after A had been granted token 7`,
			history: `
				A acquire 0-10 ok token=7
				A release 20-30 ok
				B acquire 40-50 ok token=7`,
		}, {
			name: "a nested grant repeats the token", model: "reentrant-fenced-mutex", want: Violated,
			why: "got token 8, not the 7 under which it held it",
			history: `
				A acquire 0-10 ok token=7
				A acquire 20-30 ok token=8`,
		}, {
			name: "a grant within another's lease", model: "lease", want: Violated,
			history: `
				A acquire 0-10 ok ttl=1000
				B acquire 500-510 ok ttl=1000`,
		}, {
			name: "a grant after another's lease", model: "lease", want: Held,
			history: `
				A acquire 0-10 ok ttl=1000
				B acquire 1100-1110 ok ttl=1000`,
		}, {
			name: "as many holders as permits", model: "semaphore:2", want: Held,
			history: `
				A acquire 0-10 ok
				B acquire 0.1-11 ok
				A release 20-30 ok
				C acquire 19-40 ok`,
		}, {
			name: "more holders than permits", model: "semaphore:2", want: Violated,
			why: "A (since 10.0 ms) and B (since 11.0 ms) certainly held it",
			history: `
				A acquire 0-10 ok
				B acquire 0.1-11 ok
				C acquire 12-13 ok`,
		}, {
			name: "readers share", model: "rwlock", want: Held,
			history: `
				A acquire 0-10 ok value="read"
				B acquire 11-12 ok value="read"
				A release 13-14 ok
				B release 15-16 ok
				C acquire 17-18 ok value="write"`,
		}, {
			name: "a writer excludes readers", model: "rwlock", want: Violated,
			history: `
				A acquire 0-10 ok value="write"
				B acquire 11-12 ok value="read"`,
		}, {
			name: "a reader excludes writers", model: "rwlock", want: Violated,
			history: `
				A acquire 0-10 ok value="read"
				B acquire 11-12 ok`,
		}, {
			name: "a mode that does not exist", model: "rwlock", want: Unknown, why: `a read-write lock's is "read" or "write"`,
			history: `A acquire 0-10 ok value="intent"`,
		}, {
			name: "two operations of one process at once", model: "mutex", want: Unknown, why: "while an earlier operation of it is open",
			history: `
				A acquire 0-10 ok
				A release 5-20 ok`,
		}, {
			name: "nothing was granted", model: "mutex", want: NotApplicable,
			history: `A acquire 0-10 fail`,
		}, {
			name: "no such model", model: "queue", want: Unknown, why: "unknown model",
			history: `A acquire 0-10 ok`,
		}, {
			name: "a stale read", model: "register", want: Violated, why: "1 was still read from",
			history: `
				A write 0-10 ok value=1
				B read 11-12 ok value=1
				A write 20-30 ok value=2
				B read 40-50 ok value=1`,
		}, {
			name: "a write that nobody answered may have happened", model: "register", want: Held,
			history: `
				A write 0-10 ok value=1
				B write 20-? info value=2
				A read 30-40 ok value=1
				A read 50-60 ok value=2`,
		}, {
			name: "a value from nowhere", model: "register", want: Violated, why: "which nobody had written",
			history: `
				A read 0-1 ok value=null
				A read 2-3 ok value=9`,
		}, {
			name: "repeated values need a search", model: "register", want: Violated, why: "no order of the operations",
			history: `
				A write 0-10 ok value=1
				A write 20-30 ok value=2
				A write 40-50 ok value=1
				B read 60-70 ok value=2`,
		}, {
			name: "compare and set", model: "cas-register", want: Held,
			history: `
				A write 0-10 ok value=1
				A cas 20-30 ok value=[1,2]
				B cas 40-50 fail value=[1,3]
				B read 60-70 ok value=2`,
		}, {
			name: "compare and set of another value", model: "cas-register", want: Violated,
			history: `
				A write 0-10 ok value=1
				A cas 20-30 ok value=[2,3]`,
		}, {
			name: "keys are stores of their own", model: "kv", want: Held,
			history: `
				A write 0-10 ok key=a value="x"
				A append 20-30 ok key=a value="y"
				B read 40-50 ok key=a value="xy"
				B read 60-70 ok key=b value=""`,
		}, {
			name: "a counter between its bounds", model: "counter", want: Held,
			history: `
				A add 0-10 ok value=2
				B add 5-? info value=3
				A read 20-30 ok value=2
				A read 40-50 ok value=5`,
		}, {
			name: "a counter that lost an add", model: "counter", want: Violated, why: "read 2 from \"k\" at 50.0 ms, but by what was added it held 4 to 4",
			history: `
				A add 0-10 ok value=2
				B add 20-30 ok value=2
				A read 40-50 ok value=2`,
		}, {
			name: "a set that lost an element", model: "set", want: Violated, why: "the element 2, added to \"k\" by process B at 30.0 ms, is lost",
			history: `
				A add 0-10 ok value=1
				B add 20-30 ok value=2
				C add 21-? info value=3
				A read 40-50 ok value=[1]`,
		}, {
			name: "a set with an element twice", model: "set", want: Violated, why: "more than once",
			history: `
				A add 0-10 ok value=1
				A read 40-50 ok value=[1,1]`,
		}, {
			name: "a set with a strange element", model: "set", want: Violated, why: "which nobody had added",
			history: `
				A add 0-10 ok value=1
				A read 40-50 ok value=[1,2]`,
		}, {
			name: "sets that do not contain each other", model: "set", want: Violated, why: "neither continues the other",
			history: `
				A add 0-40 ok value=1
				B add 0.1-50 ok value=2
				C read 1-30 ok value=[1]
				D read 2-31 ok value=[2]`,
		}, {
			name: "lists that do not continue each other", model: "list", want: Violated, why: "neither continues the other",
			history: `
				A append 0-40 ok value=1
				B append 0.1-50 ok value=2
				C read 60-70 ok value=[1,2]
				D read 61-71 ok value=[2,1]`,
		}, {
			name: "a list against time", model: "list", want: Violated, why: "took effect before",
			history: `
				A append 0-10 ok value=1
				B append 20-30 ok value=2
				C read 40-50 ok value=[2,1]`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := readObjects(t, tt.history)
			p := CheckModel(h, Options{Model: tt.model, Convention: tt.convention})
			if p.Verdict != tt.want || !strings.Contains(p.Why, tt.why) {
				t.Errorf("%s: %s\nwant %s: %s", p.Verdict, p.Why, tt.want, tt.why)
			}
			if p.Second != nil && p.Second.Outcome != Agrees {
				t.Errorf("porcupine %s: %s", p.Second.Outcome, p.Second.Detail)
			}
			if p.Verdict == Violated && (p.Witness == nil || len(p.Witness.Events) == 0 || p.Count == 0) {
				t.Errorf("a violation without a witness: %+v", p)
			}
		})
	}
}
