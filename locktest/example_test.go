package locktest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/locktest"
)

// A lock on Redis, tested with the suite ci.
func ExampleRun() {
	// In a test, which has it:
	var t *testing.T

	locktest.Run(t, locktest.Config{
		Lock:    newRedisLock,
		Servers: locktest.Redis,
	})
}

type redisLock struct {
	rdb  *redis.Client
	ttl  time.Duration
	held map[string]string // the random value of each grant, by key
}

func newRedisLock(ctx context.Context, env locktest.Env) (locktest.Lock, error) {
	o, err := redis.ParseURL(env.URL())
	if err != nil {
		return nil, err
	}
	o.MaxRetries = -1 // a SET that is tried again finds its own key in the way
	rdb := redis.NewClient(o)
	return &redisLock{rdb, env.TTL, map[string]string{}}, rdb.Ping(ctx).Err()
}

func (l *redisLock) Acquire(ctx context.Context, key string, _ time.Duration) error {
	value, asked := rand.Text(), time.Now()
	set, err := l.rdb.SetNX(ctx, key, value, l.ttl).Result()
	switch {
	case err != nil:
		return err // nobody knows
	case !set:
		return locktest.ErrBusy
	case time.Since(asked) >= l.ttl:
		return errors.New("granted, but the answer took as long as the lease")
	}
	l.held[key] = value
	return nil
}

var compareAndDelete = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0`)

var compareAndExpire = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end
return 0`)

// Renew makes the lock one that can be renewed, which is then tested too.
func (l *redisLock) Renew(ctx context.Context, key string) error {
	n, err := compareAndExpire.Run(ctx, l.rdb, []string{key}, l.held[key], l.ttl.Milliseconds()).Int()
	if err == nil && n == 0 {
		return locktest.ErrNotHeld
	}
	return err
}

func (l *redisLock) Release(ctx context.Context, key string) error {
	n, err := compareAndDelete.Run(ctx, l.rdb, []string{key}, l.held[key]).Int()
	if err == nil && n == 0 {
		return locktest.ErrNotHeld
	}
	return err
}
