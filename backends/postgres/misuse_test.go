package postgres_test

import (
	"errors"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
)

// A lock that was taken twice is free after the second release, or when the
// session ends.
func TestStackedLocks(t *testing.T) {
	url := server(t)
	a, b := client(t, "postgres-session-stacked", url, 0, ""), client(t, "postgres-session", url, 0, "")
	busy := func() {
		t.Helper()
		if _, err := b.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
			t.Fatalf("another client: error %v, want %v", err, backends.ErrBusy)
		}
	}
	free := func() {
		t.Helper()
		acquire(t, b)
		if err := b.Release(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, a)
	acquire(t, a)
	busy()
	if err := a.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	busy()
	if err := a.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	free()
	if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("third release: error %v, want %v", err, backends.ErrNotHeld)
	}
}

// A rollback ends the lock of a transaction, and not that of a session.
func TestLocksTakenInATransactionThatIsRolledBack(t *testing.T) {
	url := server(t)
	for name, holds := range map[string]bool{"postgres-session-rollback": true, "postgres-xact-rollback": false} {
		t.Run(name, func(t *testing.T) {
			a, b := client(t, name, url, 0, ""), client(t, "postgres-session", url, 0, "")
			acquire(t, a)
			_, err := b.Acquire(t.Context(), "k", 0)
			if holds && !errors.Is(err, backends.ErrBusy) || !holds && err != nil {
				t.Errorf("another client: error %v, and the lock is held: %v", err, holds)
			}
			if err := a.Release(t.Context(), "k"); (err == nil) != holds {
				t.Errorf("release: error %v, and the lock was held: %v", err, holds)
			}
			b.Close()
		})
	}
}
