// Package redis is the lock on a single Redis server: SET key value NX PX ttl
// with a random value for each acquire, and scripts that compare the value
// before they renew or delete.
//
// It follows https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
// for one instance. Its grants carry no fencing token: the value is not ordered.
package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	backends.Register(backends.Backend{
		Name:    "redis",
		Summary: "one Redis server: SET NX PX, compare-and-delete",
		Servers: func(backends.Options) []backends.Server {
			return []backends.Server{{Name: "redis", Software: "redis"}}
		},
		Open:   open,
		MinTTL: func(backends.Options) time.Duration { return time.Millisecond },
		Leased: true,
	})
}

// release deletes the key if it has the caller's value.
var release = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("del", KEYS[1])
end
return 0`)

// renew sets the key's time to live if it has the caller's value.
var renew = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("pexpire", KEYS[1], ARGV[2])
end
return 0`)

// client is not safe for concurrent use, as backends.Client has it.
type client struct {
	rdb  *redis.Client
	ttl  time.Duration
	held map[string]hold // by key
	// stray are values that an acquire with an unknown outcome may have
	// left on the server, by key.
	stray map[string][]string
}

// hold is a grant as the client remembers it.
type hold struct {
	value string
	until time.Time // the lease's end by the client's clock
}

func open(ctx context.Context, c backends.Config) (backends.Client, error) {
	urls := c.URLs("redis")
	if len(urls) != 1 {
		return nil, fmt.Errorf("the redis lock needs one redis server, got %d", len(urls))
	}
	if c.TTL < time.Millisecond {
		return nil, fmt.Errorf("the redis lock needs a TTL of at least 1ms, got %v", c.TTL)
	}
	o, err := redis.ParseURL(urls[0])
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	// A retry that is not seen turns an own success into a failure: the
	// first try's key is in the way of the second.
	o.MaxRetries = -1
	// Without it a deadline does not end a command that is under way.
	o.ContextTimeoutEnabled = true
	o.PoolSize = 1
	o.DialerRetries = 1
	o.DisableIdentity = true
	rdb := redis.NewClient(o)
	if err := rdb.Ping(ctx).Err(); err != nil {
		rdb.Close()
		return nil, fmt.Errorf("redis at %s: %w", o.Addr, err)
	}
	return &client{rdb: rdb, ttl: c.TTL.Truncate(time.Millisecond), held: map[string]hold{}, stray: map[string][]string{}}, nil
}

func (c *client) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		return c.try(ctx, key)
	})
}

func (c *client) try(ctx context.Context, key string) (backends.Grant, error) {
	c.clean(ctx, key)
	value := rand.Text()
	asked := time.Now()
	set, err := c.rdb.SetNX(ctx, key, value, c.ttl).Result()
	if err != nil {
		if noEffect(err) {
			return backends.Grant{}, backends.Failed(err)
		}
		c.stray[key] = append(c.stray[key], value)
		return backends.Grant{}, err
	}
	if !set {
		return backends.Grant{}, backends.ErrBusy
	}
	c.held[key] = hold{value, asked.Add(c.ttl)}
	return backends.Grant{TTL: c.ttl}, nil
}

// clean deletes what earlier acquires may have left, as far as the server can
// be reached: else it is gone after the TTL. It runs before the next operation
// on the key, and not in the acquire that failed, whose context has ended.
func (c *client) clean(ctx context.Context, key string) {
	for len(c.stray[key]) > 0 {
		if release.Run(ctx, c.rdb, []string{key}, c.stray[key][0]).Err() != nil {
			return
		}
		c.stray[key] = c.stray[key][1:]
	}
	delete(c.stray, key)
}

func (c *client) Renew(ctx context.Context, key string) (backends.Grant, error) {
	h, ok := c.held[key]
	if !ok {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	n, err := renew.Run(ctx, c.rdb, []string{key}, h.value, c.ttl.Milliseconds()).Int()
	if err != nil {
		return backends.Grant{}, outcome(err)
	}
	if n == 0 {
		delete(c.held, key)
		return backends.Grant{}, backends.ErrNotHeld
	}
	c.held[key] = hold{h.value, asked.Add(c.ttl)}
	return backends.Grant{TTL: c.ttl}, nil
}

func (c *client) Release(ctx context.Context, key string) error {
	c.clean(ctx, key)
	h, ok := c.held[key]
	if !ok {
		return backends.ErrNotHeld
	}
	n, err := release.Run(ctx, c.rdb, []string{key}, h.value).Int()
	if err != nil {
		return outcome(err) // the value is kept: releasing again is safe
	}
	delete(c.held, key)
	if n == 0 {
		return backends.ErrNotHeld
	}
	return nil
}

// Check says whether the lease still runs by the client's own clock, as of now.
func (c *client) Check(_ context.Context, key string) (bool, error) {
	h, ok := c.held[key]
	return ok && time.Now().Before(h.until), nil
}

func (c *client) Close() error { return c.rdb.Close() }

// noEffect reports whether the server answered with an error, or was not reached
// at all.
func noEffect(err error) bool {
	_, refused := errors.AsType[redis.Error](err)
	return refused || backends.NotDialed(err)
}

func outcome(err error) error {
	if noEffect(err) {
		return backends.Failed(err)
	}
	return err
}
