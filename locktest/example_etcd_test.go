package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockcheck/lockcheck/locktest"
)

// A lock on etcd, whose grants carry fencing tokens and which learns of its
// loss.
func ExampleRun_etcd() {
	// In a test, which has it:
	var t *testing.T

	locktest.Run(t, locktest.Config{
		Lock:      newEtcdLock,
		Servers:   locktest.Etcd,
		Scenarios: []string{"no-fault", "frozen-holder"},
		TTL:       2 * time.Second, // etcd counts in seconds
	})
}

type etcdLock struct {
	client *clientv3.Client
	ttl    int // seconds
	held   map[string]etcdHold
}

type etcdHold struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func newEtcdLock(_ context.Context, env locktest.Env) (locktest.Lock, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: env.URLs, DialTimeout: 5 * time.Second})
	return &etcdLock{c, int(math.Ceil(env.TTL.Seconds())), map[string]etcdHold{}}, err
}

func (l *etcdLock) Acquire(ctx context.Context, key string, wait time.Duration) error {
	s, err := concurrency.NewSession(l.client, concurrency.WithTTL(l.ttl))
	if err != nil {
		return err
	}
	m := concurrency.NewMutex(s, key)
	if wait == 0 {
		err = m.TryLock(ctx)
	} else {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err = m.Lock(ctx)
	}
	if err == nil {
		l.held[key] = etcdHold{s, m}
		return nil
	}
	closed := s.Close() // and with the session goes the place in the queue
	if closed == nil && (errors.Is(err, concurrency.ErrLocked) || errors.Is(err, context.DeadlineExceeded)) {
		return fmt.Errorf("%w: %w", locktest.ErrBusy, err)
	}
	return errors.Join(err, closed)
}

func (l *etcdLock) Release(ctx context.Context, key string) error {
	h := l.held[key]
	select {
	case <-h.session.Done():
		return locktest.ErrNotHeld
	default:
		return errors.Join(h.mutex.Unlock(ctx), h.session.Close())
	}
}

// Token is the revision of etcd at which the lock was granted.
func (l *etcdLock) Token(key string) int64 { return l.held[key].mutex.Header().Revision }

func (l *etcdLock) Lost(key string) <-chan struct{} { return l.held[key].session.Done() }

func (l *etcdLock) Close() error { return l.client.Close() }
