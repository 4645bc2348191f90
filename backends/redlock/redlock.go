// Package redlock is the lock on several independent Redis primaries, five
// unless asked otherwise: the algorithm of
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#the-redlock-algorithm.
//
// An acquire sets the key to one random value at each server in turn, with a
// timeout for each that is short against the lease. It succeeds if a majority
// of the servers that are configured, whether they answer or not, has set it
// in less time than the lease lasts; what is left of the lease then, less an
// allowance for clocks that drift, is for how long the client believes that it
// holds. Otherwise it deletes its value everywhere, also where it seems not to
// be set, and tries again after a random time. There are no fencing tokens.
package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/redis"
)

const defaultNodes = 5

func init() {
	backends.Register(backends.Backend{
		Name:    "redlock",
		Summary: "five independent Redis servers: the Redlock algorithm",
		Servers: servers,
		Nodes:   []int{defaultNodes, 3, 7},
		Open:    open,
		MinTTL:  func(backends.Options) time.Duration { return minTTL },
		Leased:  true,

		Deadline: true,
	})
}

func servers(o backends.Options) []backends.Server {
	n := o.Nodes
	if n == 0 {
		n = defaultNodes
	}
	all := make([]backends.Server, n)
	for i := range all {
		all[i] = backends.Server{Name: fmt.Sprintf("redis-%d", i+1), Software: "redis"}
	}
	return all
}

// minTTL leaves something after the allowance for drift and the timeouts of a
// minority.
const minTTL = 200 * time.Millisecond

// Timeouts of one server's answer: a twentieth of the lease, in these bounds.
const (
	minTimeout = 30 * time.Millisecond
	maxTimeout = 500 * time.Millisecond
)

// Waits between tries: random, so that clients which split the servers among
// them do not meet again.
const (
	minRetry = 5 * time.Millisecond
	maxRetry = 50 * time.Millisecond
)

// quorum is how many of n configured servers are a majority.
func quorum(n int) int { return n/2 + 1 }

// drift is the allowance for clocks that run at different rates: one percent of
// the lease, and two milliseconds for the precision of Redis' expiry.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// validity is how long a lease can still be relied on, elapsed after the first
// request for it was sent; it is not positive if the lease is lost.
func validity(ttl, elapsed time.Duration) time.Duration { return ttl - elapsed - drift(ttl) }

