package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	register("redis-wait", "redis-replicated that grants once its replica has the key, by WAIT", pair(), openWait, nil)
}

func openWait(ctx context.Context, c backends.Config) (backends.Client, error) {
	s, err := dialPrimary(c.URLs("redis"))
	if err != nil {
		return nil, err
	}
	return newClient(ctx, s, &confirmed{s, min(max(c.TTL/4, minConfirm), maxConfirm)}, c)
}

// How long a replica may take to have the key: a quarter of the lease, in these
// bounds.
const (
	minConfirm = 50 * time.Millisecond
	maxConfirm = time.Second
)

// confirmed is a server with a replica that must have a key before it counts as
// set. Of deletions and extensions that is not asked: if one is lost in a
// failover, the lock is held for too long or too short.
type confirmed struct {
	*Server
	limit time.Duration
}

var errUnconfirmed = errors.New("no replica has confirmed the key")

// Set undoes what was not confirmed, and then says that it failed. If the
// primary dies at that very moment its replica may have the key all the same,
// and nobody the lock, until the key expires.
func (s *confirmed) Set(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	set, acknowledged, err := s.setAndWait(ctx, key, value, ttl)
	if err != nil || !set || acknowledged > 0 {
		return set, err
	}
	if _, err := s.Delete(ctx, key, value); err != nil {
		return false, fmt.Errorf("%w, and it could not be deleted: %v", errUnconfirmed, err)
	}
	return false, backends.Failed(fmt.Errorf("%w within %v: it was deleted", errUnconfirmed, s.limit))
}

// setAndWait sends both over one connection: WAIT is about what that has written.
func (s *confirmed) setAndWait(ctx context.Context, key, value string, ttl time.Duration) (set bool, acknowledged int64, err error) {
	c := s.rdb.Conn()
	defer c.Close()
	if set, err = c.SetNX(ctx, key, value, ttl).Result(); err != nil || !set {
		return set, 0, Outcome(err)
	}
	acknowledged, err = c.Wait(ctx, 1, s.limit).Result()
	if err != nil {
		return true, 0, fmt.Errorf("the key is set, but WAIT: %v", err) // not wrapped: it is no failure of the whole
	}
	return true, acknowledged, nil
}
