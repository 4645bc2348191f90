package etcd_test

import (
	"errors"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/conformance"
	_ "github.com/lockcheck/lockcheck/backends/etcd"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

const ttl = time.Minute

// A client whose lease the server ends learns of it, says so on release, and is
// granted the lock anew with another session and a higher token.
func TestLeaseRevoked(t *testing.T) {
	b, servers := cluster(t)
	a := client(t, b, servers)
	first := acquire(t, a)
	admin := admin(t, servers)
	leases, err := admin.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("leases %v, %v", leases, err)
	}
	lost := a.(backends.Notifier).Lost("k")
	if _, err := admin.Revoke(t.Context(), leases.Leases[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("release: error %v, want %v", err, backends.ErrNotHeld)
	}
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Error("no notice of the loss")
	}
	if second := acquire(t, a); *second.Token <= *first.Token {
		t.Errorf("token %d after %d", *second.Token, *first.Token)
	}
}

// A release says whether there was something to release, and cannot delete the
// key of another grant: the library's Unlock can do neither.
func TestReleaseOfADeletedKey(t *testing.T) {
	b, servers := cluster(t)
	a, other := client(t, b, servers), client(t, b, servers)
	acquire(t, a)
	if _, err := admin(t, servers).Delete(t.Context(), "k/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	acquire(t, other)
	if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("release: error %v, want %v", err, backends.ErrNotHeld)
	}
	if err := other.Release(t.Context(), "k"); err != nil {
		t.Errorf("release of the present holder: %v", err)
	}
}

// Nothing of a failed or released acquire is left on the server.
func TestNoLeaseIsLeft(t *testing.T) {
	b, servers := cluster(t)
	a, other := client(t, b, servers), client(t, b, servers)
	acquire(t, a)
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		if _, err := other.Acquire(t.Context(), "k", wait); !errors.Is(err, backends.ErrBusy) {
			t.Fatalf("error %v, want %v", err, backends.ErrBusy)
		}
	}
	if err := a.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	leases, err := admin(t, servers).Leases(t.Context())
	if err != nil || len(leases.Leases) != 0 {
		t.Errorf("leases %v, %v", leases, err)
	}
}

func TestServers(t *testing.T) {
	b, err := backends.Find("etcd")
	if err != nil {
		t.Fatal(err)
	}
	for nodes, want := range map[int]int{0: 3, 1: 1, 5: 5} {
		if got := len(b.Servers(backends.Options{Nodes: nodes})); got != want {
			t.Errorf("%d nodes asked for: %d servers, want %d", nodes, got, want)
		}
	}
}

func cluster(t *testing.T) (backends.Backend, []backends.Endpoint) {
	t.Helper()
	b, err := backends.Find("etcd")
	if err != nil {
		t.Fatal(err)
	}
	return b, conformance.Servers(t, b, backends.Options{Nodes: 1})
}

func client(t *testing.T, b backends.Backend, servers []backends.Endpoint) backends.Client {
	t.Helper()
	c, err := b.Open(t.Context(), backends.Config{Process: "A", Servers: servers, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func acquire(t *testing.T, c backends.Client) backends.Grant {
	t.Helper()
	g, err := c.Acquire(t.Context(), "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	if g.Token == nil || g.TTL != ttl {
		t.Fatalf("grant %+v, want a token and a lease of %v", g, ttl)
	}
	return g
}

func admin(t *testing.T, servers []backends.Endpoint) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: backends.Config{Servers: servers}.URLs("etcd"),
		Logger:    zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
