package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func init() {
	register("etcd-lease", "a key with a lease on an etcd cluster, made by a transaction if it is not there", lockKey)
}

// lockKey is the lock that one writes by hand, as with etcdctl: lease grant, a
// transaction that puts the key if its create revision is 0, lease keep-alive.
// Waiters watch the key itself: its deletion wakes all of them.
func lockKey(ctx context.Context, s *concurrency.Session, name string, wait bool) (owner, error) {
	c := s.Client()
	for {
		r, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
			Then(clientv3.OpPut(name, fmt.Sprintf("%x", s.Lease()), clientv3.WithLease(s.Lease()))).
			Commit()
		switch {
		case err != nil:
			return owner{}, err
		case r.Succeeded:
			return owner{name, r.Header.Revision}, nil
		case !wait:
			return owner{}, errBusy
		}
		if err := deleted(ctx, c, name, r.Header.Revision+1); err != nil {
			return owner{}, err
		}
	}
}

// deleted waits until a key is deleted, at a revision or later.
func deleted(ctx context.Context, c *clientv3.Client, key string, revision int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch
	for r := range c.Watch(ctx, key, clientv3.WithRev(revision), clientv3.WithFilterPut()) {
		if err := r.Err(); err != nil {
			return err
		}
		if len(r.Events) > 0 {
			return nil
		}
	}
	return fmt.Errorf("the watch of %s ended: %w", key, context.Cause(ctx))
}
