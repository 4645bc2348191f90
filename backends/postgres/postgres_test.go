package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/conformance"
	_ "github.com/lockcheck/lockcheck/backends/postgres"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	status := m.Run()
	if err := cache.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

var both = []string{"postgres-session", "postgres-xact"}

// A client whose session the server ends learns of it while it does nothing,
// says so on release, and can go on with a new session.
func TestSessionEndedByTheServer(t *testing.T) {
	url := server(t)
	for _, name := range both {
		t.Run(name, func(t *testing.T) {
			a, b := client(t, name, url, 0, ""), client(t, name, url, 0, "")
			acquire(t, a)
			lost := a.(backends.Notifier).Lost("k")
			terminate(t, url)
			select {
			case <-lost:
			case <-time.After(10 * time.Second):
				t.Fatal("no notice of the loss")
			}
			if holds, err := a.(backends.Checker).Check(t.Context(), "k"); holds || err != nil {
				t.Errorf("check: %v, %v", holds, err)
			}
			if _, err := b.Acquire(t.Context(), "k", 10*time.Second); err != nil {
				t.Errorf("another client: %v", err)
			}
			if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
				t.Errorf("release: error %v, want %v", err, backends.ErrNotHeld)
			}
			if err := b.Release(t.Context(), "k"); err != nil {
				t.Errorf("release of another client: %v", err)
			}
			acquire(t, a)
		})
	}
}

// The TTL ends a session that has the lock and is idle, and no other.
func TestIdleSession(t *testing.T) {
	url := server(t)
	const ttl = 200 * time.Millisecond
	for _, name := range both {
		t.Run(name, func(t *testing.T) {
			a, b := client(t, name, url, ttl, ""), client(t, name, url, ttl, "")
			acquire(t, a)
			if _, err := b.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
				t.Fatalf("error %v, want %v", err, backends.ErrBusy)
			}
			// B has been idle for longer than the TTL when this returns, but
			// it waits, or has no lock.
			if _, err := b.Acquire(t.Context(), "k", 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
				t.Errorf("release by the idle client: error %v, want %v", err, backends.ErrNotHeld)
			}
		})
	}
}

// A client that hears nothing gives its lock up while the server still has it, so
// that no other is granted it before. A renewal puts that off.
func TestNoticeByTheClientsClock(t *testing.T) {
	url := server(t)
	const ttl = time.Second
	for _, name := range both {
		t.Run(name, func(t *testing.T) {
			a, b := client(t, name, url, ttl, ""), client(t, name, url, ttl, "")
			acquire(t, a)
			begin := time.Now()
			if _, err := a.(backends.Renewer).Renew(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-a.(backends.Notifier).Lost("k"):
			case <-time.After(10 * time.Second):
				t.Fatal("no notice of the loss")
			}
			if after := time.Since(begin); after < ttl*8/10 {
				t.Errorf("it gave up after %v, with a TTL of %v", after, ttl)
			}
			if _, err := b.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
				t.Errorf("another client, at the time of the notice: error %v, want %v", err, backends.ErrBusy)
			}
			if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
				t.Errorf("release: error %v, want %v", err, backends.ErrNotHeld)
			}
			if _, err := b.Acquire(t.Context(), "k", 10*time.Second); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	}
}

