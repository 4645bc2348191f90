package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// lockMutex is concurrency.Mutex: waiters queue, and each watches only the one
// before it.
func lockMutex(ctx context.Context, s *concurrency.Session, name string, wait bool) (owner, error) {
	m := concurrency.NewMutex(s, name)
	lock := m.TryLock
	if wait {
		lock = m.Lock
	}
	if err := lock(ctx); err != nil {
		return owner{}, err
	}
	// The library tells the create revision only in the comparison that is
	// for guarding writes.
	is := m.IsOwner()
	revision := is.GetCompare().GetCreateRevision()
	if revision <= 0 {
		return owner{}, fmt.Errorf("etcd's client library states no create revision for key %s", m.Key())
	}
	return owner{m.Key(), revision}, nil
}
