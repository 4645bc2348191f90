package redis_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/conformance"
	_ "github.com/lockcheck/lockcheck/backends/redis"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

// An acquire whose reply is lost may have locked: that is unknown, the next
// acquire of the same client takes it back, and it is not retried unseen.
func TestLostReplyOfAcquire(t *testing.T) {
	b, url := server(t)
	p := newProxy(t, url)
	a, other := client(t, b, p.url, time.Hour), client(t, b, url, time.Hour)

	p.lose.Store(true)
	if _, err := a.Acquire(t.Context(), "k", 0); err == nil || backends.IsFailed(err) {
		t.Fatalf("acquire without a reply: error %v, want an unknown outcome", err)
	}
	p.lose.Store(false)
	if _, err := other.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
		t.Fatalf("the server must have executed the SET; another client gets %v", err)
	}
	if _, err := a.Acquire(t.Context(), "k", 0); err != nil {
		t.Fatalf("its own stray key is in the way: %v", err)
	}
	if err := a.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
}

// A failed acquire that is cleaned up late must not touch what was granted in
// between: here the stray lease has ended, and another holds the lock.
func TestStrayIsDeletedByItsOwnValueOnly(t *testing.T) {
	b, url := server(t)
	p := newProxy(t, url)
	a, other := client(t, b, p.url, 50*time.Millisecond), client(t, b, url, time.Hour)
	p.lose.Store(true)
	if _, err := a.Acquire(t.Context(), "k", 0); err == nil {
		t.Fatal("acquired without a reply")
	}
	p.lose.Store(false)
	if _, err := other.Acquire(t.Context(), "k", 10*time.Second); err != nil {
		t.Fatalf("the stray lease must end by itself: %v", err)
	}
	if _, err := a.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
		t.Fatalf("another holds the lock: error %v", err)
	}
	if err := other.Release(t.Context(), "k"); err != nil {
		t.Fatalf("the clean-up deleted another's lock: %v", err)
	}
}

// A deadline ends a command that waits for its reply.
func TestDeadlineIsKeptWhileAReplyIsDue(t *testing.T) {
	b, url := server(t)
	p := newProxy(t, url)
	a := client(t, b, p.url, time.Hour)
	p.hold.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := a.Acquire(ctx, "k", 0); err == nil || backends.IsFailed(err) {
		t.Errorf("error %v, want an unknown outcome", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v with a deadline of 50ms", took)
	}
}

func TestNoServer(t *testing.T) {
	b, url := server(t)
	p := newProxy(t, url)
	a := client(t, b, p.url, time.Hour)
	p.close()
	var err error
	for range 2 { // the first may find its connection cut
		_, err = a.Acquire(t.Context(), "k", 0)
	}
	if !backends.IsFailed(err) {
		t.Errorf("error %v, want a certain failure: no connection could be made", err)
	}
}

func server(t *testing.T) (backends.Backend, string) {
	t.Helper()
	b, err := backends.Find("redis")
	if err != nil {
		t.Fatal(err)
	}
	return b, conformance.Servers(t, b, backends.Options{})[0].URL
}

func client(t *testing.T, b backends.Backend, url string, ttl time.Duration) backends.Client {
	t.Helper()
	c, err := b.Open(t.Context(), backends.Config{
		Process: "A",
		Servers: []backends.Endpoint{{Name: "redis", Software: "redis", URL: url}},
		TTL:     ttl,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// proxy stands between clients and a server.
type proxy struct {
	url  string
	lose atomic.Bool // the connection ends in place of the next reply
	hold atomic.Bool // replies do not get through
	l    net.Listener
	ctx  context.Context
	end  context.CancelFunc
}

func newProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "redis://" + l.Addr().String(), l: l}
	p.ctx, p.end = context.WithCancel(context.Background())
	t.Cleanup(p.close)
	address := strings.TrimPrefix(url, "redis://")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c, address)
		}
	}()
	return p
}

func (p *proxy) close() {
	p.end()
	p.l.Close()
}

func (p *proxy) serve(c net.Conn, address string) {
	defer c.Close()
	s, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer s.Close()
	stop := context.AfterFunc(p.ctx, func() { c.Close(); s.Close() })
	defer stop()
	go func() {
		io.Copy(s, c)
		s.Close()
	}()
	buf := make([]byte, 4096)
	for {
		n, err := s.Read(buf)
		if err != nil || p.lose.Load() {
			return
		}
		if p.hold.Load() {
			<-p.ctx.Done()
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}
