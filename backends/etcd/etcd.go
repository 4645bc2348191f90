// Package etcd is locks on an etcd cluster: the mutex and the election of etcd's
// own client library, and the transaction that one writes without it. All of
// them are a key that is attached to a lease, which a session keeps alive.
//
// Every acquire has a session of its own, that is, a lease and a key that no
// other acquire uses. So a session that was lost is never used again, and a late
// release cannot delete the key of a newer grant, as it can when one session
// locks twice (etcd-io/etcd#22082). The fencing token is the create revision of
// the key, which rises from grant to grant.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/backends"
)

// The cluster's timing. etcd grants no lease that is shorter than one and a
// half election timeouts, in whole seconds.
const (
	heartbeat = 50 * time.Millisecond
	election  = 500 * time.Millisecond
	minTTL    = time.Second
)

const defaultNodes = 3

func init() {
	register("etcd", "an etcd cluster: session and mutex of its client library", lockMutex)
}

func register(name, summary string, l locker) {
	backends.Register(backends.Backend{
		Name:    name,
		Summary: summary,
		Servers: servers,
		Nodes:   []int{defaultNodes, 1, 5},
		Open: func(ctx context.Context, c backends.Config) (backends.Client, error) {
			return open(ctx, c, l)
		},
		Observe: observe,
		MinTTL:  func(backends.Options) time.Duration { return minTTL },
		Leased:  true,
		Tokens:  true,

		KeepsAlive: true,
	})
}

func servers(o backends.Options) []backends.Server {
	n := o.Nodes
	if n == 0 {
		n = defaultNodes
	}
	all := make([]backends.Server, n)
	for i := range all {
		all[i] = backends.Server{
			Name:     fmt.Sprintf("etcd-%d", i+1),
			Software: "etcd",
			Options: map[string]string{
				"heartbeat-interval": fmt.Sprint(heartbeat.Milliseconds()),
				"election-timeout":   fmt.Sprint(election.Milliseconds()),
			},
		}
	}
	return all
}

// locker takes the lock named name with the session's lease: it waits for it as
// long as ctx lasts, or if it is not to wait tries once. The error is errBusy
// if the lock is another's. Its owner is whoever has made the key.
type locker func(ctx context.Context, s *concurrency.Session, name string, wait bool) (owner, error)

var errBusy = concurrency.ErrLocked

// owner is the key of a grant, and the revision at which it was made.
type owner struct {
	key      string
	revision int64
}

// is compares: the key is still there, and the same.
func (o owner) is() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(o.key), "=", o.revision)
}

// client is not safe for concurrent use, as backends.Client has it.
type client struct {
	cli  *clientv3.Client
	lock locker
	ttl  int64           // seconds
	held map[string]hold // by key
}

// hold is a grant as the client remembers it.
type hold struct {
	session *concurrency.Session
	owner   owner
}

// dial returns a client of the cluster, which connects when it is first used.
func dial(c backends.Config) (*clientv3.Client, error) {
	urls := c.URLs("etcd")
	if len(urls) == 0 {
		return nil, errors.New("the etcd lock needs an etcd server, got none")
	}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints:   urls,
		DialTimeout: 2 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return cli, nil
}

func open(ctx context.Context, c backends.Config, l locker) (backends.Client, error) {
	if c.TTL <= 0 {
		return nil, fmt.Errorf("the etcd lock needs a TTL, got %v", c.TTL)
	}
	cli, err := dial(c)
	if err != nil {
		return nil, err
	}
	if _, err := cli.Get(ctx, "lockcheck"); err != nil { // a read through consensus: there is a leader
		cli.Close()
		return nil, fmt.Errorf("etcd at %v: %w", cli.Endpoints(), err)
	}
	return &client{
		cli:  cli,
		lock: l,
		ttl:  int64((c.TTL + time.Second - 1) / time.Second),
		held: map[string]hold{},
	}, nil
}

