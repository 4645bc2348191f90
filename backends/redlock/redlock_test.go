package redlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

const ttl = 10 * time.Second

// clock is a time of day that only servers move on.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// fake is a server whose answer takes a time and may be lost. With a clock of
// its own it is exact about expiry.
type fake struct {
	clock *clock
	takes time.Duration
	lost  bool // its answers, while it does what it is asked
	down  bool // nothing can be sent
	keys  map[string]lease
}

type lease struct {
	value string
	until time.Time
}

func (f *fake) do(done bool) (bool, error) {
	if f.lost {
		return false, errors.New("no answer")
	}
	return done, nil
}

var errDown = backends.Failed(errors.New("connection refused"))

func (f *fake) Set(_ context.Context, key, value string, ttl time.Duration) (bool, error) {
	if f.down {
		return false, errDown
	}
	f.clock.t = f.clock.t.Add(f.takes)
	if l, ok := f.keys[key]; ok && f.clock.t.Before(l.until) {
		return f.do(false)
	}
	f.keys[key] = lease{value, f.clock.t.Add(ttl)}
	return f.do(true)
}

func (f *fake) has(key, value string) bool {
	l, ok := f.keys[key]
	return ok && l.value == value && f.clock.t.Before(l.until)
}

func (f *fake) Delete(_ context.Context, key, value string) (bool, error) {
	if f.down {
		return false, errDown
	}
	had := f.has(key, value)
	if had {
		delete(f.keys, key)
	}
	return f.do(had)
}

func (f *fake) Extend(_ context.Context, key, value string, ttl time.Duration) (bool, error) {
	if f.down {
		return false, errDown
	}
	had := f.has(key, value)
	if had {
		f.keys[key] = lease{value, f.clock.t.Add(ttl)}
	}
	return f.do(had)
}

func (f *fake) Close() error { return nil }

// fakes returns n servers of one clock, and a way to make clients of them.
func fakes(n int) ([]*fake, func() *client) {
	c := &clock{time.Unix(1000, 0)}
	all := make([]*fake, n)
	for i := range all {
		all[i] = &fake{clock: c, keys: map[string]lease{}}
	}
	return all, func() *client {
		l := newClient(ttl, nil, c.now)
		for _, f := range all {
			l.servers = append(l.servers, f)
		}
		return l
	}
}

func TestQuorumIsOfTheConfiguredServers(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 4} {
		if got := quorum(n); got != want {
			t.Errorf("quorum(%d) = %d, want %d", n, got, want)
		}
	}
}

// The allowance for drift shortens the validity. With the sign wrong a client
// believes in a lock that has expired (SPSCommerce/redlock-py#3).
func TestValidity(t *testing.T) {
	for _, tt := range []struct{ ttl, elapsed, want time.Duration }{
		{10 * time.Second, 0, 9898 * time.Millisecond},
		{10 * time.Second, 9 * time.Second, 898 * time.Millisecond},
		{10 * time.Second, 9898 * time.Millisecond, 0},
		{10 * time.Second, 9950 * time.Millisecond, -52 * time.Millisecond},
		{10 * time.Second, 11 * time.Second, -1102 * time.Millisecond},
		{200 * time.Millisecond, 10 * time.Millisecond, 186 * time.Millisecond},
	} {
		if got := validity(tt.ttl, tt.elapsed); got != tt.want {
			t.Errorf("validity(%v, %v) = %v, want %v", tt.ttl, tt.elapsed, got, tt.want)
		}
	}
}

