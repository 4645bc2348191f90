package redlock

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

// five starts five servers, and clients of them.
func five(t *testing.T, ttl time.Duration, names ...string) ([]*deploy.Node, []*client) {
	t.Helper()
	if _, err := deploy.Find(t.Context(), "redis", ""); err != nil {
		t.Skipf("needs redis: %v", err)
	}
	l, err := deploy.NewLocal(deploy.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	nodes, err := l.Start(t.Context(), servers(backends.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var endpoints []backends.Endpoint
	for _, n := range nodes {
		endpoints = append(endpoints, n.Endpoint())
	}
	var all []*client
	for _, name := range names {
		c, err := open(t.Context(), backends.Config{Process: name, Servers: endpoints, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all = append(all, c.(*client))
	}
	return nodes, all
}

// It survives the loss of two servers of five, and not of three.
func TestServersThatAreDown(t *testing.T) {
	nodes, c := five(t, time.Minute, "A", "B")
	a, b := c[0], c[1]
	kill := func(n *deploy.Node) {
		t.Helper()
		if err := n.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kill(nodes[0])
	kill(nodes[4])
	if _, err := a.Acquire(t.Context(), "k", 0); err != nil {
		t.Fatalf("with three of five: %v", err)
	}
	if _, err := b.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
		t.Errorf("error %v, want %v", err, backends.ErrBusy)
	}
	if err := a.Release(t.Context(), "k"); err != nil {
		t.Errorf("release at three of five: %v", err)
	}
	kill(nodes[1])
	if _, err := b.Acquire(t.Context(), "k", 0); !backends.IsFailed(err) || errors.Is(err, backends.ErrBusy) {
		t.Errorf("with two of five: error %v, want a certain failure that is not that it is busy", err)
	}
	for _, n := range nodes[:2] {
		if err := n.Restart(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Acquire(t.Context(), "k", 0); err != nil {
		t.Errorf("nothing may be left of what failed: %v", err)
	}
}

// A server that forgets lets the lock be granted twice.
func TestServerThatForgets(t *testing.T) {
	nodes, c := five(t, time.Minute, "A", "B")
	for _, n := range nodes[:2] {
		if err := n.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c[0].Acquire(t.Context(), "k", 0); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes[:3] { // the third had the key, and comes back without
		if err := n.Restart(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c[1].Acquire(t.Context(), "k", 0); err != nil {
		t.Errorf("the majority is free: %v", err)
	}
	if holds, _ := c[0].Check(t.Context(), "k"); !holds {
		t.Error("A believes that it has lost the lock: how does it know?")
	}
	if err := c[0].Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("release by A: error %v, want %v", err, backends.ErrNotHeld)
	}
}

// What an acquire has set is deleted also if its context has ended.
func TestFailedAcquireIsDeletedInAnyCase(t *testing.T) {
	nodes, c := five(t, time.Minute, "A", "B")
	other := c[1]
	if _, err := other.Acquire(t.Context(), "k", 0); err != nil {
		t.Fatal(err)
	}
	// B has three, so that A gets two.
	held := other.held["k"].value
	for _, s := range other.servers[:2] {
		if _, err := s.Delete(t.Context(), "k", held); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	c[0].servers[4] = &ends{c[0].servers[4], cancel}
	if _, err := c[0].Acquire(ctx, "k", 0); err == nil {
		t.Fatal("two of five granted it")
	}
	if _, err := other.Acquire(t.Context(), "new", 0); err != nil {
		t.Fatal(err)
	}
	for i, s := range other.servers[:2] {
		if set, err := s.Set(t.Context(), "k", "probe", time.Minute); err != nil || !set {
			t.Errorf("server %s has something left: %v, %v", nodes[i].Name(), set, err)
		}
	}
}

// ends is a server at which the caller gives up.
type ends struct {
	server
	cancel context.CancelFunc
}

func (e *ends) Set(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	e.cancel()
	return e.server.Set(ctx, key, value, ttl)
}
