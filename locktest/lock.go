package locktest

import (
	"context"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

// Lock is one client of the lock under test, in a process of its own. Its
// methods are called one at a time. One that has a Close method is closed in
// the end. What else it can do it shows by implementing [Renewer], [Checker],
// [Notifier], [Tokener] or [Leaser]; what it does not implement is not asked
// for, and not judged.
//
// An error says how certain it is that nothing happened. One that wraps
// [ErrBusy] or [ErrNotHeld], or was made by [Failed], says: certainly nothing,
// and never will. Any other error, such as a timeout or a broken connection,
// says that nobody knows. Verdicts rest on the former, and the latter costs
// nothing but precision; so when in doubt, return the error as it is.
//
// Methods should return soon after ctx ends, which is some seconds after wait.
// One that does not return at all makes the run inconclusive.
type Lock interface {
	// Acquire takes the lock named key, which may be any text. It waits for it
	// for as long as wait, and with wait 0 it tries once. ErrBusy says that it
	// is held by another and that nothing is left of the attempt. A lock that
	// cannot wait returns ErrBusy at once, and is asked again until wait has
	// passed.
	//
	// Each Acquire should have an identity of its own, such as a random value.
	Acquire(ctx context.Context, key string, wait time.Duration) error

	// Release gives up what Acquire took. ErrNotHeld says that it was lost
	// before. A lock that cannot tell returns nil: that it says so of a lock that
	// was lost is then among the things that are reported.
	Release(ctx context.Context, key string) error
}

// Renewer is a Lock that extends its lease on request. ErrNotHeld says that the
// lock was lost before.
type Renewer interface {
	Renew(ctx context.Context, key string) error
}

// Checker is a Lock that says whether it believes that it holds the lock, in the
// way in which its users find out: by a clock, a session, or a question to the
// server.
type Checker interface {
	Check(ctx context.Context, key string) (bool, error)
}

// Notifier is a Lock that learns by itself that it has lost the lock. Lost is
// called after each Acquire that was granted and returns a channel that is closed
// when that grant is lost; nil is one that is never closed. From the notice on the
// client does not count as a holder.
type Notifier interface {
	Lost(key string) <-chan struct{}
}

// Tokener is a Lock whose grants carry fencing tokens, numbers that rise from
// grant to grant. Token is called after each Acquire that was granted. The
// resource is then shown the token with each write.
type Tokener interface {
	Token(key string) int64
}

// Leaser is a Lock that is not always granted a lease of [Env.TTL]. Lease is
// called after each Acquire or Renew that succeeded, and returns for how long the
// service promised to keep the lock, counted from that call; 0 says that it
// promised nothing.
type Leaser interface {
	Lease(key string) time.Duration
}

// Env is what a client of the lock is opened with.
type Env struct {
	Process string        // name of the client: "A"
	URLs    []string      // of the servers, "redis://127.0.0.1:41381"; use them as they are
	TTL     time.Duration // lease to ask for
}

// URL returns the address of the first server, or "" if there is none.
func (e Env) URL() string {
	if len(e.URLs) == 0 {
		return ""
	}
	return e.URLs[0]
}

var (
	// ErrBusy says that the lock is held by another, and was certainly not granted.
	ErrBusy = backends.ErrBusy
	// ErrNotHeld says that the client certainly did not hold the lock (any more).
	ErrNotHeld = backends.ErrNotHeld
)

// Failed marks err as certain: the operation had no effect, and never will have.
// It returns nil if err is nil.
func Failed(err error) error {
	if err == nil {
		return nil
	}
	return backends.Failed(err)
}

// adapter is a Lock as the client protocol sees it.
type adapter struct {
	Lock
	ttl time.Duration // lease of a grant, if the lock does not say itself; 0 for none
}

// adapt returns a client that can do what the lock can.
func adapt(l Lock, ttl time.Duration) backends.Client {
	a := &adapter{l, ttl}
	r, canRenew := l.(Renewer)
	renew := renewer{a, r}
	c, canCheck := l.(Checker)
	n, canNotify := l.(Notifier)
	switch {
	case canRenew && canCheck && canNotify:
		return struct {
			*adapter
			renewer
			Checker
			Notifier
		}{a, renew, c, n}
	case canRenew && canCheck:
		return struct {
			*adapter
			renewer
			Checker
		}{a, renew, c}
	case canRenew && canNotify:
		return struct {
			*adapter
			renewer
			Notifier
		}{a, renew, n}
	case canCheck && canNotify:
		return struct {
			*adapter
			Checker
			Notifier
		}{a, c, n}
	case canRenew:
		return struct {
			*adapter
			renewer
		}{a, renew}
	case canCheck:
		return struct {
			*adapter
			Checker
		}{a, c}
	case canNotify:
		return struct {
			*adapter
			Notifier
		}{a, n}
	}
	return a
}

func (a *adapter) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	end := time.Now().Add(wait)
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		if err := a.Lock.Acquire(ctx, key, max(time.Until(end), 0)); err != nil {
			return backends.Grant{}, err
		}
		return a.grant(key), nil
	})
}

func (a *adapter) grant(key string) backends.Grant {
	g := backends.Grant{TTL: a.ttl}
	if l, ok := a.Lock.(Leaser); ok {
		g.TTL = l.Lease(key)
	}
	if t, ok := a.Lock.(Tokener); ok {
		token := t.Token(key)
		g.Token = &token
	}
	return g
}

func (a *adapter) Close() error {
	if c, ok := a.Lock.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

type renewer struct {
	a *adapter
	r Renewer
}

func (r renewer) Renew(ctx context.Context, key string) (backends.Grant, error) {
	if err := r.r.Renew(ctx, key); err != nil {
		return backends.Grant{}, err
	}
	return r.a.grant(key), nil
}