func TestAcquire(t *testing.T) {
	const slow = ttl / 5
	tests := []struct {
		name    string
		set     func([]*fake)
		valid   time.Duration // of the grant, 0 for none
		unknown bool
		left    int // servers that have the value afterwards
	}{
		{"all answer", func([]*fake) {}, 9898 * time.Millisecond, false, 5},
		{"two are down", func(s []*fake) { s[0].down, s[4].down = true, true }, 9898 * time.Millisecond, false, 3},
		{"three are down", func(s []*fake) { s[0].down, s[1].down, s[4].down = true, true, true }, 0, false, 0},
		{"slow but in time", func(s []*fake) { s[0].takes = 9 * time.Second }, 898 * time.Millisecond, false, 5},
		{"as slow as the allowance", func(s []*fake) { s[4].takes = 9898 * time.Millisecond }, 0, false, 0},
		{"together slower than the lease", func(s []*fake) {
			for _, f := range s {
				f.takes = slow
			}
		}, 0, false, 0},
		{"another has two", func(s []*fake) { some(s[:2]).forever() }, 9898 * time.Millisecond, false, 3},
		{"another has three", func(s []*fake) { some(s[:3]).forever() }, 0, false, 0},
		{"two each, one down", func(s []*fake) { some(s[:2]).forever(); s[4].down = true }, 0, false, 0},
		{"the answers of two are lost", func(s []*fake) { s[0].lost, s[1].lost = true, true }, 9898 * time.Millisecond, false, 5},
		{"the answers of three are lost", func(s []*fake) { s[0].lost, s[1].lost, s[2].lost = true, true, true }, 0, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			servers, client := fakes(5)
			tt.set(servers)
			c := client()
			g, err := c.Acquire(t.Context(), "k", 0)
			switch {
			case tt.valid == 0 && err == nil:
				t.Fatalf("granted: %+v", g)
			case tt.valid == 0 && backends.IsFailed(err) == tt.unknown:
				t.Fatalf("error %v is certain: %v, want %v", err, !tt.unknown, tt.unknown)
			case tt.valid > 0 && err != nil:
				t.Fatal(err)
			case g.Valid != tt.valid:
				t.Errorf("valid for %v, want %v", g.Valid, tt.valid)
			}
			left := 0
			for _, f := range servers {
				if _, ok := f.keys["k"]; ok && f.keys["k"].value != other {
					left++
				}
			}
			if left != tt.left {
				t.Errorf("%d servers have its value, want %d", left, tt.left)
			}
			holds, _ := c.Check(t.Context(), "k")
			if holds != (tt.valid > 0) {
				t.Errorf("it believes that it holds: %v", holds)
			}
			servers[0].clock.t = servers[0].clock.t.Add(tt.valid)
			if holds, _ := c.Check(t.Context(), "k"); holds {
				t.Error("it believes that it holds after the validity")
			}
		})
	}
}

const other = "another's"

type some []*fake

func (s some) forever() {
	for _, f := range s {
		f.keys["k"] = lease{other, f.clock.t.Add(100 * ttl)}
	}
}

// Clients that were opened while servers were away need the same majority
// (SPSCommerce/redlock-py#6).
func TestServersThatWereDownCount(t *testing.T) {
	servers, client := fakes(5)
	servers[3].down, servers[4].down = true, true
	a := client() // sees three
	servers[3].down, servers[4].down = false, false
	b := client()
	for _, f := range servers[:2] {
		f.down = true
	}
	if _, err := b.Acquire(t.Context(), "k", 0); err != nil {
		t.Fatal(err)
	}
	for i, f := range servers {
		f.down = i >= 2 // A sees the other two
	}
	if g, err := a.Acquire(t.Context(), "k", 0); err == nil {
		t.Errorf("two of five granted %+v", g)
	}
}

func TestReleaseAndRenew(t *testing.T) {
	tests := []struct {
		name string
		lose func([]*fake)
		want string // ok, lost or unknown, of both
	}{
		{"all have it", func([]*fake) {}, "ok"},
		{"two have lost it", func(s []*fake) { some(s[:2]).forever() }, "ok"},
		{"three have lost it", func(s []*fake) { some(s[:3]).forever() }, "lost"},
		{"two are down", func(s []*fake) { s[0].down, s[1].down = true, true }, "ok"},
		{"three are down", func(s []*fake) { s[0].down, s[1].down, s[2].down = true, true, true }, "unknown"},
		{"one is down, two have lost it", func(s []*fake) { s[0].down = true; some(s[1:3]).forever() }, "unknown"},
		{"one is down, three have lost it", func(s []*fake) { s[0].down = true; some(s[1:4]).forever() }, "lost"},
	}
	for _, tt := range tests {
		for name, f := range map[string]func(*client) error{
			"release": func(c *client) error { return c.Release(t.Context(), "k") },
			"renew": func(c *client) error {
				_, err := c.Renew(t.Context(), "k")
				return err
			},
		} {
			t.Run(fmt.Sprintf("%s/%s", name, tt.name), func(t *testing.T) {
				servers, client := fakes(5)
				c := client()
				if _, err := c.Acquire(t.Context(), "k", 0); err != nil {
					t.Fatal(err)
				}
				tt.lose(servers)
				got := "ok"
				if err := f(c); err != nil {
					got = "unknown"
					if errors.Is(err, backends.ErrNotHeld) {
						got = "lost"
					} else if backends.IsFailed(err) {
						got = "failed"
					}
				}
				if got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		}
	}
}

// Renewals count from their own invocation.
func TestRenewalStartsAnew(t *testing.T) {
	servers, client := fakes(5)
	c := client()
	if _, err := c.Acquire(t.Context(), "k", 0); err != nil {
		t.Fatal(err)
	}
	servers[0].clock.t = servers[0].clock.t.Add(ttl / 2)
	g, err := c.Renew(t.Context(), "k")
	if err != nil || g.Valid != ttl-drift(ttl) {
		t.Errorf("valid for %v, %v; want %v", g.Valid, err, ttl-drift(ttl))
	}
}
