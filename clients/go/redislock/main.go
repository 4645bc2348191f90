// Command redislock tests github.com/bsm/redislock.
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
	client *redislock.Client
	ttl    time.Duration
	held   map[string]*redislock.Lock
}

func open(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
	o, err := redis.ParseURL(c.URLs[0])
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true // else go-redis ignores deadlines
	rdb := redis.NewClient(o)
	return &lock{redislock.New(rdb), c.TTL, map[string]*redislock.Lock{}}, rdb.Ping(ctx).Err()
}

func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	retry := redislock.LimitRetry(redislock.LinearBackoff(delay), int(wait/delay))
	held, err := l.client.Obtain(ctx, key, l.ttl, &redislock.Options{RetryStrategy: retry})
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
