// Command etcd tests the mutex of go.etcd.io/etcd/client/v3/concurrency.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockcheck/lockcheck/clients/go/adapter"
)

func main() {
	adapter.Main(adapter.Adapter{
		Name: "etcd-concurrency", Module: "go.etcd.io/etcd/client/v3",
		Capabilities: []string{"wait", "token", "lease", "lost"},
		Open:         open,
	})
}

type lock struct {
	client *clientv3.Client
	ttl    int // seconds
	held   map[string]*held
}

type held struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func open(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.URLs, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	return &lock{client, int(math.Ceil(c.TTL.Seconds())), map[string]*held{}}, nil
}

func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	s, err := concurrency.NewSession(l.client, concurrency.WithTTL(l.ttl))
	if err != nil {
		return adapter.Grant{}, err
	}
	h := &held{s, concurrency.NewMutex(s, key)}
	if wait == 0 {
		err = h.mutex.TryLock(ctx)
	} else {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		err = h.mutex.Lock(ctx)
	}
	if err != nil {
		// With the session goes the place in the queue: then it is certain.
		closed := s.Close()
		if closed == nil && (errors.Is(err, concurrency.ErrLocked) || errors.Is(err, context.DeadlineExceeded)) {
			return adapter.Grant{}, fmt.Errorf("%w: %w", adapter.ErrBusy, err)
		}
		return adapter.Grant{}, errors.Join(err, closed)
	}
	r, err := l.client.Get(ctx, h.mutex.Key())
	if err != nil || len(r.Kvs) == 0 {
		return adapter.Grant{}, errors.Join(err, s.Close(), errors.New("granted, and lost before its revision was read"))
	}
	l.held[key] = h
	// The library renews the lease by itself; how much is left of it when a
	// wait ends it does not say.
	g := adapter.Grant{Token: r.Kvs[0].CreateRevision, Lost: s.Done()}
	if wait == 0 {
		g.Lease = time.Duration(l.ttl) * time.Second
	}
	return g, nil
}

func (l *lock) Release(ctx context.Context, key string) error {
	if !l.Check(key) {
		delete(l.held, key)
		return adapter.ErrNotHeld
	}
	h := l.held[key]
	delete(l.held, key)
	return errors.Join(h.mutex.Unlock(ctx), h.session.Close())
}

func (l *lock) Check(key string) bool {
	h := l.held[key]
	if h == nil {
		return false
	}
	select {
	case <-h.session.Done():
		return false
	default:
		return true
	}
}
