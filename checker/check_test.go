package checker

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each case is a history in words, the verdicts on it, and a sentence that must
// be part of the reason.
func TestVerdicts(t *testing.T) {
	tests := []struct {
		name    string
		history string
		options Options
		want    map[string]Verdict
		why     map[string]string // property to a part of its reason
		finds   []string          // codes of findings
	}{{
		name: "freeze: the client outlives its lease",
		history: `
			A acquire 0-2 ok ttl=1000
			B acquire 20-1001 ok ttl=1000
			A release 1204-1205 fail
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Violated, Lease: Held, Token: NotApplicable, Fence: NotApplicable, Release: Held},
		why: map[string]string{
			Mutex: `A still believed that it held "k" at 1204.0 ms, 203.0 ms after B was granted it; A's lease had ended at 1000.0 ms: the client outlived its lease, the service kept its promise`,
		},
		finds: []string{Lost},
	}, {
		name: "the service grants before the lease has ended",
		history: `
			A acquire 0-2 ok ttl=1000
			B acquire 400-402 ok ttl=1000
			A release 500-501 ok
			B release 600-601 ok`,
		want: map[string]Verdict{Mutex: Violated, Lease: Violated, Release: NotApplicable},
		why: map[string]string{
			Mutex: `the service broke its promise`,
			Lease: `B was granted "k" at 402.0 ms although A held it and its lease stood until it released it at 500.0 ms: the service broke its promise by 98.0 ms`,
		},
	}, {
		name: "a client that keeps its own deadline believes no longer, but its lease stands",
		history: `
			A acquire 0-2 ok ttl=1000 until=900
			B acquire 940-950 ok ttl=1000 until=1840
			B release 1000-1001 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: Violated},
	}, {
		name: "drift takes a part of the lease",
		history: `
			A acquire 0-2 ok ttl=1000 until=900
			B acquire 940-950 ok ttl=1000 until=1840`,
		options: Options{Drift: 0.1},
		want:    map[string]Verdict{Mutex: Held, Lease: Held},
	}, {
		name: "a waiter's lease counts from the end of the hold before, not from its request",
		history: `
			A acquire 0-2 ok ttl=1000
			B acquire 10-502 ok ttl=400
			A release 500-501 ok
			C acquire 600-610 ok ttl=400
			B release 620-621 ok
			C release 700-701 ok`,
		want: map[string]Verdict{Mutex: Violated, Lease: Violated},
	}, {
		name: "a renewal extends from its invocation",
		history: `
			A acquire 0-2 ok ttl=1000
			A renew 800-990 ok ttl=1000
			B acquire 1700-1750 ok ttl=1000
			A release 1760-1761 ok
			B release 1770-1771 ok`,
		want: map[string]Verdict{Mutex: Violated, Lease: Violated},
		why:  map[string]string{Lease: "promise by 10"},
	}, {
		name: "a renewal of unknown outcome extends nothing",
		history: `
			A acquire 0-2 ok ttl=1000
			A renew 800-? info
			B acquire 1100-1150 ok ttl=1000
			A release 1200-1201 ok`,
		want: map[string]Verdict{Mutex: Violated, Lease: Held, Release: NotApplicable},
	}, {
		name: "a loss notice ends the claim",
		history: `
			A acquire 0-2 ok ttl=1000
			A lost 1000.5
			B acquire 20-1001 ok ttl=1000
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: Held},
	}, {
		name: "a loss notice ends the claim while a renewal is under way that fails later",
		history: `
			A acquire 0-2 ok ttl=1000
			A renew 600-2000 fail
			A lost 1000.5
			B acquire 20-1001 ok ttl=1000
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: Held},
	}, {
		name: "a loss notice ends the claim while a check is under way that says no later",
		history: `
			A acquire 0-2 ok ttl=1000
			A check 600-2000 ok value=false
			A lost 1000.5
			B acquire 20-1001 ok ttl=1000
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: Held},
	}, {
		name: "a loss notice after the renewal that failed changes nothing",
		history: `
			A acquire 0-2 ok ttl=1000
			A renew 600-1500 fail
			A lost 2000
			B acquire 20-1001 ok ttl=1000
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Violated, Lease: Held},
	}, {
		name: "a loss notice ends the claim while a renewal is under way that is confirmed after a lapse",
		history: `
			A acquire 0-2 ok ttl=1000
			A renew 1100-2000 ok ttl=1000
			A lost 1200
			B acquire 20-1250 ok ttl=300
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: Held},
	}, {
		name: "a check that says no ends the claim",
		history: `
			A acquire 0-2 ok ttl=1000
			A check 900-1000.5 ok value=false
			B acquire 20-1001 ok ttl=1000
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: Held},
	}, {
		name: "a killed client believes nothing",
		history: `
			A acquire 0-2 ok ttl=1000
			kill 100 A
			B acquire 200-1010 ok ttl=1000
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: Held, Liveness: Held},
	}, {
		name: "a dead holder's lock is not freed",
		history: `
			A acquire 0-2 ok ttl=1000
			kill 100 A
			B acquire 200-9000 fail
			B acquire 9001-9002 ok ttl=1000`,
		want: map[string]Verdict{Mutex: Held, Lease: Held, Liveness: Violated},
		why:  map[string]string{Liveness: `nobody got "k" from 1002.0 ms to 9000.0 ms although B wanted it and nobody was entitled to it: 7998.0 ms, and the bound is 2000.0 ms`},
	}, {
		name: "who was told that its acquire may have been in vain waits no longer",
		history: `
			A acquire 0-100 info
			B acquire 20-1200 ok ttl=1000
			C acquire 1210-1220 fail
			B release 1300-1301 ok
			B check 9000-9001 ok value=false`,
		want: map[string]Verdict{Mutex: Held, Lease: Held, Liveness: Held},
	}, {
		name: "who was never told waits",
		history: `
			A acquire 0-? info
			B acquire 20-1200 ok ttl=1000
			B release 1300-1301 ok
			B check 9000-9001 ok value=false`,
		want: map[string]Verdict{Liveness: Violated},
	}, {
		name: "a holder that renews by itself keeps the lock for longer than the lease that it stated",
		history: `
			keep A
			A acquire 0-2 ok ttl=1000
			B acquire 200-9000 fail`,
		want: map[string]Verdict{Mutex: Held, Lease: Held, Liveness: Held},
	}, {
		name: "a holder that does not renew does not",
		history: `
			keep B
			A acquire 0-2 ok ttl=1000
			B acquire 200-9000 fail`,
		want: map[string]Verdict{Liveness: Violated},
	}, {
		name: "a dead one renews nothing",
		history: `
			keep A
			A acquire 0-2 ok ttl=1000
			kill 3000 A
			B acquire 200-9000 fail`,
		want: map[string]Verdict{Liveness: Violated},
		why:  map[string]string{Liveness: `nobody got "k" from 4000.0 ms to 9000.0 ms although B wanted it and nobody was entitled to it: 5000.0 ms, and the bound is 2000.0 ms`},
	}, {
		name: "nor does one that was told of the loss, for longer than a lease",
		history: `
			keep A
			A acquire 0-2 ok ttl=1000
			A lost 3000
			B acquire 200-9000 fail`,
		want: map[string]Verdict{Liveness: Violated},
		why:  map[string]string{Liveness: `nobody got "k" from 4000.0 ms to 9000.0 ms although B wanted it and nobody was entitled to it: 5000.0 ms, and the bound is 2000.0 ms`},
	}, {
		name: "time before the fault has healed does not count",
		history: `
			A acquire 0-2 ok ttl=1000
			fault 100-8000
			B acquire 200-9000 ok ttl=1000`,
		want: map[string]Verdict{Liveness: Held},
	}, {
		name: "an acquire of unknown outcome is no claim",
		history: `
			A acquire 0-? info
			B acquire 20-30 ok
			B release 40-50 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: NotApplicable, Liveness: NotApplicable},
	}, {
		name: "touching is no overlap",
		history: `
			A acquire 0-10 ok
			A release 30-50 ok
			B acquire 20-30 ok
			B release 60-70 ok`,
		want: map[string]Verdict{Mutex: Held},
	}, {
		name: "a release ends the claim when it is invoked, whatever comes of it",
		history: `
			A acquire 0-10 ok
			A release 20-? info
			B acquire 20-30 ok`,
		want: map[string]Verdict{Mutex: Held},
	}, {
		name: "a failed release: the hold had ended",
		history: `
			A acquire 0-10 ok
			A release 20-25 fail
			B acquire 22-30 ok
			B release 60-70 ok`,
		want:  map[string]Verdict{Mutex: Held},
		finds: []string{Lost},
	}, {
		name: "a failed release, strictly: it did not happen",
		history: `
			A acquire 0-10 ok
			A release 20-25 fail
			B acquire 22-30 ok
			B release 60-70 ok`,
		options: Options{Convention: FailedIgnored},
		want:    map[string]Verdict{Mutex: Violated},
	}, {
		name:    "no grants at all",
		history: `A acquire 0-10 fail`,
		want:    map[string]Verdict{Mutex: NotApplicable, Lease: NotApplicable, Token: NotApplicable, Fence: NotApplicable, Release: NotApplicable, Liveness: NotApplicable},
	}, {
		name: "a token repeats",
		history: `
			A acquire 0-10 ok token=7
			A release 20-21 ok
			B acquire 30-40 ok token=7`,
		want: map[string]Verdict{Mutex: Held, Token: Violated},
		why:  map[string]string{Token: `B was granted "k" at 40.0 ms with token 7, which A had got at 10.0 ms`},
	}, {
		name: "a token falls in the order of holds, though requests overlapped",
		history: `
			B acquire 0-40 ok token=5
			A acquire 1-10 ok token=6
			A release 20-21 ok
			B release 50-51 ok`,
		want: map[string]Verdict{Mutex: Held, Token: Violated},
	}, {
		name: "without exclusion requests that overlap may be granted in any order",
		history: `
			B acquire 0-40 ok token=5
			A acquire 1-10 ok token=6
			A release 45-46 ok
			B release 50-51 ok`,
		want: map[string]Verdict{Mutex: Violated, Token: Held},
	}, {
		name: "the resource accepts a stale write",
		history: `
			A acquire 0-10 ok token=1
			A write 15-? info token=1
			A release 20-21 ok
			B acquire 30-40 ok token=2
			B write 45-47 ok token=2
			resource 46 accept B token=2 op=4
			resource 60 accept A token=1 op=1
			B release 70-71 ok`,
		want: map[string]Verdict{Mutex: Held, Fence: Violated, Token: Held},
		why:  map[string]string{Fence: `the resource accepted a write by A at 60.0 ms, 14.0 ms after it had accepted one by B, whose grant of "k" is newer (token 1 after token 2)`},
	}, {
		name: "the resource rejects a stale write",
		history: `
			A acquire 0-10 ok token=1
			A release 20-21 ok
			B acquire 30-40 ok token=2
			resource 46 accept B token=2
			resource 60 reject A token=1`,
		want: map[string]Verdict{Fence: Held},
	}, {
		name: "fence is judged by the order of grants where there are no tokens",
		history: `
			A acquire 0-2 ok ttl=1000
			A write 900-1200 ok
			B acquire 20-1001 ok ttl=1000
			B write 1010-1020 ok
			resource 1015 accept B op=3
			resource 1199 accept A op=1
			A release 1201-1205 fail
			B release 1300-1301 ok`,
		want: map[string]Verdict{Fence: Violated, Lease: Held},
	}, {
		name: "the resource rejects what nothing newer had passed",
		history: `
			A acquire 0-10 ok token=1
			resource 15 accept A token=1
			resource 16 reject A token=1`,
		want:  map[string]Verdict{Fence: Held},
		finds: []string{Rejected},
	}, {
		name: "a release after the loss is answered ok",
		history: `
			A acquire 0-2 ok ttl=1000 until=1000
			B acquire 20-1001 ok ttl=1000
			A release 1100-1101 ok
			B release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Held, Lease: Held, Release: Violated},
		why:  map[string]string{Release: `a release of "k" by A at 1100.0 ms was answered ok although B had been granted it at 1001.0 ms`},
	}, {
		name: "a release deletes another's lock",
		history: `
			A acquire 0-2 ok ttl=1000 until=1000
			B acquire 20-1001 ok ttl=1000
			A release 1100-1101 ok
			C acquire 1110-1112 ok ttl=1000
			B release 1300-1301 fail
			C release 1300-1301 ok`,
		want: map[string]Verdict{Mutex: Violated, Lease: Violated, Release: Violated},
		why:  map[string]string{Release: `a release of "k" by A at 1100.0 ms, answered ok, took away the lock that B had held since 1001.0 ms: C was granted it at 1112.0 ms`},
	}, {
		name: "work outside of a claim is the workload's",
		history: `
			A acquire 0-2 ok
			A release 10-11 ok
			A write 12-13 ok`,
		want:  map[string]Verdict{Mutex: Held},
		finds: []string{Workload},
	}, {
		name: "a claim without notice long after the lease",
		history: `
			A acquire 0-2 ok ttl=1000
			A release 9000-9001 ok`,
		want:  map[string]Verdict{Mutex: Held, Lease: Held},
		finds: []string{Late},
	}, {
		name: "a ghost",
		history: `
			A acquire 0-? info
			A release 10-12 ok
			B acquire 20-22 ok`,
		want:  map[string]Verdict{Mutex: Held},
		finds: []string{Ghost},
	}, {
		name: "told no, though it was granted",
		history: `
			A acquire 0-5 fail
			A release 10-12 ok
			B acquire 20-22 ok`,
		finds: []string{False, Ghost},
	}, {
		name: "a renewal is confirmed after another was granted the lock",
		history: `
			A acquire 0-2 ok ttl=1000
			B acquire 1001-1100 ok ttl=1000
			B release 1200-1201 ok
			A renew 1300-1301 ok ttl=1000
			A release 1400-1401 ok`,
		want:  map[string]Verdict{Mutex: Violated, Lease: Held},
		finds: []string{False},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.options.Timeout = 5 * time.Second
			r := Check(read(t, tt.history), tt.options)
			for name, want := range tt.want {
				p := r.Property(name)
				if p == nil {
					t.Errorf("%s was not judged", name)
					continue
				}
				if p.Verdict != want {
					t.Errorf("%s is %s (%s), want %s", name, p.Verdict, p.Why, want)
				}
				if p.Verdict == Violated && p.Witness == nil {
					t.Errorf("%s is violated without a witness", name)
				}
			}
			for name, why := range tt.why {
				if p := r.Property(name); p != nil && !strings.Contains(p.Why, why) {
					t.Errorf("%s: reason\n\t%s\ndoes not say\n\t%s", name, p.Why, why)
				}
			}
			for _, p := range r.Properties {
				if p.Second != nil && p.Second.Outcome == Disagrees {
					t.Errorf("%s: porcupine disagrees: %s", p.Name, p.Second.Detail)
				}
			}
			var codes []string
			for _, f := range r.Findings {
				codes = append(codes, f.Code)
			}
			for _, c := range tt.finds {
				if !slices.Contains(codes, c) {
					t.Errorf("findings %v are without %q", codes, c)
				}
			}
		})
	}
}
