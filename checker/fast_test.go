package checker

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/lockcheck/lockcheck/checker/internal/gen"
	"github.com/lockcheck/lockcheck/history"
)

// The pass over a history says of the locks that it clears the same as a look at
// every hold, and it clears none of which that finds anything.
func TestLook(t *testing.T) {
	clear, mixed, all := 0, 0, 0
	same := func(h *history.History, o Options) {
		t.Helper()
		all++
		fast := &claims{h: h, o: o}
		fjs := fast.judgeAll(fast.look())
		if slices.Contains(fast.suspect, false) {
			clear++
			if slices.Contains(fast.suspect, true) {
				mixed++
			}
		}
		slow := thorough(h, o)
		sjs := slow.judge()
		if got, want := fast.verdicts(fjs), slow.verdicts(sjs); !reflect.DeepEqual(got, want) {
			t.Fatalf("one pass says\n%s\na thorough look says\n%s\n%s", reasonsOf(&Report{Properties: got}), reasonsOf(&Report{Properties: want}), dump(h))
		}
		if got, want := fast.findings(fjs), slow.findings(sjs); !reflect.DeepEqual(got, want) {
			t.Fatalf("one pass finds\n%v\na thorough look\n%v\n%s", got, want, dump(h))
		}
	}
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range 100_000 {
		o := Options{Grace: 3, Bound: 0}
		if i%2 == 0 {
			o.Bound = 10
		}
		h := random(rng)
		if i%4 == 0 {
			h = beside(h, random(rng))
		}
		same(h, o)
	}
	for seed := range uint64(2000) {
		c := gen.Config{Seed: seed, Ops: 60, Clients: 2 + int(seed%5), Keys: 1 + int(seed/2%3), Try: seed%3 == 0}
		if seed%2 == 0 {
			c.TTL, c.Renew, c.Deadline = gen.Lease, seed%4 == 0, seed%8 < 3
		}
		c.Tokens = seed%5 < 3
		c.Writes = c.Tokens && seed%5 < 2
		if seed%7 == 0 {
			c.Unknown = 0.05
		}
		if seed%11 < 6 {
			c.Flaw = gen.Flaw(1 + seed%11)
		}
		same(gen.History(c), Options{Bound: 500_000})
	}
	if clear < all/100 || mixed < all/200 {
		t.Errorf("of %d histories only %d had locks that were clear at a glance, %d besides others", all, clear, mixed)
	}
	t.Logf("of %d histories %d had locks that were clear at a glance, %d besides others", all, clear, mixed)
}

// beside is both histories at once, of other processes and other locks.
func beside(x, y *history.History) *history.History {
	h := &history.History{Values: x.Values, Errors: x.Errors, Terms: slices.Concat(x.Terms, y.Terms), Events: x.Events + y.Events}
	for i, part := range []*history.History{x, y} {
		processes, keys, terms := int32(len(h.Processes)), int32(len(h.Keys)), int32(i*len(x.Terms))
		h.Processes = append(h.Processes, part.Processes...)
		for _, k := range part.Keys {
			h.Keys = append(h.Keys, fmt.Sprint(k, i))
		}
		for _, op := range part.Ops {
			op.Process, op.Key = op.Process+processes, op.Key+keys
			if op.Term > 0 {
				op.Term += terms
			}
			h.Ops = append(h.Ops, op)
		}
		for _, n := range part.Notices {
			n.Process, n.Key = n.Process+processes, n.Key+keys
			h.Notices = append(h.Notices, n)
		}
	}
	slices.SortStableFunc(h.Ops, func(a, b history.Op) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortStableFunc(h.Notices, func(a, b history.Notice) int { return cmp.Compare(a.Time, b.Time) })
	return h
}
