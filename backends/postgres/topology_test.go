package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/internal/deploy"
)

// cluster is a backend with its servers, by name.
type cluster struct {
	*testing.T
	backends.Backend
	nodes     map[string]*deploy.Node
	endpoints []backends.Endpoint
}

// cache spares the tests an initdb each.
var cache = deploy.NewCache()

func startCluster(t *testing.T, name string) *cluster {
	t.Helper()
	b, err := backends.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	servers := b.Servers(backends.Options{})
	for _, s := range servers {
		if _, err := deploy.Find(t.Context(), s.Software, ""); err != nil {
			t.Skipf("needs %s: %v", s.Software, err)
		}
	}
	l, err := deploy.NewLocal(deploy.Options{Dir: t.TempDir(), Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	nodes, err := l.Start(t.Context(), servers)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, Backend: b, nodes: map[string]*deploy.Node{}}
	for _, n := range nodes {
		c.nodes[n.Name()] = n
		c.endpoints = append(c.endpoints, n.Endpoint())
	}
	return c
}

func (c *cluster) client(process string) backends.Client {
	c.Helper()
	x, err := c.Open(c.Context(), backends.Config{Process: process, Servers: c.endpoints, TTL: time.Minute})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { x.Close() })
	return x
}

// Pooled by transaction, two clients have the lock of a session, since they have
// the session, in turns. And while that serves another, a release is sent to
// one that does not have the lock, which stays: nobody can release it.
func TestSessionLockPooledByTransaction(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			cluster := startCluster(t, "pgbouncer-transaction-session")
			a, b := cluster.client("A"), cluster.client("B")
			acquire(t, a)
			if _, err := b.Acquire(t.Context(), "k", 0); err != nil {
				t.Errorf("B is not granted what A holds (%v): the lock is better than is claimed", err)
			}
			pooler, err := pgconn.Connect(t.Context(), cluster.nodes["pgbouncer"].Endpoint().URL)
			if err != nil {
				t.Fatal(err)
			}
			defer pooler.Close(context.Background())
			if err := pooler.Exec(t.Context(), "BEGIN").Close(); err != nil { // it has the session now
				t.Fatal(err)
			}
			if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
				t.Errorf("release: error %v, want %v", err, backends.ErrNotHeld)
			}
			for _, c := range []interface{ Close() error }{a, b} {
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
			}
			// Whoever comes without the pooler finds it taken, by nobody.
			direct := client(t, "postgres-session", cluster.nodes["postgres"].Endpoint().URL, 0, "")
			if _, err := direct.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
				t.Errorf("error %v, want %v: the lock is left behind", err, backends.ErrBusy)
			}
		})
	}
}

