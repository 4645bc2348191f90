package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/backends"
)

// bareSide is a loop of a client library alone.
type bareSide interface {
	side
	close() error
}

// Bare are the backends of which there is a bare loop.
func Bare() []string { return []string{"redis", "etcd"} }

func openBare(b *bed, clients int) (bareSide, error) {
	switch b.subject.Backend {
	case "redis":
		return openBareRedis(b.at, clients)
	case "etcd":
		return openBareEtcd(b.at, clients)
	}
	return nil, fmt.Errorf("there is no bare loop for it")
}

// bareRedis is what documentation has for a lock on one server, by go-redis: SET NX PX,
// and a script that compares and deletes.
type bareRedis []*redis.Client

var compareAndDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

func openBareRedis(at []backends.Endpoint, clients int) (bareSide, error) {
	var all bareRedis
	for range clients {
		o, err := redis.ParseURL(at[0].URL) // the library keeps what it is given
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		o.DisableIdentity = true
		all = append(all, redis.NewClient(o))
	}
	return all, nil
}

func (b bareRedis) section(ctx context.Context, n int) error {
	key, value := "bare-"+strconv.Itoa(n), "value"
	set, err := b[n].SetNX(ctx, key, value, ttl).Result()
	if err != nil || !set {
		return errors.Join(err, fmt.Errorf("the lock was granted: %v", set))
	}
	return compareAndDelete.Run(ctx, b[n], []string{key}, value).Err()
}

func (b bareRedis) close() error {
	var errs []error
	for _, c := range b {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// bareEtcd is session and mutex of etcd's client library: each acquire has a session of
// its own, as in the backend.
type bareEtcd []*clientv3.Client

func openBareEtcd(at []backends.Endpoint, clients int) (bareSide, error) {
	var urls []string
	for _, e := range at {
		urls = append(urls, e.URL)
	}
	var all bareEtcd
	for range clients {
		c, err := clientv3.New(clientv3.Config{Endpoints: urls, DialTimeout: 2 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, c)
	}
	return all, nil
}

func (b bareEtcd) section(ctx context.Context, n int) error {
	s, err := concurrency.NewSession(b[n], concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return err
	}
	m := concurrency.NewMutex(s, "bare-"+strconv.Itoa(n))
	if err := m.TryLock(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return errors.Join(m.Unlock(ctx), s.Close())
}

func (b bareEtcd) close() error {
	var errs []error
	for _, c := range b {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
