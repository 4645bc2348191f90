package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

// observer reads whose value the key has: values begin with the client's name.
type observer struct{ *Server }

func observe(_ context.Context, c backends.Config) (backends.Observer, error) {
	urls := c.URLs("redis")
	if len(urls) != 1 {
		return nil, fmt.Errorf("the redis observer needs one redis server, got %d", len(urls))
	}
	s, err := Dial(urls[0])
	if err != nil {
		return nil, err
	}
	return observer{s}, nil
}

func (o observer) Holder(ctx context.Context, key string) (backends.Holder, error) {
	value, err := o.rdb.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return backends.Holder{}, nil
	}
	if err != nil {
		return backends.Holder{}, fmt.Errorf("observe %s: %w", key, err)
	}
	process, _, _ := strings.Cut(value, ":")
	return backends.Holder{Process: process}, nil
}
