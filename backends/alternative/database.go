// Package alternative is what can be done in PostgreSQL instead of locking: a
// conditional write, an idempotency key, a unique constraint. They speak the
// protocol of a lock, so that they can be tested with the same workloads and
// faults; what acquire, write and release mean with each is said there.
//
// None of them promises that only one client holds at a time, and of the
// verdicts only those on what the resource applied speak about them.
package alternative

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/backends"
)

func servers(backends.Options) []backends.Server {
	return []backends.Server{{Name: "postgres", Software: "postgres"}}
}

// database is a connection. It is not safe for concurrent use.
type database struct {
	config *pgconn.Config
	pg     *pgconn.PgConn // nil or closed after an error
}

// connect connects and makes what schema describes, unless it is there.
func connect(ctx context.Context, c backends.Config, schema string) (*database, error) {
	urls := c.URLs("postgres")
	if len(urls) != 1 {
		return nil, fmt.Errorf("one postgres server is needed, got %d", len(urls))
	}
	config, err := pgconn.ParseConfig(urls[0])
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config.RuntimeParams["application_name"] = c.Process
	d := &database{config: config}
	if err := d.dial(ctx); err != nil {
		return nil, err
	}
	// Two that make the same at the same time would fail.
	if err := d.pg.Exec(ctx, "SELECT pg_advisory_xact_lock(7165016, 2);"+schema).Close(); err != nil {
		return nil, errors.Join(fmt.Errorf("make the tables: %w", err), d.Close())
	}
	return d, nil
}

func (d *database) dial(ctx context.Context) error {
	if d.pg != nil && !d.pg.IsClosed() {
		return nil
	}
	pg, err := pgconn.ConnectConfig(ctx, d.config)
	if err != nil {
		return backends.Failed(fmt.Errorf("connect: %w", err))
	}
	d.pg = pg
	return nil
}

// value runs one statement, which is a transaction, and returns the value that
// it returns, nil for NULL or no row.
func (d *database) value(ctx context.Context, sql string, args ...[]byte) ([]byte, error) {
	if err := d.dial(ctx); err != nil {
		return nil, err
	}
	r := d.pg.ExecParams(ctx, sql, args, nil, nil, nil).Read()
	if r.Err != nil {
		if e, ok := errors.AsType[*pgconn.PgError](r.Err); ok && e.Severity == "ERROR" {
			return nil, backends.Failed(r.Err) // it was rolled back
		}
		return nil, r.Err
	}
	if len(r.Rows) == 0 {
		return nil, nil
	}
	return r.Rows[0][0], nil
}

func (d *database) Close() error {
	if d.pg == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return d.pg.Close(ctx)
}

// write is what a write tells to the functions below.
func write(w backends.Write) [][]byte {
	return [][]byte{[]byte(w.Key), []byte(w.Value), []byte(w.Process), fmt.Appendf(nil, "%d", w.Op)}
}
