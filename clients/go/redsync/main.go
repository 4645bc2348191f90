// Command redsync tests github.com/go-redsync/redsync, Redlock in Go, on one
// Redis server or on several. With -until it heeds the deadline that the library
// offers: it writes only before that. The other flags are uses of the library that
// were reported to break the lock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/clients/go/adapter"
)

func main() {
	until := flag.Bool("until", false, "write only before the lock's deadline")
	constant := flag.Bool("constant-value", false, "give all attempts of all clients the same value, by WithGenValueFunc")
	recreate := flag.Bool("setnx-on-extend", false, "extend a lock that has ended by setting it again, by WithSetNXOnExtend")
	flag.Parse()
	name, use := "redsync", []redsync.Option{}
	if *constant {
		name += " -constant-value"
		use = append(use, redsync.WithGenValueFunc(func() (string, error) { return "locked", nil }))
	}
	if *recreate {
		name += " -setnx-on-extend"
		use = append(use, redsync.WithSetNXOnExtend())
	}
	a := adapter.Adapter{
		Name: name, Module: "github.com/go-redsync/redsync/v4",
		Capabilities: []string{"wait", "lease"},
		Open: func(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
			return open(c, *until, use)
		},
	}
	if *until {
		a.Capabilities = append(a.Capabilities, "deadline")
	}
	adapter.Main(a)
}

// delay is the time between two tries of one acquire.
const delay = 20 * time.Millisecond

type lock struct {
	rs    *redsync.Redsync
	ttl   time.Duration
	until bool
	use   []redsync.Option
	held  map[string]*redsync.Mutex
}

func open(c adapter.Config, until bool, use []redsync.Option) (adapter.Lock, error) {
	var pools []redsyncredis.Pool
	for _, url := range c.URLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled = true // else go-redis ignores deadlines
		o.MaxRetries = -1              // a retried SET NX may find its own key
		pools = append(pools, goredis.NewPool(redis.NewClient(o)))
	}
	return &lock{redsync.New(pools...), c.TTL, until, use, map[string]*redsync.Mutex{}}, nil
}

func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	m := l.rs.NewMutex(key, append([]redsync.Option{
		redsync.WithExpiry(l.ttl),
		redsync.WithTimeoutFactor(0.25), // 5 % of a short lease is too little for a busy machine
	}, l.use...)...)
	// The library counts tries; a wait is a time, and a try of five servers may take
	// longer than the pause after it.
	for asked := time.Now(); ; {
		err := m.TryLockContext(ctx)
		if err == nil {
			l.held[key] = m
			return l.grant(m, asked), nil
		}
		if time.Since(asked)+delay < wait {
			select {
			case <-time.After(delay):
				continue
			case <-ctx.Done():
			}
		}
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) {
			return adapter.Grant{}, fmt.Errorf("%w: %w", adapter.ErrBusy, err)
		}
		return adapter.Grant{}, err
	}
}

// grant states the lease of the try that was granted, less what the library
// sets aside for clocks that drift.
func (l *lock) grant(m *redsync.Mutex, asked time.Time) adapter.Grant {
	g := adapter.Grant{Lease: m.Until().Sub(asked)}
	if l.until {
		g.Until = m.Until()
	}
	return g
}

func (l *lock) Renew(ctx context.Context, key string) (adapter.Grant, error) {
	m := l.held[key]
	if m == nil {
		return adapter.Grant{}, adapter.ErrNotHeld
	}
	asked := time.Now()
	ok, err := m.ExtendContext(ctx)
	if ok {
		return l.grant(m, asked), nil
	}
	return adapter.Grant{}, refused(err)
}

func (l *lock) Release(ctx context.Context, key string) error {
	m := l.held[key]
	if m == nil {
		return adapter.ErrNotHeld
	}
	delete(l.held, key)
	if ok, err := m.UnlockContext(ctx); !ok {
		return refused(err)
	}
	return nil
}

// Check is what redsync recommends before each use: its deadline.
func (l *lock) Check(key string) bool {
	m := l.held[key]
	return m != nil && time.Now().Before(m.Until())
}

// refused tells a majority that says no from one that cannot be asked.
func refused(err error) error {
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return fmt.Errorf("%w: %w", adapter.ErrNotHeld, err)
	}
	return err
}
