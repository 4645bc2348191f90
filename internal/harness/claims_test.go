package harness_test

import (
	"testing"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/scenarios"
)

// Scenarios that rest on what the harness does for them: clients of two backends
// on one server, a resource that survives a failover, links between servers that
// are held, a client that is refused a lock of another name, and steps that wait for
// a fault of the nemesis or for another leader.
func TestScenariosOfClaims(t *testing.T) {
	cache := deploy.NewCache()
	t.Cleanup(func() {
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct{ scenario, backend string }{
		{"r3-failover", "redis-replicated"},
		{"r2-get-then-delete", "redis-get-del"},
		{"p3-leaked", "pgbouncer-transaction-session"},
		{"p4-collision", "postgres-session-hashtext"},
		{"p7-failover", "postgres-replicated-xact"},
		{"k2-freeze-during", "redlock"},
		{"e5-one-way", "etcd"},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			sc, err := scenarios.Load(c.scenario)
			if err != nil {
				t.Fatal(err)
			}
			o := options(t, c.backend)
			o.TTL, o.Cache = 0, cache
			r, _ := run(t, sc, o)
			of := scenarios.Subject{Backend: r.Backend, Resource: r.Resource, Versions: r.Versions}
			for property, want := range sc.Expected(of) {
				if got := string(r.Verdict(property)); got != want {
					t.Errorf("%s is %s, want %s", property, got, want)
				}
			}
			if want := sc.ExpectedStatus(of); want != "" && string(r.Status) != want || len(r.Reasons) > 0 {
				t.Errorf("%s, want %s: %v", r.Status, want, r.Reasons)
			}
		})
	}
}
