package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
	links "github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// cluster is a backend with its servers, by name.
type cluster struct {
	backends.Backend
	nodes     map[string]*deploy.Node
	endpoints []backends.Endpoint
}

func startCluster(t *testing.T, name string) *cluster {
	t.Helper()
	return startLinked(t, name, nil)
}

// startLinked starts a cluster whose servers reach each other through a mesh.
func startLinked(t *testing.T, name string, mesh *links.Mesh) *cluster {
	t.Helper()
	b, err := backends.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deploy.Find(t.Context(), "redis", ""); err != nil {
		t.Skipf("needs redis: %v", err)
	}
	o := deploy.Options{Dir: t.TempDir()}
	if mesh != nil {
		o.Peer = func(server, addr string, peers []string) (string, error) { return mesh.Listen(peers[0], server, addr) }
	}
	l, err := deploy.NewLocal(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	nodes, err := l.Start(t.Context(), b.Servers(backends.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Backend: b, nodes: map[string]*deploy.Node{}}
	for _, n := range nodes {
		c.nodes[n.Name()] = n
		c.endpoints = append(c.endpoints, n.Endpoint())
	}
	return c
}

func (c *cluster) client(t *testing.T, name string, ttl time.Duration) backends.Client {
	t.Helper()
	x, err := c.Open(t.Context(), backends.Config{Process: name, Servers: c.endpoints, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func (c *cluster) kill(t *testing.T, name string) {
	t.Helper()
	if err := c.nodes[name].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// acquired acquires a lock of which nobody knows how soon it can be had.
func acquired(t *testing.T, c backends.Client, key string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		_, err := c.Acquire(t.Context(), key, 0)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("acquire %s: %v", key, err)
		}
	}
}

// Clients follow the primary: through a replica that is promoted by hand, and
// through Sentinel. What was replicated is held still.
func TestClientsFollowThePrimary(t *testing.T) {
	for _, name := range []string{"redis-replicated", "redis-sentinel"} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, name)
			a, b := c.client(t, "A", time.Minute), c.client(t, "B", time.Minute)
			acquired(t, a, "k")
			replicated(t, c)
			c.kill(t, "redis-1")
			if name == "redis-replicated" {
				if _, err := b.Acquire(t.Context(), "other", 0); !backends.IsFailed(err) {
					t.Errorf("acquire without a primary: error %v, want a certain failure", err)
				}
				if err := c.nodes["redis-2"].Promote(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			acquired(t, b, "other")
			if _, err := b.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
				t.Errorf("error %v, want %v: the replica had the key", err, backends.ErrBusy)
			}
			acquired(t, a, "a third")
			if err := a.Release(t.Context(), "k"); err != nil {
				t.Errorf("release at the new primary: %v", err)
			}
			acquired(t, b, "k")
		})
	}
}

// replicated waits until the replica has as many keys as the primary.
func replicated(t *testing.T, c *cluster) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if dbSize(t, c.nodes["redis-1"]) == dbSize(t, c.nodes["redis-2"]) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the replica never had the key")
		}
	}
}

func dbSize(t *testing.T, n *deploy.Node) int64 {
	t.Helper()
	o, err := redis.ParseURL(n.Endpoint().URL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	defer c.Close()
	size, err := c.DBSize(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// An acquire that no replica confirms is undone, and says that it failed.
func TestUnconfirmedAcquireIsUndone(t *testing.T) {
	c := startCluster(t, "redis-wait")
	a, b := c.client(t, "A", time.Minute), c.client(t, "B", 400*time.Millisecond)
	acquired(t, a, "k")
	if got := dbSize(t, c.nodes["redis-2"]); got != 1 {
		t.Fatalf("the replica has %d keys when the lock is granted, want 1", got)
	}
	c.kill(t, "redis-2")
	if _, err := b.Acquire(t.Context(), "other", 0); !backends.IsFailed(err) || !strings.Contains(err.Error(), "no replica") {
		t.Errorf("acquire without a replica: error %v", err)
	}
	if got := dbSize(t, c.nodes["redis-1"]); got != 1 {
		t.Errorf("the primary has %d keys, want 1: the unconfirmed one is deleted", got)
	}
	if err := c.nodes["redis-2"].Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	acquired(t, b, "other")
}

// A grant that was not replicated is lost in a failover, and the lock granted
// once more. With WAIT it is not granted in the first place.
func TestFailoverOfAGrantThatWasNotReplicated(t *testing.T) {
	for name, granted := range map[string]bool{"redis-replicated": true, "redis-wait": false} {
		for i := range 10 {
			t.Run(fmt.Sprintf("%s/%d", name, i+1), func(t *testing.T) {
				mesh, err := links.NewMesh()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { mesh.Close() })
				c := startLinked(t, name, mesh)
				a, b := c.client(t, "A", time.Minute), c.client(t, "B", 400*time.Millisecond)
				if !granted { // it waits for a quarter of the lease
					a = c.client(t, "A", 400*time.Millisecond)
				}
				// Its process being stopped does not keep the bytes from the
				// replica.
				if _, err := mesh.Cut(links.Cut{Link: links.Link{Source: "redis-2", Target: "redis-1"}, Up: true, Down: true, Mode: links.Hold}); err != nil {
					t.Fatal(err)
				}
				_, err = a.Acquire(t.Context(), "k", 0)
				if got := err == nil; got != granted {
					t.Fatalf("A is granted the lock: %v (%v), want %v", got, err, granted)
				}
				c.kill(t, "redis-1")
				if err := c.nodes["redis-2"].Promote(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !granted { // the new primary needs a replica for that, too
					if err := c.nodes["redis-1"].Follow(t.Context(), "redis-2"); err != nil {
						t.Fatal(err)
					}
				}
				acquired(t, b, "k")
				if holds, _ := a.(backends.Checker).Check(t.Context(), "k"); holds != granted {
					t.Errorf("A believes that it holds: %v, want %v", holds, granted)
				}
			})
		}
	}
}

// A client sees at once that a server is back, however often it asked before.
func TestServerThatComesBack(t *testing.T) {
	c := startCluster(t, "redis")
	a := c.client(t, "A", time.Minute)
	c.kill(t, "redis")
	for range 20 {
		if _, err := a.Acquire(t.Context(), "k", 0); !backends.IsFailed(err) {
			t.Fatalf("acquire without a server: error %v, want a certain failure", err)
		}
	}
	if err := c.nodes["redis"].Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Acquire(t.Context(), "k", 0); err != nil {
		t.Error(err)
	}
}

// With an append-only file a killed server still has the lock, without one it
// grants it again.
func TestRestartedServer(t *testing.T) {
	for name, keeps := range map[string]bool{"redis": false, "redis-aof-everysec": true, "redis-aof-always": true} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, name)
			a, b := c.client(t, "A", time.Minute), c.client(t, "B", time.Minute)
			acquired(t, a, "k")
			if err := c.nodes["redis"].Restart(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			_, err := b.Acquire(t.Context(), "k", 0)
			if got := errors.Is(err, backends.ErrBusy); got != keeps || !keeps && err != nil {
				t.Errorf("B after the restart: error %v, want that A still holds it: %v", err, keeps)
			}
		})
	}
}