// The other three pools keep clients apart, and free what a client leaves.
func TestLocksThatPoolingKeeps(t *testing.T) {
	for _, name := range []string{"pgbouncer-session-session", "pgbouncer-session-xact", "pgbouncer-transaction-xact"} {
		t.Run(name, func(t *testing.T) {
			client := startCluster(t, name).client
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

// Every lock that is held occupies a connection of the pool, whatever its name. A
// transaction gives it back with the lock, a session when its client leaves.
func TestHeldLocksExhaustTheirPool(t *testing.T) {
	for name, freed := range map[string]func(backends.Client) error{
		"pgbouncer-small-session": backends.Client.Close,
		"pgbouncer-small-xact":    func(c backends.Client) error { return c.Release(t.Context(), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, name)
			a, b, third := c.client("A"), c.client("B"), c.client("C")
			for key, x := range map[string]backends.Client{"a": a, "b": b} {
				if _, err := x.Acquire(t.Context(), key, 0); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := third.Acquire(ctx, "c", 0); err == nil || errors.Is(err, backends.ErrBusy) {
				t.Errorf("a free lock with an exhausted pool: error %v, want that nothing was answered in time", err)
			}
			if err := freed(a); err != nil {
				t.Fatal(err)
			}
			if _, err := third.Acquire(t.Context(), "c", 0); err != nil {
				t.Errorf("a free lock with a free connection: %v", err)
			}
		})
	}
}

// Names collide where the key is hashtext(name), and only there.
func TestCollidingNames(t *testing.T) {
	for name, collide := range map[string]bool{
		"postgres-session": false, "postgres-session-bigint": false, "postgres-session-hashtext": true,
	} {
		t.Run(name, func(t *testing.T) {
			client := startCluster(t, name).client
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
	a := startCluster(t, "postgres-lease").client("A")
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

// Advisory locks are not replicated: the standby that is promoted knows nothing
// of them, while a row with a lease is there. The session, and with it the
// transaction, has died with the server, and its client learns that.
func TestLockAfterFailover(t *testing.T) {
	for name, stays := range map[string]bool{
		"postgres-replicated-session": false, "postgres-replicated-xact": false, "postgres-replicated-lease": true,
	} {
		t.Run(name, func(t *testing.T) {
			c := startCluster(t, name)
			a, b := c.client("A"), c.client("B")
			acquire(t, a)
			if stays {
				replay(t, c)
			}
			if err := c.nodes["postgres-1"].Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.nodes["postgres-2"].Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n, ok := a.(backends.Notifier); ok {
				select {
				case <-n.Lost("k"):
				case <-time.After(10 * time.Second):
					t.Error("A is not told")
				}
			}
			// The first statement of B may still meet its old connection.
			_, err := b.Acquire(t.Context(), "k", 0)
			for range 2 {
				if err != nil && !errors.Is(err, backends.ErrBusy) {
					_, err = b.Acquire(t.Context(), "k", 0)
				}
			}
			if got := errors.Is(err, backends.ErrBusy); got != stays || !stays && err != nil {
				t.Errorf("B after the failover: error %v, want that A still holds it: %v", err, stays)
			}
			if err := a.Release(t.Context(), "k"); stays && backends.IsFailed(err) || !stays && !errors.Is(err, backends.ErrNotHeld) {
				t.Errorf("release by A: error %v", err)
			}
		})
	}
}

// replay waits until the standby has all that the primary has written.
func replay(t *testing.T, c *cluster) {
	t.Helper()
	primary, err := pgconn.Connect(t.Context(), c.nodes["postgres-1"].Endpoint().URL)
	if err != nil {
		t.Fatal(err)
	}
	defer primary.Close(context.Background())
	const lag = `SELECT coalesce(bool_and(replay_lsn >= pg_current_wal_insert_lsn()), false)::text FROM pg_stat_replication`
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		r := primary.ExecParams(t.Context(), lag, nil, nil, nil, nil).Read()
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if string(r.Rows[0][0]) == "true" {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the standby lags behind")
		}
	}
}

// A resource whose server has a standby records what is written before and after
// that is promoted, each once, whoever listens at that moment.
func TestResourceFollowsAFailover(t *testing.T) {
	c := startCluster(t, "postgres-replicated-xact")
	primary, standby := c.nodes["postgres-1"].Endpoint().URL, c.nodes["postgres-2"].Endpoint().URL
	r, writes := openResource(t, primary, standby)
	write := func(url, value string) {
		t.Helper()
		pg, err := pgconn.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer pg.Close(context.Background())
		args := [][]byte{[]byte("k"), []byte(value), nil, []byte("A"), nil}
		if err := pg.ExecParams(t.Context(), resource.WriteSQL, args, nil, nil, nil).Read().Err; err != nil {
			t.Fatal(err)
		}
	}
	write(primary, "before")
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, standby)
	if err := c.nodes["postgres-1"].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes["postgres-2"].Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(standby, "after")
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(standby, "last")
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(writes()), `["before" "after" "last"]`; got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
}

// caughtUp waits until a standby has the resource's write.
func caughtUp(t *testing.T, standby string) {
	t.Helper()
	pg, err := pgconn.Connect(t.Context(), standby)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close(context.Background())
	for end := time.Now().Add(10 * time.Second); ; {
		r := pg.ExecParams(t.Context(), "SELECT count(*) FROM lockcheck_log", nil, nil, nil, nil).Read()
		if r.Err == nil && string(r.Rows[0][0]) == "1" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the standby does not have the write: %v", r.Err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
