package redis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

// Two releases that many clients have, and that are wrong: they do not compare
// and delete in one step.
func init() {
	const apart = "its release is wrong on purpose, which is what it is here to show"
	registerApart("redis-del", apart, "one Redis server: SET NX PX, and a release that deletes the key whoever has it", openDel)
	registerApart("redis-get-del", apart, "one Redis server: SET NX PX, and a release that gets the key, compares, then deletes it", openGetDel)
}

func registerApart(name, apart, summary string, open func(context.Context, backends.Config) (backends.Client, error)) {
	b := lock(name, summary, single(nil), open, observe)
	b.Apart = apart
	backends.Register(b)
}

func openDel(ctx context.Context, c backends.Config) (backends.Client, error) {
	return openAround(ctx, c, func(s *Server) server { return plainDelete{s} })
}

func openGetDel(ctx context.Context, c backends.Config) (backends.Client, error) {
	return openAround(ctx, c, func(s *Server) server { return getThenDelete{s} })
}

// plainDelete is a server whose Delete does not compare.
type plainDelete struct{ *Server }

// Delete deletes key, whatever its value.
func (s plainDelete) Delete(ctx context.Context, key, _ string) (bool, error) {
	n, err := s.rdb.Del(ctx, key).Result()
	return n == 1, Outcome(err)
}

// getThenDelete is a server whose Delete compares in a step of its own.
type getThenDelete struct{ *Server }

// Delete deletes key if it had the value a moment before.
func (s getThenDelete) Delete(ctx context.Context, key, value string) (bool, error) {
	has, err := s.rdb.Get(ctx, key).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return false, nil
	case err != nil:
		return false, Outcome(err)
	case has != value:
		return false, nil
	}
	return plainDelete(s).Delete(ctx, key, value)
}