// server is one of the servers, see [redis.Server].
type server interface {
	Set(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	Delete(ctx context.Context, key, value string) (bool, error)
	Extend(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	Close() error
}

// client is not safe for concurrent use, as backends.Client has it.
type client struct {
	servers []server
	ttl     time.Duration
	timeout time.Duration
	now     func() time.Time
	held    map[string]hold // by key
}

// hold is a grant as the client remembers it.
type hold struct {
	value string
	until time.Time // of its validity
}

// open does not connect: a server that is down must not lessen the number of
// which a majority is needed (SPSCommerce/redlock-py#6).
func open(_ context.Context, c backends.Config) (backends.Client, error) {
	urls := c.URLs("redis")
	if len(urls) == 0 {
		return nil, errors.New("redlock needs redis servers, got none")
	}
	if c.TTL < minTTL {
		return nil, fmt.Errorf("redlock needs a TTL of at least %v, got %v", minTTL, c.TTL)
	}
	l := newClient(c.TTL.Truncate(time.Millisecond), nil, time.Now)
	for _, u := range urls {
		s, err := redis.Dial(u)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.servers = append(l.servers, s)
	}
	return l, nil
}

func newClient(ttl time.Duration, servers []server, now func() time.Time) *client {
	return &client{
		servers: servers,
		ttl:     ttl,
		timeout: min(max(ttl/20, minTimeout), maxTimeout),
		now:     now,
		held:    map[string]hold{},
	}
}

// Acquire tries until it succeeds or wait has passed, also while too few
// servers answer: they may come back. If one of the tries may have left the
// lock behind, the outcome is unknown.
func (c *client) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	invoked := c.now()
	var doubt error
	for {
		tried := c.now()
		g, err := c.try(ctx, key)
		if err == nil {
			g.TTL += tried.Sub(invoked)
			return g, nil
		}
		if !backends.IsFailed(err) {
			doubt = err
		}
		if left := wait - c.now().Sub(invoked); left > 0 {
			select {
			case <-time.After(min(left, minRetry+mathrand.N(maxRetry-minRetry))):
				continue
			case <-ctx.Done():
			}
		}
		if doubt != nil {
			err = doubt
		}
		return backends.Grant{}, err
	}
}

// try is one round of the algorithm.
func (c *client) try(ctx context.Context, key string) (backends.Grant, error) {
	value := rand.Text()
	start := c.now()
	set := newRound(len(c.servers))
	for i, s := range c.servers {
		yes, err := c.ask(ctx, func(ctx context.Context) (bool, error) { return s.Set(ctx, key, value, c.ttl) })
		set.add(i, yes, err)
	}
	elapsed := c.now().Sub(start)
	valid := validity(c.ttl, elapsed)
	n := len(c.servers)
	if set.yes >= quorum(n) && valid > 0 {
		c.held[key] = hold{value, start.Add(elapsed + valid)}
		return backends.Grant{TTL: c.ttl - drift(c.ttl), Valid: valid}, nil
	}
	deleted := c.deleteAll(ctx, key, value)
	left := 0 // servers that may have the value
	for i := range n {
		// A value whose arrival is not known may come after its deletion.
		if set.answers[i] == unknown && deleted.answers[i] != yes || set.answers[i] == yes && deleted.answers[i] == unknown {
			left++
		}
	}
	switch {
	case left >= quorum(n):
		return backends.Grant{}, fmt.Errorf("not granted, but %d of %d servers may have the value until it expires: %v", left, n, errors.Join(set.err, deleted.err))
	case set.yes >= quorum(n):
		return backends.Grant{}, backends.Failed(fmt.Errorf("it took %v to be granted a lease of %v: too late to rely on it", elapsed, c.ttl))
	case set.no > 0:
		return backends.Grant{}, backends.ErrBusy
	default:
		return backends.Grant{}, backends.Failed(fmt.Errorf("%d of %d servers granted it: %w", set.yes, n, set.err))
	}
}

// answer is what became of a request to one server.
type answer byte

const (
	unknown answer = iota // none came, or not in time
	yes
	no
	failed // it was certainly not done
)

// round is the answers of the servers.
type round struct {
	answers []answer // by server
	yes, no int      // how many of them
	err     error    // one of those there were
}

func newRound(n int) round { return round{answers: make([]answer, n)} }

func (r *round) add(server int, done bool, err error) {
	switch {
	case err != nil:
		r.err = err
		if backends.IsFailed(err) {
			r.answers[server] = failed
		}
	case done:
		r.yes++
		r.answers[server] = yes
	default:
		r.no++
		r.answers[server] = no
	}
}

// ask has one server do something within its timeout.
func (c *client) ask(ctx context.Context, f func(context.Context) (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return f(ctx)
}

// askAll asks all servers at once.
func (c *client) askAll(ctx context.Context, f func(context.Context, server) (bool, error)) round {
	r := newRound(len(c.servers))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, s := range c.servers {
		wg.Go(func() {
			done, err := c.ask(ctx, func(ctx context.Context) (bool, error) { return f(ctx, s) })
			mu.Lock()
			defer mu.Unlock()
			r.add(i, done, err)
		})
	}
	wg.Wait()
	return r
}

// deleteAll deletes the value at all servers, also when ctx has ended: that is
// often the reason for it. Where a deletion failed the value may well be.
func (c *client) deleteAll(ctx context.Context, key, value string) round {
	r := c.askAll(context.WithoutCancel(ctx), func(ctx context.Context, s server) (bool, error) {
		return s.Delete(ctx, key, value)
	})
	for i, a := range r.answers {
		if a == failed {
			r.answers[i] = unknown
		}
	}
	return r
}

// Renew extends the lease at a majority. If there is none, the old lease stands
// until its end.
func (c *client) Renew(ctx context.Context, key string) (backends.Grant, error) {
	h, ok := c.held[key]
	if !ok {
		return backends.Grant{}, backends.ErrNotHeld
	}
	start := c.now()
	r := c.askAll(ctx, func(ctx context.Context, s server) (bool, error) { return s.Extend(ctx, key, h.value, c.ttl) })
	elapsed := c.now().Sub(start)
	valid := validity(c.ttl, elapsed)
	switch n := len(c.servers); {
	case r.yes >= quorum(n) && valid > 0:
		c.held[key] = hold{h.value, start.Add(elapsed + valid)}
		return backends.Grant{TTL: c.ttl - drift(c.ttl), Valid: valid}, nil
	case n-r.no < quorum(n):
		delete(c.held, key)
		return backends.Grant{}, backends.ErrNotHeld
	default:
		return backends.Grant{}, fmt.Errorf("%d of %d servers extended the lease, after %v: %v", r.yes, n, elapsed, r.err)
	}
}

// Release deletes the value at all servers. The lock was held if a majority had
// it.
func (c *client) Release(ctx context.Context, key string) error {
	h, ok := c.held[key]
	if !ok {
		return backends.ErrNotHeld
	}
	r := c.deleteAll(ctx, key, h.value)
	switch n := len(c.servers); {
	case r.yes >= quorum(n):
		delete(c.held, key)
		return nil
	case n-r.no < quorum(n):
		delete(c.held, key)
		return backends.ErrNotHeld
	default: // the value is kept: releasing again is safe
		return fmt.Errorf("%d of %d servers deleted the key, %d had another or none: %v", r.yes, n, r.no, r.err)
	}
}

// Check says whether the validity lasts by the client's own clock, as of now.
func (c *client) Check(_ context.Context, key string) (bool, error) {
	h, ok := c.held[key]
	return ok && c.now().Before(h.until), nil
}

func (c *client) Close() error {
	var errs []error
	for _, s := range c.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
