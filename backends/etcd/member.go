package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockcheck/lockcheck/backends"
)

// Clients as Jepsen's were when it tested etcd 3.4.3: each talks to one member alone,
// grants itself a lease, keeps that alive, and queues with a key. The rule of that day
// was that who sees all earlier keys go has the lock; since 3.4.4 it looks whether its
// own key is still there. They are here to repeat what was published.
func init() {
	registerMember("etcd-member", "etcd's mutex by one member alone, with the rule of today: after the wait the client's own key must be there", true)
	registerMember("etcd-member-unchecked", "etcd's mutex by one member alone, with the rule until 3.4.3: after the wait nobody looks at the client's own key", false)
}

func registerMember(name, summary string, checked bool) {
	backends.Register(backends.Backend{
		Name:    name,
		Summary: summary,
		Apart:   "it is a client as it was tested once, to repeat what was published",
		Servers: servers,
		Nodes:   []int{defaultNodes, 1, 5},
		Open: func(ctx context.Context, c backends.Config) (backends.Client, error) {
			return openMember(ctx, c, checked)
		},
		MinTTL: func(backends.Options) time.Duration { return minTTL },
		Leased: true,
		Tokens: true,
	})
}

// member is a client of one member. It is not safe for concurrent use.
type member struct {
	cli     *clientv3.Client
	ttl     int64 // seconds
	checked bool
	held    map[string]hold // by key
}

func openMember(ctx context.Context, c backends.Config, checked bool) (backends.Client, error) {
	var members []backends.Endpoint
	for _, s := range c.Servers {
		if s.Software == "etcd" {
			members = append(members, s)
		}
	}
	if len(members) > 0 {
		at := 0 // by its name: c1 and c4 of five clients share a member, and c2 and c5
		for _, b := range []byte(c.Process) {
			at += int(b)
		}
		members = members[at%len(members):][:1]
	}
	c.Servers = members
	cli, err := dial(c)
	if err != nil {
		return nil, err
	}
	if _, err := cli.Get(ctx, "lockcheck"); err != nil {
		cli.Close()
		return nil, fmt.Errorf("etcd at %v: %w", cli.Endpoints(), err)
	}
	return &member{cli: cli, ttl: int64((c.TTL + time.Second - 1) / time.Second), checked: checked, held: map[string]hold{}}, nil
}

func (m *member) Acquire(ctx context.Context, name string, wait time.Duration) (backends.Grant, error) {
	lease, err := m.cli.Grant(ctx, m.ttl)
	if err != nil {
		return backends.Grant{}, backends.Failed(err) // a lease alone locks nothing
	}
	session, err := concurrency.NewSession(m.cli, concurrency.WithLease(lease.ID))
	if err != nil {
		return backends.Grant{}, backends.Failed(err)
	}
	waiting, cancel := context.WithTimeout(ctx, max(wait, time.Second))
	defer cancel()
	o, err := m.queue(waiting, name, lease.ID)
	if err != nil {
		session.Orphan()
		// With its lease goes its place in the queue. If it cannot be revoked, it ends
		// after the TTL.
		_, revoked := m.cli.Revoke(ctx, lease.ID)
		switch {
		case revoked != nil:
			return backends.Grant{}, err
		case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errBusy):
			return backends.Grant{}, backends.ErrBusy
		}
		return backends.Grant{}, backends.Failed(err)
	}
	m.held[name] = hold{session, o}
	// How much of the lease is left is not told: nobody asked.
	return backends.Grant{Token: &o.revision}, nil
}

// queue makes a key, and waits until all that were made before it are gone.
func (m *member) queue(ctx context.Context, name string, lease clientv3.LeaseID) (owner, error) {
	prefix := name + "/"
	key := fmt.Sprintf("%s%x", prefix, lease)
	put, err := m.cli.Put(ctx, key, "", clientv3.WithLease(lease))
	if err != nil {
		return owner{}, err
	}
	o := owner{key, put.Header.Revision}
	for {
		before, err := m.cli.Get(ctx, prefix, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(o.revision-1))...)
		if err != nil {
			return owner{}, err
		}
		if len(before.Kvs) == 0 {
			break
		}
		if err := m.gone(ctx, string(before.Kvs[0].Key), before.Header.Revision); err != nil {
			return owner{}, err
		}
	}
	if !m.checked {
		return o, nil
	}
	own, err := m.cli.Get(ctx, key)
	if err != nil {
		return owner{}, err
	}
	if len(own.Kvs) == 0 {
		return owner{}, concurrency.ErrSessionExpired
	}
	return o, nil
}

// gone waits until the key is deleted, after the revision.
func (m *member) gone(ctx context.Context, key string, revision int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for w := range m.cli.Watch(ctx, key, clientv3.WithRev(revision+1)) {
		if err := w.Err(); err != nil {
			return err
		}
		for _, e := range w.Events {
			if e.Type == mvccpb.DELETE {
				return nil
			}
		}
	}
	return errors.Join(ctx.Err(), errors.New("the watch ended"))
}

func (m *member) Release(ctx context.Context, name string) error {
	return release(ctx, m.cli, m.held, name)
}

func (m *member) Close() error { return m.cli.Close() }
