package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

// Server is the lock's operations on a server, each of them atomic there. It is
// not safe for concurrent use. An error that [backends.IsFailed] knows says that
// the operation had no effect; after any other that is unknown.
type Server struct{ rdb *redis.Client }

// PoolSize is for options of the client library. A client needs one connection at
// a time; but after as many failed dials the library dials no more than once a
// second, and a server that is back would not be seen until then.
const PoolSize = 10000

// Dial returns the server at a URL, to which it connects when it is first used.
func Dial(url string) (*Server, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	// A retry that is not seen turns an own success into a failure: the
	// first try's key is in the way of the second.
	o.MaxRetries = -1
	// Without it a deadline does not end a command that is under way.
	o.ContextTimeoutEnabled = true
	o.PoolSize = PoolSize
	o.DialerRetries = 1
	o.DisableIdentity = true
	return &Server{redis.NewClient(o)}, nil
}

// Set sets key to value for ttl, in whole milliseconds, and reports whether it
// did: not if the key is there.
func (s *Server) Set(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	set, err := s.rdb.SetNX(ctx, key, value, ttl).Result()
	return set, Outcome(err)
}

var compareAndDelete = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("del", KEYS[1])
end
return 0`)

// Delete deletes key if it has the value, and reports whether it had.
func (s *Server) Delete(ctx context.Context, key, value string) (bool, error) {
	n, err := compareAndDelete.Run(ctx, s.rdb, []string{key}, value).Int()
	return n == 1, Outcome(err)
}

var compareAndExpire = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("pexpire", KEYS[1], ARGV[2])
end
return 0`)

// Extend sets the time to live of key if it has the value, and reports whether
// it had.
func (s *Server) Extend(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	n, err := compareAndExpire.Run(ctx, s.rdb, []string{key}, value, ttl.Milliseconds()).Int()
	return n == 1, Outcome(err)
}

// Ping returns an error unless the server answers.
func (s *Server) Ping(ctx context.Context) error { return s.rdb.Ping(ctx).Err() }

// Close ends the connection.
func (s *Server) Close() error { return s.rdb.Close() }

// Outcome marks errors that say that nothing was done: the server answered with
// an error, or was not reached at all.
func Outcome(err error) error {
	if err == nil {
		return nil
	}
	if _, refused := errors.AsType[redis.Error](err); refused || backends.NotDialed(err) {
		return backends.Failed(err)
	}
	return err
}
