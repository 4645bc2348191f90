package deploy

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

func redisPut(t *testing.T) func(url string) error {
	return func(url string) error {
		return redisClient(t, url).Set(t.Context(), "k", "v", 0).Err()
	}
}

func redisGet(t *testing.T) func(url string) (bool, error) {
	return func(url string) (bool, error) {
		n, err := redisClient(t, url).Exists(t.Context(), "k").Result()
		return n == 1, err
	}
}

func redisClient(t *testing.T, url string) *goredis.Client {
	t.Helper()
	o, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRedis(t *testing.T) {
	need(t, "redis")
	t.Run("without persistence", func(t *testing.T) {
		l := newLocal(t, nil)
		n := start(t, l, one("redis"))[0]
		lifecycle(t, l, n, redisPut(t), redisGet(t), false)
	})
	t.Run("append only", func(t *testing.T) {
		l := newLocal(t, nil)
		n := start(t, l, one("redis", "appendonly", "yes", "appendfsync", "always", "save", "900 1"))[0]
		lifecycle(t, l, n, redisPut(t), redisGet(t), true)
	})
}

func TestRedisOfAnotherProcessIsNotReady(t *testing.T) {
	need(t, "redis")
	l := newLocal(t, nil)
	n := start(t, l, one("redis"))[0]
	pid := pids(t, n)[0]
	r := n.body.(*process).program
	if err := r.ready(t.Context(), pid); err != nil {
		t.Errorf("ready = %v", err)
	}
	if err := r.ready(t.Context(), pid+1); err == nil {
		t.Error("it is ready as a process that it is not")
	}
}
