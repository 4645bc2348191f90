package mutants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/backends"
)

// etcdStrategy is a queue of keys on etcd: each client waits until its key is the
// oldest. Each acquire has a lease of its own, and the token is the revision at
// which its key was made.
var etcdStrategy = strategy{backend: "etcd", tokens: true, leased: true, open: openEtcd}

const (
	waitOutlivesLease = "wait-outlives-lease"
	queueOrder        = "queue-head-not-compared"
	leftInQueue       = "timed-out-waiter-stays-in-queue"
)

func etcdMutants() []Mutant {
	m := func(kind, name, property, scenario, flaw string, reports ...string) Mutant {
		return Mutant{Name: name, Kind: kind, Flaw: flaw, Reports: reports, Twin: "correct-etcd", Property: property, Scenario: scenario, strategy: etcdStrategy}
	}
	return []Mutant{
		m("K15", waitOutlivesLease, "mutex", "long-wait", "a client that waited does not look whether its lease is still there", "etcd-io/etcd#11456", "etcd-io/etcd#9921"),
		m("K16", leftInQueue, "liveness", "no-fault", "who gives up waiting stays in the queue, and is kept alive there", "redisson/redisson#4595"),
		m("K15", queueOrder, "mutex", "no-fault", "a client that made its key does not look who was before it"),
	}
}

type etcdLock struct {
	flaw string
	ttl  int64 // seconds
	cli  *clientv3.Client
	held map[string]*etcdHold
}

type etcdHold struct {
	key      string
	lease    clientv3.LeaseID
	revision int64
	dog      *watchdog
}

func openEtcd(ctx context.Context, c backends.Config, flaw string) (backends.Client, error) {
	cli, err := clientv3.New(clientv3.Config{Endpoints: c.URLs("etcd"), DialTimeout: 2 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	if _, err := cli.Get(ctx, "ready"); err != nil {
		cli.Close()
		return nil, err
	}
	return &etcdLock{flaw: flaw, ttl: int64((c.TTL + time.Second - 1) / time.Second), cli: cli, held: map[string]*etcdHold{}}, nil
}

func (l *etcdLock) Acquire(ctx context.Context, name string, wait time.Duration) (backends.Grant, error) {
	invoked := time.Now()
	g, err := l.cli.Grant(ctx, l.ttl)
	if err != nil {
		return backends.Grant{}, backends.Failed(err)
	}
	h := &etcdHold{key: fmt.Sprintf("%s/%x", name, g.ID), lease: g.ID}
	put, err := l.cli.Put(ctx, h.key, "", clientv3.WithLease(g.ID))
	if err != nil {
		return backends.Grant{}, l.abandon(ctx, h, err)
	}
	h.revision = put.Header.Revision
	ttl := time.Duration(g.TTL) * time.Second
	renew := func(ctx context.Context) (bool, error) {
		_, err := l.cli.KeepAliveOnce(ctx, h.lease)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	if l.flaw == waitOutlivesLease {
		renew = func(context.Context) (bool, error) { return true, nil }
	}
	h.dog = watch(ttl, invoked, false, renew)
	waiting, cancel := context.WithTimeout(ctx, max(wait, 0))
	defer cancel()
	for {
		first, err := l.first(ctx, name, h)
		if err != nil {
			return backends.Grant{}, l.abandon(ctx, h, err)
		}
		if first {
			break
		}
		select {
		case <-waiting.Done():
			if l.flaw == leftInQueue {
				return backends.Grant{}, backends.ErrBusy
			}
			return backends.Grant{}, l.abandon(ctx, h, backends.ErrBusy)
		case <-h.dog.lost:
			return backends.Grant{}, l.abandon(ctx, h, backends.ErrBusy)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if old := l.held[name]; old != nil {
		old.dog.stop()
	}
	l.held[name] = h
	if l.flaw == waitOutlivesLease {
		return backends.Grant{TTL: time.Since(invoked) + ttl, Token: &h.revision}, nil
	}
	// A renewal says how much is left of the lease after the wait.
	asked := time.Now()
	if stood, err := renew(ctx); err != nil || !stood {
		delete(l.held, name)
		return backends.Grant{}, l.abandon(ctx, h, errors.Join(errors.New("its lease ended while it waited"), err))
	}
	h.dog.extended(asked)
	return backends.Grant{TTL: asked.Sub(invoked) + ttl, Token: &h.revision}, nil
}

// first reports whether the key is the oldest of the lock.
func (l *etcdLock) first(ctx context.Context, name string, h *etcdHold) (bool, error) {
	if l.flaw == queueOrder {
		return true, nil
	}
	r, err := l.cli.Get(ctx, name+"/", append(clientv3.WithFirstCreate(), clientv3.WithPrefix())...)
	if err != nil {
		return false, err
	}
	if l.flaw == waitOutlivesLease {
		// Whoever was before is gone: so it is its turn, it thinks.
		return len(r.Kvs) == 0 || r.Kvs[0].CreateRevision >= h.revision, nil
	}
	return len(r.Kvs) > 0 && string(r.Kvs[0].Key) == h.key, nil
}

// abandon ends the lease of an acquire that failed with err, and says how certain
// that failure is.
func (l *etcdLock) abandon(ctx context.Context, h *etcdHold, err error) error {
	if h.dog != nil {
		h.dog.end()
	}
	if _, revoked := l.cli.Revoke(ctx, h.lease); revoked != nil && !errors.Is(revoked, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("%v; and its lease could not be revoked: %w", err, revoked)
	}
	return backends.Failed(err)
}

func (l *etcdLock) Renew(ctx context.Context, name string) (backends.Grant, error) {
	h := l.held[name]
	if h == nil {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	r, err := l.cli.KeepAliveOnce(ctx, h.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return backends.Grant{}, backends.ErrNotHeld
	}
	if err != nil {
		return backends.Grant{}, err
	}
	h.dog.extended(asked)
	return backends.Grant{TTL: time.Duration(r.TTL) * time.Second}, nil
}

func (l *etcdLock) Release(ctx context.Context, name string) error {
	h := l.held[name]
	if h == nil {
		return backends.ErrNotHeld
	}
	h.dog.end()
	delete(l.held, name)
	r, err := l.cli.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(h.key), "=", h.revision)).Then(clientv3.OpDelete(h.key)).Commit()
	if err != nil {
		return err
	}
	_, _ = l.cli.Revoke(ctx, h.lease) // it holds nothing any more
	if !r.Succeeded {
		return backends.ErrNotHeld
	}
	return nil
}

func (l *etcdLock) Check(_ context.Context, name string) (bool, error) {
	h := l.held[name]
	return h != nil && h.dog.holds(), nil
}

func (l *etcdLock) Lost(name string) <-chan struct{} { return l.held[name].dog.lost }

func (l *etcdLock) Close() error {
	for _, h := range l.held {
		h.dog.stop()
	}
	return l.cli.Close()
}