// Advisory locks stack, so a second acquire by the same session would succeed.
func TestSecondAcquireIsRefused(t *testing.T) {
	url := server(t)
	for _, name := range both {
		t.Run(name, func(t *testing.T) {
			a := client(t, name, url, 0, "")
			acquire(t, a)
			if _, err := a.Acquire(t.Context(), "k", 0); !backends.IsFailed(err) {
				t.Errorf("error %v, want a certain failure", err)
			}
			if err := a.Release(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			acquire(t, client(t, name, url, 0, ""))
		})
	}
}

// The write of a lock's transaction takes effect with the release, or never.
func TestWriteInTheTransaction(t *testing.T) {
	url := server(t)
	r, writes := openResource(t, url)
	a := client(t, "postgres-xact", url, 0, url)
	write := func(value string) {
		t.Helper()
		err := a.(backends.Writer).Write(t.Context(), backends.Write{Key: "k", Value: value, Process: "A", Op: 1})
		if !errors.Is(err, backends.ErrPending) || backends.IsFailed(err) {
			t.Fatalf("write: error %v, want %v", err, backends.ErrPending)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		if err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(writes()); got != fmt.Sprint(want) {
			t.Fatalf("applied %s, want %s", got, want)
		}
	}
	acquire(t, a)
	write("1")
	expect()
	if err := a.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	expect(`"1"`)

	acquire(t, a)
	write("2")
	lost := a.(backends.Notifier).Lost("k")
	terminate(t, url)
	<-lost
	if err := a.(backends.Writer).Write(t.Context(), backends.Write{Key: "k", Value: "3"}); !backends.IsFailed(err) {
		t.Errorf("write after the session's end: error %v, want a certain failure", err)
	}
	if err := a.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("release: error %v, want %v", err, backends.ErrNotHeld)
	}
	expect(`"1"`)
}

func openResource(t *testing.T, url string, standbys ...string) (*resource.Resource, func() []string) {
	t.Helper()
	rec, err := history.Create(filepath.Join(t.TempDir(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var writes []string
	rec.Watch(func(e history.Event) {
		if e.F == history.Write && e.Type == history.OK {
			mu.Lock()
			defer mu.Unlock()
			writes = append(writes, string(e.Value))
		}
	})
	r, err := resource.Open(t.Context(), "postgres", resource.Options{Recorder: rec, DSN: url, Standbys: standbys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), rec.Close()); err != nil {
			t.Error(err)
		}
	})
	return r, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string{}, writes...)
	}
}

// The resource's HTTP front and the transactions of clients follow one rule.
func TestResourceRejectsLowerTokens(t *testing.T) {
	url := server(t)
	r, writes := openResource(t, url)
	post := func(value, token string, want int) {
		t.Helper()
		u := r.WriteURL("A", "k", value)
		if token != "" {
			u += "&token=" + token
		}
		resp, err := http.Post(u, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("write %s with token %q: status %d, want %d", value, token, resp.StatusCode, want)
		}
	}
	post("a", "33", 200)
	post("b", "34", 200)
	post("c", "33", 409)
	post("d", "34", 200)
	post("e", "", 200)
	post("f", "33", 409)
	if got, want := fmt.Sprint(writes()), `["a" "b" "d" "e"]`; got != want {
		t.Errorf("applied %s, want %s: each is recorded before it is answered", got, want)
	}
	a := client(t, "postgres-xact", url, 0, url)
	acquire(t, a)
	stale := int64(33)
	err := a.(backends.Writer).Write(t.Context(), backends.Write{Key: "k", Value: "g", Process: "A", Token: &stale})
	if !errors.Is(err, backends.ErrRejected) {
		t.Errorf("stale write in a transaction: error %v, want %v", err, backends.ErrRejected)
	}
}

func server(t *testing.T) string {
	t.Helper()
	b, err := backends.Find("postgres-session")
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Servers(t, b, backends.Options{})[0].URL
}

func client(t *testing.T, name, url string, ttl time.Duration, dsn string) backends.Client {
	t.Helper()
	b, err := backends.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Open(t.Context(), backends.Config{
		Process:     "A",
		Servers:     []backends.Endpoint{{Name: "postgres", Software: "postgres", URL: url}},
		TTL:         ttl,
		ResourceDSN: dsn,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func acquire(t *testing.T, c backends.Client) {
	t.Helper()
	// A lock that a closed session had is free once the server has noticed.
	if _, err := c.Acquire(t.Context(), "k", 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

// terminate ends the sessions that have an advisory lock.
func terminate(t *testing.T, url string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	tag, err := c.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'`)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("terminated %d sessions, want 1: %v", tag.RowsAffected(), err)
	}
}
