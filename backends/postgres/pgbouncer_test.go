package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/conformance"
)

// topology starts a backend's servers and returns a way to open clients.
func topology(t *testing.T, name string) func(process string) backends.Client {
	t.Helper()
	b, err := backends.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	servers := conformance.Servers(t, b, backends.Options{})
	return func(process string) backends.Client {
		t.Helper()
		c, err := b.Open(t.Context(), backends.Config{Process: process, Servers: servers, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// Pooled by transaction, two clients have the lock of a session, since they have
// the session, in turns; and what one leaves behind nobody can release.
func TestSessionLockPooledByTransaction(t *testing.T) {
	client := topology(t, "pgbouncer-transaction-session")
	a, b := client("A"), client("B")
	acquire(t, a)
	if _, err := b.Acquire(t.Context(), "k", 0); err != nil {
		t.Errorf("B is not granted what A holds (%v): the lock is better than is claimed", err)
	}
}

// The other three pools keep clients apart, and free what a client leaves.
func TestLocksThatPoolingKeeps(t *testing.T) {
	for _, name := range []string{"pgbouncer-session-session", "pgbouncer-session-xact", "pgbouncer-transaction-xact"} {
		t.Run(name, func(t *testing.T) {
			client := topology(t, name)
			a, b := client("A"), client("B")
			for range 10 {
				acquire(t, a)
				if _, err := b.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
					t.Fatalf("error %v, want %v", err, backends.ErrBusy)
				}
				if err := a.Release(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				acquire(t, b)
				if err := b.Release(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			acquire(t, a)
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			acquire(t, b)
		})
	}
}

// Names collide where the key is hashtext(name), and only there.
func TestCollidingNames(t *testing.T) {
	for name, collide := range map[string]bool{
		"postgres-session": false, "postgres-session-bigint": false, "postgres-session-hashtext": true,
	} {
		t.Run(name, func(t *testing.T) {
			client := topology(t, name)
			a, b := client("A"), client("B")
			if _, err := a.Acquire(t.Context(), "job-5108", 0); err != nil {
				t.Fatal(err)
			}
			_, err := b.Acquire(t.Context(), "job-23316", 0)
			if got := errors.Is(err, backends.ErrBusy); got != collide || !collide && err != nil {
				t.Errorf("another name: error %v, want a collision: %v", err, collide)
			}
		})
	}
}

// Tokens of leases go on where they stopped, also after a release.
func TestLeaseTokensGoOn(t *testing.T) {
	a := topology(t, "postgres-lease")("A")
	for want := int64(1); want <= 3; want++ {
		g, err := a.Acquire(t.Context(), "k", 0)
		if err != nil || g.Token == nil || *g.Token != want {
			t.Fatalf("grant %+v, %v; want token %d", g, err, want)
		}
		if err := a.Release(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
}
