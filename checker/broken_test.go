package checker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/checker/internal/gen"
	"github.com/lockcheck/lockcheck/history"
)

// broken are simulated locks, one for each flaw, and the property that names it.
// Each is such that nothing else is wrong: where a service breaks its lease two
// clients believe that they hold, and mutex says so, but as what follows from it.
var broken = []struct {
	config gen.Config
	named  string
	// alone says that no other property is violated at all, not even as what
	// follows.
	alone bool
	// mostly allows for histories that do not show what caused a violation: in
	// a chain of deletions some happen between an answer and its arrival.
	mostly bool
}{
	{config: gen.Config{Flaw: gen.GrantsTwice, Tokens: true, Writes: true}, named: Mutex, alone: true},
	{config: gen.Config{Flaw: gen.GrantsTwice}, named: Mutex, alone: true},
	{config: gen.Config{Flaw: gen.ExpiresEarly, TTL: gen.Lease, Tokens: true}, named: Lease},
	{config: gen.Config{Flaw: gen.ExpiresEarly, TTL: gen.Lease, Deadline: true}, named: Lease},
	{config: gen.Config{Flaw: gen.RepeatsToken, Tokens: true, Writes: true}, named: Token, alone: true},
	{config: gen.Config{Flaw: gen.LowersToken, Tokens: true, Writes: true}, named: Token, alone: true},
	{config: gen.Config{Flaw: gen.LowersToken, Tokens: true, TTL: gen.Lease, Renew: true}, named: Token, alone: true},
	{config: gen.Config{Flaw: gen.DeletesOther, Try: true, TTL: gen.Lease, Deadline: true, Dawdle: 0.4}, named: Release, mostly: true},
	{config: gen.Config{Flaw: gen.DeletesOther, Try: true, TTL: gen.Lease, Deadline: true, Dawdle: 0.4, Tokens: true}, named: Release, mostly: true},
	{config: gen.Config{Flaw: gen.AcceptsStale, Tokens: true, Writes: true, Late: 0.3}, named: Fence, alone: true},
	{config: gen.Config{Writes: true, Late: 0.3}, named: Fence, alone: true}, // without tokens nobody can tell
}

func TestBrokenLocks(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
	}
	for _, b := range broken {
		t.Run(b.config.Flaw.String(), func(t *testing.T) {
			t.Parallel()
			caughtIn, others := 0, 0
			for seed := range seeds {
				c := b.config
				c.Seed, c.Ops, c.Clients = seed, 80, 3+int(seed%5)
				r := Check(gen.History(c), Options{NoSecondOpinion: seed%8 != 0})
				names := caught(r)
				if len(names) > 0 {
					caughtIn++
				}
				if b.mostly && slices.Contains(names, b.named) && len(names) > 1 {
					others++
					continue
				}
				if len(names) > 0 && !slices.Equal(names, []string{b.named}) {
					t.Fatalf("seed %d: caught by %v, want %s alone:\n%s%s", seed, names, b.named, reasonsOf(r), dump(gen.History(c)))
				}
				if b.alone && countViolated(r) > 1 {
					t.Fatalf("seed %d: more than %s is violated:\n%s", seed, b.named, reasonsOf(r))
				}
				noDisagreement(t, r)
			}
			if others > int(seeds)/20 {
				t.Errorf("others than %s were caught with %d of %d seeds", b.named, others, seeds)
			}
			if caughtIn < int(seeds)*2/3 {
				t.Errorf("caught with %d of %d seeds", caughtIn, seeds)
			}
		})
	}
}

func TestCorrectLocks(t *testing.T) {
	configs := map[string]gen.Config{
		"plain":                 {},
		"unknown outcomes":      {Unknown: 0.1},
		"tries":                 {Try: true, Unknown: 0.1},
		"tokens":                {Tokens: true, Writes: true, Late: 0.2},
		"lease":                 {TTL: gen.Lease},
		"lease, all features":   {TTL: gen.Lease, Renew: true, Tokens: true, Deadline: true, Writes: true, Late: 0.1, Unknown: 0.1},
		"lease, late releases":  {TTL: gen.Lease, Deadline: true, Dawdle: 0.3, Unknown: 0.05},
		"lease, several locks":  {TTL: gen.Lease, Renew: true, Tokens: true, Unknown: 0.1, Keys: 3},
		"lease, tries, unknown": {TTL: gen.Lease, Renew: true, Unknown: 0.2, Try: true, Deadline: true},
	}
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(500) {
				c := c
				c.Seed, c.Ops, c.Clients = seed, 60, 2+int(seed%6)
				r := Check(gen.History(c), Options{NoSecondOpinion: seed%8 != 0})
				if countViolated(r) > 0 {
					t.Fatalf("seed %d: false alarm:\n%s", seed, reasonsOf(r))
				}
				for _, p := range r.Properties {
					if p.Verdict == Unknown {
						t.Fatalf("seed %d: %s is unknown: %s", seed, p.Name, p.Why)
					}
				}
				noDisagreement(t, r)
			}
		})
	}
}

// A client that goes on after its lease breaks mutex, and nothing else does: the
// service keeps its promise.
func TestDawdlingClients(t *testing.T) {
	found := 0
	for seed := range uint64(300) {
		r := Check(gen.History(gen.Config{TTL: gen.Lease, Dawdle: 0.5, Seed: seed, Ops: 60, Clients: 4, Tokens: seed%2 == 0}), Options{})
		if names := caught(r); len(names) > 0 {
			found++
			if !slices.Equal(names, []string{Mutex}) || countViolated(r) != 1 {
				t.Fatalf("seed %d: %v:\n%s", seed, names, reasonsOf(r))
			}
		}
		noDisagreement(t, r)
	}
	if found < 200 {
		t.Errorf("mutex violated with %d of 300 seeds", found)
	}
}

func countViolated(r *Report) int {
	n := 0
	for _, p := range r.Properties {
		if p.Verdict == Violated {
			n++
		}
	}
	return n
}

func noDisagreement(t *testing.T, r *Report) {
	t.Helper()
	for _, p := range r.Properties {
		if p.Second != nil && p.Second.Outcome != Agrees {
			t.Fatalf("%s (%s: %s): porcupine %s: %s", p.Name, p.Verdict, p.Why, p.Second.Outcome, p.Second.Detail)
		}
	}
}

// reasonsOf lists the verdicts of a report.
func reasonsOf(r *Report) string {
	s := ""
	for _, p := range r.Properties {
		s += "\t" + p.Name + ": " + string(p.Verdict) + ": " + p.Why
		if p.FollowsFrom != "" {
			s += " (follows from " + p.FollowsFrom + ")"
		}
		s += "\n"
	}
	return s
}

// dump writes a history in the language of read.
func dump(h *history.History) string {
	var b strings.Builder
	for _, o := range h.Ops {
		ret := "?"
		if o.Ret < history.Never {
			ret = fmt.Sprint(o.Ret)
		}
		fmt.Fprintf(&b, "%s %v %d-%s %s key=%s", h.Processes[o.Process], [...]string{"other", "acquire", "renew", "release", "check", "write", "read"}[o.Kind], o.Call, ret, [...]string{"info", "ok", "fail"}[o.Outcome], h.Keys[o.Key])
		if o.HasToken {
			fmt.Fprintf(&b, " token=%d", o.Token)
		}
		if t := h.Terms[o.Term]; t != (history.Term{}) {
			fmt.Fprintf(&b, " ttl=%d until=%d", t.TTL, t.Until)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
