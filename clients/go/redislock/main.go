// Command redislock tests github.com/bsm/redislock. Of several servers it uses the
// one that is the primary when it acquires, as a client that asks Sentinel does.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/clients/go/adapter"
)

func main() {
	adapter.Main(adapter.Adapter{
		Name: "redislock", Module: "github.com/bsm/redislock",
		Capabilities: []string{"wait", "lease"},
		Open:         open,
	})
}

// delay is the time between two tries of one acquire.
const delay = 10 * time.Millisecond

type lock struct {
	servers []*redis.Client
	ttl     time.Duration
	held    map[string]*redislock.Lock
}

func open(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
	l := &lock{ttl: c.TTL, held: map[string]*redislock.Lock{}}
	for _, url := range c.URLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		o.ContextTimeoutEnabled = true // else go-redis ignores deadlines
		l.servers = append(l.servers, redis.NewClient(o))
	}
	_, err := l.primary(ctx)
	return l, err
}

// primary returns the first server that says it is one.
func (l *lock) primary(ctx context.Context) (*redis.Client, error) {
	var errs []error
	for _, s := range l.servers {
		role, err := s.Do(ctx, "role").Slice()
		if err == nil && len(role) > 0 && role[0] == "master" {
			return s, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no server is a primary: %w", errors.Join(errs...))
}

func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	primary := l.servers[0] // the only one need not be asked, which would take a round trip
	if len(l.servers) > 1 {
		var err error
		if primary, err = l.primary(ctx); err != nil {
			return adapter.Grant{}, fmt.Errorf("%w: %w", adapter.ErrBusy, err) // nothing was asked for
		}
	}
	retry := redislock.LimitRetry(redislock.LinearBackoff(delay), int(wait/delay))
	held, err := redislock.New(primary).Obtain(ctx, key, l.ttl, &redislock.Options{RetryStrategy: retry})
	if errors.Is(err, redislock.ErrNotObtained) {
		return adapter.Grant{}, fmt.Errorf("%w: %w", adapter.ErrBusy, err)
	}
	if err != nil {
		return adapter.Grant{}, err
	}
	l.held[key] = held
	return adapter.Grant{Lease: l.ttl}, nil
}

func (l *lock) Renew(ctx context.Context, key string) (adapter.Grant, error) {
	held := l.held[key]
	if held == nil {
		return adapter.Grant{}, adapter.ErrNotHeld
	}
	err := held.Refresh(ctx, l.ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return adapter.Grant{}, fmt.Errorf("%w: %w", adapter.ErrNotHeld, err)
	}
	return adapter.Grant{Lease: l.ttl}, err
}

func (l *lock) Release(ctx context.Context, key string) error {
	held := l.held[key]
	delete(l.held, key)
	err := held.Release(ctx) // says ErrLockNotHeld of nil
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return fmt.Errorf("%w: %w", adapter.ErrNotHeld, err)
	}
	return err
}
