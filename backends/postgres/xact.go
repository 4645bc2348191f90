package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
)

func init() {
	b := backends.Backend{
		Summary: "PostgreSQL advisory lock of a transaction, which the protected write is part of",
		Open: func(ctx context.Context, c backends.Config) (backends.Client, error) {
			n, err := newConn(ctx, c, twoIntegers)
			return &xact{n}, err
		},
		Resource: "postgres",
	}
	registerPooled("xact", "transaction", b)
	b.Observe = observe
	register("xact", b)
}

// xact is a client of transaction-level advisory locks: acquire begins a
// transaction, release commits it.
type xact struct{ *conn }

func (x *xact) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	if err := x.ready(ctx, key); err != nil {
		return backends.Grant{}, err
	}
	begin := fmt.Sprintf("BEGIN; SET LOCAL idle_in_transaction_session_timeout = %s; ", x.idle())
	if wait > 0 {
		begin += fmt.Sprintf("SET LOCAL lock_timeout = %s; SELECT pg_advisory_xact_lock(%s); SET LOCAL lock_timeout = 0", millis(wait), x.args(key))
	} else {
		begin += fmt.Sprintf("SELECT pg_try_advisory_xact_lock(%s)", x.args(key))
	}
	got, _, err := x.exec(ctx, begin)
	if err != nil {
		err = x.refused(err)
		x.rollback(ctx)
		return backends.Grant{}, err
	}
	if got == "f" {
		x.rollback(ctx)
		return backends.Grant{}, backends.ErrBusy
	}
	return backends.Grant{}, x.granted(ctx, key)
}

// rollback ends a transaction that has no lock.
func (x *xact) rollback(ctx context.Context) {
	if x.pg == nil {
		return
	}
	if _, _, err := x.exec(ctx, "ROLLBACK"); err != nil {
		x.drop()
	}
}

// Renew shows the server that the transaction is not idle.
func (x *xact) Renew(ctx context.Context, key string) (backends.Grant, error) {
	if err := x.pause(key); err != nil {
		return backends.Grant{}, err
	}
	if _, _, err := x.exec(ctx, "SELECT 1"); err != nil {
		x.drop()
		return backends.Grant{}, err
	}
	return backends.Grant{}, x.kept()
}

// Write writes in the lock's transaction. If it succeeds it returns an error
// that wraps ErrPending: the write takes effect when the release commits.
func (x *xact) Write(ctx context.Context, w backends.Write) error {
	if err := x.pause(w.Key); err != nil {
		return err
	}
	x.sent = time.Now()
	r := x.pg.ExecParams(ctx, resource.WriteSQL, [][]byte{
		[]byte(w.Key), []byte(w.Value), number(w.Token), []byte(w.Process), number(&w.Op),
	}, []uint32{pgtype.TextOID, pgtype.TextOID, pgtype.Int8OID, pgtype.TextOID, pgtype.Int8OID}, nil, nil).Read()
	if r.Err != nil {
		// Nothing of the transaction can take effect any more: it was
		// aborted by the server or dies with the session.
		err := backends.Failed(fmt.Errorf("the transaction is over: %w", r.Err))
		x.drop()
		return err
	}
	if err := x.kept(); err != nil {
		return err
	}
	if len(r.Rows) == 1 && r.Rows[0][0] != nil {
		return fmt.Errorf("%w (token %s was accepted before)", backends.ErrRejected, r.Rows[0][0])
	}
	return backends.ErrPending
}

// number is an optional parameter in text format.
func number(n *int64) []byte {
	if n == nil {
		return nil
	}
	return fmt.Append(nil, *n)
}

// idleInTransaction is the error of a session that the server ended because it
// was idle for too long: it says so instead of reading the next statement.
const idleInTransaction = "25P03"

// Release commits.
func (x *xact) Release(ctx context.Context, key string) error {
	if err := x.pause(key); err != nil {
		x.forget()
		if x.pg != nil && x.pg.IsClosed() {
			return fmt.Errorf("%w; nothing of the transaction was committed", err)
		}
		return err
	}
	x.forget()
	_, tag, err := x.exec(ctx, "COMMIT")
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == idleInTransaction || e.Severity == "ERROR") {
		x.drop()
		return fmt.Errorf("%w: the server did not commit: %w", backends.ErrNotHeld, e)
	}
	if err != nil {
		x.drop()
		return err // it may have been committed
	}
	if tag != "COMMIT" {
		return fmt.Errorf("%w: the transaction was aborted, the server answered %s to COMMIT", backends.ErrNotHeld, tag)
	}
	return nil
}