func (c *client) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	invoked := time.Now()
	lease, err := c.cli.Grant(ctx, c.ttl)
	if err != nil {
		return backends.Grant{}, backends.Failed(err) // a lease alone locks nothing
	}
	session, err := concurrency.NewSession(c.cli, concurrency.WithLease(lease.ID))
	if err != nil {
		return backends.Grant{}, backends.Failed(err)
	}
	promised := time.Duration(lease.TTL) * time.Second
	o, err := c.take(ctx, session, key, wait)
	if err != nil {
		return backends.Grant{}, c.abandon(ctx, session, err)
	}
	if since := time.Since(invoked); since > promised/2 {
		// How much of the lease was left when the wait ended is not known,
		// but after a renewal it is.
		renewed := time.Now()
		r, err := c.cli.KeepAliveOnce(ctx, lease.ID)
		if err != nil {
			return backends.Grant{}, c.abandon(ctx, session, err)
		}
		promised = renewed.Sub(invoked) + time.Duration(r.TTL)*time.Second
	}
	if h, ok := c.held[key]; ok {
		h.session.Orphan() // it was lost, or there would be no second grant
	}
	c.held[key] = hold{session, o}
	return backends.Grant{Token: &o.revision, TTL: promised}, nil
}

// take takes the lock, and waits for no longer than wait and its session last.
func (c *client) take(ctx context.Context, session *concurrency.Session, key string, wait time.Duration) (owner, error) {
	if wait <= 0 {
		return c.lock(ctx, session, key, false)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	stop := context.AfterFunc(session.Ctx(), cancel)
	defer stop()
	o, err := c.lock(waiting, session, key, true)
	if err == nil || ctx.Err() != nil {
		return o, err
	}
	if errors.Is(waiting.Err(), context.DeadlineExceeded) {
		return owner{}, errBusy
	}
	return owner{}, err
}

// abandon ends the session of an acquire that failed with err, and says how
// certain that failure is: if its lease is gone, nothing is left of it. Else the
// server ends it after the TTL, since nothing keeps it alive.
func (c *client) abandon(ctx context.Context, session *concurrency.Session, err error) error {
	session.Orphan()
	if ctx.Err() != nil {
		return err
	}
	_, revoked := c.cli.Revoke(ctx, session.Lease())
	if revoked != nil && !errors.Is(revoked, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("%v; and its lease could not be revoked: %w", err, revoked)
	}
	if errors.Is(err, errBusy) {
		return backends.ErrBusy
	}
	return backends.Failed(err)
}

// Renew extends the lease now; the session does so by itself every third of it.
func (c *client) Renew(ctx context.Context, key string) (backends.Grant, error) {
	h, ok := c.held[key]
	if !ok {
		return backends.Grant{}, backends.ErrNotHeld
	}
	r, err := c.cli.KeepAliveOnce(ctx, h.session.Lease())
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return backends.Grant{}, backends.ErrNotHeld
	}
	if err != nil {
		return backends.Grant{}, err
	}
	return backends.Grant{Token: &h.owner.revision, TTL: time.Duration(r.TTL) * time.Second}, nil
}

func (c *client) Release(ctx context.Context, key string) error {
	return release(ctx, c.cli, c.held, key)
}

// release ends a hold that is among those held, and takes it from them. Only the
// key of this very grant is deleted, and it is known whether it was still there. The
// library's Unlock deletes by name, and neither that nor Resign can tell.
func release(ctx context.Context, cli *clientv3.Client, held map[string]hold, key string) error {
	h, ok := held[key]
	if !ok {
		return backends.ErrNotHeld
	}
	r, err := cli.Txn(ctx).If(h.owner.is()).Then(clientv3.OpDelete(h.owner.key)).Commit()
	if err != nil {
		return err // the session is kept: releasing again is safe
	}
	delete(held, key)
	h.session.Orphan()
	// The lease holds nothing any more: if it is not revoked it runs out.
	_, _ = cli.Revoke(ctx, h.session.Lease())
	if !r.Succeeded {
		return backends.ErrNotHeld
	}
	return nil
}

// Check says whether the session is alive as far as the library knows.
func (c *client) Check(_ context.Context, key string) (bool, error) {
	h, ok := c.held[key]
	if !ok {
		return false, nil
	}
	select {
	case <-h.session.Done():
		return false, nil
	default:
		return true, nil
	}
}

// Lost is closed when the library knows that the session has ended.
func (c *client) Lost(key string) <-chan struct{} { return c.held[key].session.Done() }

func (c *client) Close() error { return c.cli.Close() }
