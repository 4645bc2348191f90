package mutants

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

// redlockStrategy is the Redlock algorithm on five Redis servers. Its client keeps
// a deadline, and sends a notice when that has passed.
var redlockStrategy = strategy{backend: "redlock", leased: true, open: openRedlock}

const (
	quorumReachable = "quorum-of-reachable-nodes"
	quorumTooSmall  = "quorum-without-majority"
	quorumFirst     = "first-node-that-answers"
	redlockElapsed  = "redlock-elapsed-time-not-counted"
)

func redlockMutants() []Mutant {
	m := func(kind, name, property, scenario, flaw string, reports ...string) Mutant {
		return Mutant{Name: name, Kind: kind, Flaw: flaw, Reports: reports, Twin: "correct-redlock", Property: property, Scenario: scenario, strategy: redlockStrategy}
	}
	return []Mutant{
		m("K10", quorumReachable, "mutex", "cut-acquirer", "the majority is one of the nodes that answer", "SPSCommerce/redlock-py#6"),
		m("K6", quorumTooSmall, "mutex", "cut-acquirer", "two of five nodes are enough, so that two clients can have them", "go-redsync/redsync#186"),
		m("K5", quorumFirst, "mutex", "cut-acquirer", "the first node that answers is enough, as after a failover without its state", "sibson/redbeat#163"),
		m("K10", redlockElapsed, "mutex", "slow-grant", "the time that the acquire took is not taken off its validity", "SPSCommerce/redlock-py#3"),
	}
}

type redlock struct {
	flaw string
	ttl  time.Duration
	rdbs []*redis.Client
	held map[string]*redisHold
}

func openRedlock(ctx context.Context, c backends.Config, flaw string) (backends.Client, error) {
	l := &redlock{flaw: flaw, ttl: c.TTL, held: map[string]*redisHold{}}
	for _, url := range c.URLs("redis") {
		rdb, err := newRedis(url)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		_ = rdb.Ping(ctx).Err() // connects; one node may be down
		l.rdbs = append(l.rdbs, rdb)
	}
	if len(l.rdbs) == 0 {
		return nil, errors.New("it needs redis servers")
	}
	return l, nil
}

// answers is how many nodes did what they were asked, and how many answered.
type answers struct{ yes, all int }

// ask asks all nodes at once. None may take longer than a sixth of the lease,
// except with the flaw that shows only when they do.
func (l *redlock) ask(ctx context.Context, f func(context.Context, *redis.Client) (bool, error)) answers {
	if l.flaw != redlockElapsed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.ttl/6)
		defer cancel()
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var a answers
	for _, rdb := range l.rdbs {
		wg.Go(func() {
			yes, err := f(ctx, rdb)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				a.all++
			}
			if yes && err == nil {
				a.yes++
			}
		})
	}
	wg.Wait()
	return a
}

func (l *redlock) enough(a answers) bool {
	switch l.flaw {
	case quorumReachable:
		return a.yes > a.all/2
	case quorumTooSmall:
		return a.yes >= len(l.rdbs)/2
	case quorumFirst:
		return a.yes >= 1
	}
	return a.yes > len(l.rdbs)/2
}

func (l *redlock) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		value, asked := rand.Text(), time.Now()
		a := l.ask(ctx, func(ctx context.Context, r *redis.Client) (bool, error) {
			return r.SetNX(ctx, key, value, l.ttl).Result()
		})
		if l.flaw == redlockElapsed {
			asked = time.Now()
		}
		if valid := l.ttl - margin(l.ttl) - time.Since(asked); l.enough(a) && valid > 0 {
			if old := l.held[key]; old != nil {
				old.dog.end()
			}
			l.held[key] = &redisHold{value, l.watch(asked, func(ctx context.Context) (bool, error) {
				a := l.ask(ctx, func(ctx context.Context, r *redis.Client) (bool, error) { return l.extend(ctx, r, key, value) })
				if !l.enough(a) {
					return false, errors.New("too few nodes extended the lease")
				}
				return true, nil
			})}
			return backends.Grant{TTL: l.ttl}, nil
		}
		l.delete(context.WithoutCancel(ctx), key, value)
		// Clients that have split the nodes among them must not meet again.
		select {
		case <-time.After(mathrand.N(l.ttl / 12)):
		case <-ctx.Done():
		}
		return backends.Grant{}, backends.ErrBusy
	})
}

// watch starts the watchdog of a grant. Where the allowance for drift is at stake
// nothing is renewed, and the client believes for as long as it computes.
func (l *redlock) watch(asked time.Time, renew func(context.Context) (bool, error)) *watchdog {
	switch l.flaw {
	case driftAdded:
		return watchUntil(asked.Add(l.ttl + drift(l.ttl)))
	case driftSubtracted:
		return watchUntil(asked.Add(l.ttl - drift(l.ttl)))
	}
	return watch(l.ttl, asked, false, renew)
}

func (l *redlock) extend(ctx context.Context, r *redis.Client, key, value string) (bool, error) {
	n, err := compareExtend.Run(ctx, r, []string{key}, value, l.ttl.Milliseconds()).Int()
	return n == 1, err
}

func (l *redlock) delete(ctx context.Context, key, value string) answers {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/6)
	defer cancel()
	return l.ask(ctx, func(ctx context.Context, r *redis.Client) (bool, error) {
		n, err := compareDelete.Run(ctx, r, []string{key}, value).Int()
		return n == 1, err
	})
}

func (l *redlock) Renew(ctx context.Context, key string) (backends.Grant, error) {
	h := l.held[key]
	if h == nil {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	a := l.ask(ctx, func(ctx context.Context, r *redis.Client) (bool, error) { return l.extend(ctx, r, key, h.value) })
	switch {
	case l.enough(a):
		h.dog.extended(asked)
		return backends.Grant{TTL: l.ttl}, nil
	case a.all-a.yes > len(l.rdbs)/2:
		return backends.Grant{}, backends.ErrNotHeld
	}
	return backends.Grant{}, errors.New("too few nodes answered")
}

func (l *redlock) Release(ctx context.Context, key string) error {
	h := l.held[key]
	if h == nil {
		return backends.ErrNotHeld
	}
	h.dog.end()
	delete(l.held, key)
	a := l.delete(ctx, key, h.value)
	switch {
	case l.enough(a):
		return nil
	case a.all-a.yes > len(l.rdbs)/2:
		return backends.ErrNotHeld
	}
	return errors.New("too few nodes answered")
}

func (l *redlock) Check(_ context.Context, key string) (bool, error) {
	h := l.held[key]
	return h != nil && h.dog.holds(), nil
}

func (l *redlock) Lost(key string) <-chan struct{} { return l.held[key].dog.lost }

func (l *redlock) Close() error {
	var errs []error
	for _, h := range l.held {
		h.dog.stop()
	}
	for _, r := range l.rdbs {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
