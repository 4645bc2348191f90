package checker

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/lockcheck/lockcheck/checker/internal/gen"
	"github.com/lockcheck/lockcheck/history"
)

// thorough judges a history hold by hold.
func thorough(h *history.History, o Options) ([]Property, []Finding) {
	cs := extract(h, o)
	js := cs.judge()
	return cs.verdicts(js), cs.findings(js)
}

// The pass over a history without fault says the same as a thorough look, and it
// is clear only where that finds nothing at all.
func TestLook(t *testing.T) {
	clear, all := 0, 0
	same := func(h *history.History, o Options) {
		t.Helper()
		all++
		cs := &claims{h: h, o: o, keys: make([]key, len(h.Keys))}
		g, ok := cs.look()
		if !ok || !g.contended {
			return
		}
		clear++
		want, findings := thorough(h, o)
		if got := cs.report(g); !reflect.DeepEqual(got, want) {
			t.Fatalf("one pass says\n%s\na thorough look says\n%s\n%s", reasonsOf(&Report{Properties: got}), reasonsOf(&Report{Properties: want}), dump(h))
		}
		if len(findings) > 0 {
			t.Fatalf("one pass finds nothing, a thorough look %v\n%s", findings, dump(h))
		}
	}
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range 100_000 {
		o := Options{Grace: 3, Bound: 0}
		if i%2 == 0 {
			o.Bound = 10
		}
		same(random(rng), o)
	}
	for seed := range uint64(2000) {
		c := gen.Config{Seed: seed, Ops: 60, Clients: 2 + int(seed%5), Keys: 1 + int(seed/2%3), Try: seed%3 == 0}
		if seed%2 == 0 {
			c.TTL, c.Renew = gen.Lease, seed%4 == 0
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
	if clear < all/100 {
		t.Errorf("only %d of %d histories were clear at a glance", clear, all)
	}
	t.Logf("%d of %d clear at a glance", clear, all)
}
