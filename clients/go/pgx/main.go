// Command pgx tests PostgreSQL's advisory locks as one uses them with
// github.com/jackc/pgx: a connection, and no library around it.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/clients/go/adapter"
)

func main() {
	adapter.Main(adapter.Adapter{
		Name: "pgx-advisory", Module: "github.com/jackc/pgx/v5",
		Capabilities: []string{"wait", "reentrant"},
		Open:         open,
	})
}

// lock is a session: the server keeps its locks while it lasts. That it ends
// when it is idle for longer than the TTL is what frees the lock of a client that
// hangs; most applications set a time there, or keepalives.
type lock struct {
	conn   *pgx.Conn
	config *pgx.ConnConfig
	ttl    time.Duration
}

func open(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
	config, err := pgx.ParseConfig(c.URLs[0])
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = c.Process // by which its session can be found
	l := &lock{config: config, ttl: c.TTL}
	return l, l.connect(ctx)
}

func (l *lock) connect(ctx context.Context) (err error) {
	l.conn, err = pgx.ConnectConfig(ctx, l.config)
	return err
}

func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	if l.conn.IsClosed() {
		if err := l.connect(ctx); err != nil {
			return adapter.Grant{}, err
		}
	}
	got := true
	var err error
	if wait == 0 {
		err = l.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", key).Scan(&got)
	} else {
		err = l.set(ctx, "lock_timeout", wait)
		if err == nil {
			_, err = l.conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", key)
		}
	}
	var refused *pgconn.PgError
	if !got || errors.As(err, &refused) && refused.Code == "55P03" { // lock_not_available
		return adapter.Grant{}, adapter.ErrBusy
	}
	if err != nil {
		return adapter.Grant{}, err
	}
	return adapter.Grant{}, l.set(ctx, "idle_session_timeout", l.ttl)
}

func (l *lock) set(ctx context.Context, name string, d time.Duration) error {
	_, err := l.conn.Exec(ctx, fmt.Sprintf("SET %s = %d", name, d.Milliseconds()))
	return err
}

func (l *lock) Release(ctx context.Context, key string) error {
	var had bool
	err := l.conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", key).Scan(&had)
	var ended *pgconn.PgError
	switch {
	case l.conn.IsClosed() && (errors.As(err, &ended) || pgconn.SafeToRetry(err)):
		return fmt.Errorf("%w: the session has ended: %w", adapter.ErrNotHeld, err)
	case err != nil:
		return err
	case !had:
		return adapter.ErrNotHeld
	}
	// Unless it was taken several times: a session that waits is not idle.
	return l.set(ctx, "idle_session_timeout", 0)
}
