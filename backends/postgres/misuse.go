package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

// Locks as they should not be taken, to show what becomes of them.
func init() {
	misused := func(name, summary string, reentrant bool, open func(*conn) backends.Client) {
		registerAt(name, "", single, backends.Backend{
			Summary: summary,
			Apart:   "it is a lock taken the wrong way, to show what becomes of it",
			Open: func(ctx context.Context, c backends.Config) (backends.Client, error) {
				n, err := newConn(ctx, c, twoIntegers)
				if err != nil {
					return nil, err
				}
				return open(n), nil
			},
			Observe:   observe,
			Reentrant: reentrant,
		})
	}
	misused("postgres-session-stacked", "PostgreSQL advisory lock of a session, that a client which has it may take again", true,
		func(c *conn) backends.Client { return &stacked{session: session{c}} })
	misused("postgres-session-rollback", "PostgreSQL advisory lock of a session, taken in a transaction that is rolled back", false,
		func(c *conn) backends.Client { return &rolledBack{session{c}, "pg_try_advisory_lock"} })
	misused("postgres-xact-rollback", "PostgreSQL advisory lock of a transaction that is rolled back", false,
		func(c *conn) backends.Client { return &rolledBack{session{c}, "pg_try_advisory_xact_lock"} })
}

// stacked is a client that does not heed that it has the lock.
type stacked struct {
	session
	more int // locks that the session has beside the first
}

// Acquire takes the lock once more if the client has it.
func (s *stacked) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	if has, _ := s.Check(ctx, key); !has {
		s.more = 0
		return s.session.Acquire(ctx, key, wait)
	}
	if err := s.pause(key); err != nil {
		return backends.Grant{}, err
	}
	defer s.resume()
	got, _, err := s.exec(ctx, fmt.Sprintf("SELECT pg_try_advisory_lock(%s)", s.args(key)))
	switch {
	case err != nil:
		return backends.Grant{}, err
	case got != "t":
		return backends.Grant{}, backends.ErrBusy
	}
	s.more++
	return backends.Grant{}, nil
}

// Release unlocks once, as often as it is called.
func (s *stacked) Release(ctx context.Context, key string) error {
	if s.more == 0 {
		return s.session.Release(ctx, key)
	}
	if err := s.pause(key); err != nil {
		return err
	}
	defer s.resume()
	had, _, err := s.exec(ctx, fmt.Sprintf("SELECT pg_advisory_unlock(%s)", s.args(key)))
	switch {
	case err != nil:
		return err
	case had != "t":
		return backends.ErrNotHeld
	}
	s.more--
	return nil
}

// rolledBack is a client whose acquire is part of a transaction that fails later
// on, and that goes on as if nothing had happened.
type rolledBack struct {
	session
	function string // with which it tries
}

func (r *rolledBack) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		if err := r.ready(ctx, key); err != nil {
			return backends.Grant{}, err
		}
		got, _, err := r.exec(ctx, fmt.Sprintf("BEGIN; SELECT %s(%s)", r.function, r.args(key)))
		if err != nil {
			return backends.Grant{}, r.refused(err)
		}
		if _, tag, err := r.exec(ctx, "ROLLBACK"); err != nil || tag != "ROLLBACK" {
			r.drop()
			return backends.Grant{}, backends.Failed(errors.Join(fmt.Errorf("the server answered %q to ROLLBACK", tag), err))
		}
		if got != "t" {
			return backends.Grant{}, backends.ErrBusy
		}
		r.acquired(key)
		return backends.Grant{}, nil
	})
}
