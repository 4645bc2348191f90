package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	open := func(args derive) opener {
		return func(ctx context.Context, c backends.Config) (backends.Client, error) {
			n, err := newConn(ctx, c, args)
			return &session{n}, err
		}
	}
	const summary = "PostgreSQL advisory lock of a session"
	register("session", backends.Backend{Summary: summary, Open: open(twoIntegers), Observe: observe})
	registerAt("postgres-session-bigint", "", single, backends.Backend{Summary: summary + ", of a single bigint", Open: open(bigint)})
	registerAt("postgres-session-hashtext", "", single, backends.Backend{Summary: summary + ", of hashtext(name): names collide", Open: open(hashtext)})
	registerPooled("session", "session", backends.Backend{Summary: summary, Open: open(twoIntegers)})
}

// session is a client of session-level advisory locks.
type session struct{ *conn }

func (s *session) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	if err := s.ready(ctx, key); err != nil {
		return backends.Grant{}, err
	}
	// The statements are one message and one implicit transaction: if the
	// lock is not granted in time, the settings are rolled back.
	sql := fmt.Sprintf("SET idle_session_timeout = %s; SELECT pg_try_advisory_lock(%s)", s.idle(), s.args(key))
	if wait > 0 {
		sql = fmt.Sprintf("SET idle_session_timeout = %s; SET lock_timeout = %s; SELECT pg_advisory_lock(%s)", s.idle(), millis(wait), s.args(key))
	}
	got, _, err := s.exec(ctx, sql)
	if err != nil {
		return backends.Grant{}, s.refused(err)
	}
	if got == "f" {
		// A waiting session must not be ended for being idle.
		if _, _, err := s.exec(ctx, "SET idle_session_timeout = 0"); err != nil {
			s.drop()
		}
		return backends.Grant{}, backends.ErrBusy
	}
	return backends.Grant{}, s.granted(ctx, key)
}

// Renew shows the server that the session is not idle.
func (s *session) Renew(ctx context.Context, key string) (backends.Grant, error) {
	if err := s.pause(key); err != nil {
		return backends.Grant{}, err
	}
	if _, _, err := s.exec(ctx, "SELECT 1"); err != nil {
		s.drop()
		return backends.Grant{}, err
	}
	return backends.Grant{}, s.kept()
}

func (s *session) Release(ctx context.Context, key string) error {
	if err := s.pause(key); err != nil {
		s.forget()
		return err
	}
	s.forget()
	had, _, err := s.exec(ctx, fmt.Sprintf("SET idle_session_timeout = 0; SELECT pg_advisory_unlock(%s)", s.args(key)))
	if err != nil {
		s.drop() // releases it too, once the server notices
		return err
	}
	if had != "t" {
		return backends.ErrNotHeld
	}
	return nil
}
