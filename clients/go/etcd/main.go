// Command etcd tests the mutex of go.etcd.io/etcd/client/v3/concurrency. With
// -retry-unlock an Unlock that got no answer is done again at the next check, and
// with -one-session all mutexes of a client share its session: both were
// reported to break the lock together.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockcheck/lockcheck/clients/go/adapter"
)

func main() {
	one := flag.Bool("one-session", false, "use one session for all mutexes")
	retry := flag.Bool("retry-unlock", false, "do an Unlock that got no answer again, at the next check")
	flag.Parse()
	name := "etcd-concurrency"
	if *one {
		name += " -one-session"
	}
	if *retry {
		name += " -retry-unlock"
	}
	adapter.Main(adapter.Adapter{
		Name: name, Module: "go.etcd.io/etcd/client/v3",
		Capabilities: []string{"wait", "token", "lease", "lost"},
		Open: func(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
			return open(c, *one, *retry)
		},
	})
}

type lock struct {
	client *clientv3.Client
	ttl    int // seconds
	held   map[string]*held

	one    bool                          // all mutexes share a session
	shared *concurrency.Session          // nil until it is needed
	retry  bool                          // what is in undone is unlocked again
	undone map[string]*concurrency.Mutex // its Unlock got no answer
}

type held struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func open(c adapter.Config, one, retry bool) (adapter.Lock, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.URLs, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	return &lock{
		client: client, ttl: int(math.Ceil(c.TTL.Seconds())), held: map[string]*held{},
		one: one, retry: retry, undone: map[string]*concurrency.Mutex{},
	}, nil
}

// session returns a new session, or the one that all mutexes share.
func (l *lock) session() (*concurrency.Session, error) {
	if l.shared != nil {
		return l.shared, nil
	}
	s, err := concurrency.NewSession(l.client, concurrency.WithTTL(l.ttl))
	if l.one {
		l.shared = s
	}
	return s, err
}

// end closes a session, unless others use it.
func (l *lock) end(s *concurrency.Session) error {
	if l.one {
		return nil
	}
	return s.Close()
}

func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	s, err := l.session()
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
		closed := l.end(s)
		if closed == nil && (errors.Is(err, concurrency.ErrLocked) || errors.Is(err, context.DeadlineExceeded)) {
			return adapter.Grant{}, fmt.Errorf("%w: %w", adapter.ErrBusy, err)
		}
		return adapter.Grant{}, errors.Join(err, closed)
	}
	r, err := l.client.Get(ctx, h.mutex.Key())
	if err != nil || len(r.Kvs) == 0 {
		return adapter.Grant{}, errors.Join(err, l.end(s), errors.New("granted, and lost before its revision was read"))
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
	if !l.holds(key) {
		delete(l.held, key)
		return adapter.ErrNotHeld
	}
	h := l.held[key]
	delete(l.held, key)
	err := h.mutex.Unlock(ctx)
	if err != nil && l.retry {
		l.undone[key] = h.mutex
		return err
	}
	return errors.Join(err, l.end(h.session))
}

func (l *lock) Check(key string) bool {
	if m := l.undone[key]; m != nil {
		delete(l.undone, key)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = m.Unlock(ctx)
	}
	return l.holds(key)
}

func (l *lock) holds(key string) bool {
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
