package locktest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockcheck/lockcheck/locktest"
)

// An advisory lock of PostgreSQL, which has no lease: it lasts until it is
// released, or its session ends.
func ExampleRun_postgres() {
	// In a test, which has it:
	var t *testing.T

	locktest.Run(t, locktest.Config{
		Lock:    newPostgresLock,
		Servers: locktest.Postgres,
		NoLease: true,
		// A frozen holder keeps such a lock: scenarios in which another is to
		// get it meanwhile would prove nothing.
		Scenarios: []string{"no-fault", "contention", "dead-acquirer", "two-locks"},
	})
}

type postgresLock struct{ conn *pgx.Conn }

func newPostgresLock(ctx context.Context, env locktest.Env) (locktest.Lock, error) {
	conn, err := pgx.Connect(ctx, env.URL())
	return postgresLock{conn}, err
}

func (l postgresLock) Acquire(ctx context.Context, key string, _ time.Duration) error {
	var got bool
	err := l.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", key).Scan(&got)
	if err == nil && !got {
		return locktest.ErrBusy
	}
	return err
}

func (l postgresLock) Release(ctx context.Context, key string) error {
	var had bool
	err := l.conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", key).Scan(&had)
	if err == nil && !had {
		return locktest.ErrNotHeld
	}
	return err
}

func (l postgresLock) Close() error { return l.conn.Close(context.Background()) }
