package partitioned

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/conformance"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

func clients(t *testing.T, ttl time.Duration, names ...string) []*client {
	t.Helper()
	b, err := backends.Find("partitioned")
	if err != nil {
		t.Fatal(err)
	}
	servers := conformance.Servers(t, b, backends.Options{})
	var all []*client
	for _, name := range names {
		c, err := b.Open(t.Context(), backends.Config{Process: name, Servers: servers, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all = append(all, c.(*client))
	}
	return all
}

func acquire(t *testing.T, c *client, wait time.Duration) {
	t.Helper()
	if _, err := c.Acquire(t.Context(), "k", wait); err != nil {
		t.Fatal(err)
	}
}

// The group has one entry, whose consumer it names, and there is never another.
func TestGroupKnowsTheConsumer(t *testing.T) {
	all := clients(t, time.Hour, "A", "B")
	for range 3 {
		for i, c := range all {
			acquire(t, c, 0)
			pending, err := c.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: "k", Group: group, Start: "-", End: "+", Count: 10}).Result()
			if err != nil || len(pending) != 1 || pending[0].Consumer != c.consumer {
				t.Fatalf("pending %+v, %v; want one entry of %s", pending, err, c.consumer)
			}
			if n, err := c.rdb.XLen(t.Context(), "k").Result(); err != nil || n != 1 {
				t.Fatalf("the stream has %d entries, %v", n, err)
			}
			if _, err := all[1-i].Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
				t.Fatalf("error %v, want %v", err, backends.ErrBusy)
			}
			if err := c.Release(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A rebalance moves the key of a consumer that is idle. It learns of it when it
// asks, and not before.
func TestRebalanceMovesTheKeyOfAnIdleConsumer(t *testing.T) {
	const ttl = 100 * time.Millisecond
	all := clients(t, ttl, "A", "B")
	a, b := all[0], all[1]
	acquire(t, a, 0)
	began := time.Now()
	acquire(t, b, 10*time.Second)
	if took := time.Since(began); took < ttl-20*time.Millisecond {
		t.Errorf("moved after %v, want %v of idleness", took, ttl)
	}
	if _, err := a.Renew(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("renewal: error %v, want %v", err, backends.ErrNotHeld)
	}
	if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("release: error %v, want %v", err, backends.ErrNotHeld)
	}
	if err := b.Release(t.Context(), "k"); err != nil {
		t.Errorf("release by B: %v", err)
	}
}

// No key moves before its TTL is over, not by the part of a millisecond that the
// server does not count either.
func TestKeyStaysForTheWholeTTL(t *testing.T) {
	const ttl = 5 * time.Millisecond
	all := clients(t, ttl, "A", "B")
	began := time.Now() // it has been delivered since some time after this
	acquire(t, all[0], 0)
	for i := range 100 {
		for id := ""; id == ""; {
			asked := time.Now()
			var err error
			if id, err = all[1-i%2].next(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if id == "" {
				continue
			}
			if took := time.Since(began); took < ttl {
				t.Fatalf("moved after %v at most, want %v of idleness", took, ttl)
			}
			began = asked
		}
	}
}

// A server that has lost its streams is given new ones.
func TestStreamThatIsLost(t *testing.T) {
	all := clients(t, time.Hour, "A", "B")
	acquire(t, all[0], 0)
	if err := all[0].rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := all[0].Renew(t.Context(), "k"); !backends.IsFailed(err) {
		t.Errorf("renewal: error %v, want a certain failure", err)
	}
	acquire(t, all[1], 0)
	if err := all[0].Release(t.Context(), "k"); !backends.IsFailed(err) {
		t.Errorf("release: error %v, want a certain failure", err)
	}
}
