// Command goredis tests a lock by hand with github.com/redis/go-redis: SetNX and a
// script that compares and deletes, with the library's options as they come. One
// of them retries commands that got no answer, up to three times.
package main

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/clients/go/adapter"
)

func main() {
	adapter.Main(adapter.Adapter{
		Name: "go-redis-setnx", Module: "github.com/redis/go-redis/v9",
		Capabilities: []string{"lease"},
		Open:         open,
	})
}

type lock struct {
	rdb    *redis.Client
	ttl    time.Duration
	values map[string]string
}

func open(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
	o, err := redis.ParseURL(c.URLs[0])
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(o)
	return &lock{rdb, c.TTL, map[string]string{}}, rdb.Ping(ctx).Err()
}

// Acquire takes the library's word: false means that the key was there.
func (l *lock) Acquire(ctx context.Context, key string, _ time.Duration) (adapter.Grant, error) {
	value := rand.Text()
	set, err := l.rdb.SetNX(ctx, key, value, l.ttl).Result()
	switch {
	case err != nil:
		return adapter.Grant{}, err
	case !set:
		return adapter.Grant{}, adapter.ErrBusy
	}
	l.values[key] = value
	return adapter.Grant{Lease: l.ttl}, nil
}

var compareDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

func (l *lock) Release(ctx context.Context, key string) error {
	n, err := compareDelete.Run(ctx, l.rdb, []string{key}, l.values[key]).Int()
	delete(l.values, key)
	if err == nil && n == 0 {
		return adapter.ErrNotHeld
	}
	return err
}
