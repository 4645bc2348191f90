package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	register("lease", backends.Backend{
		Summary: "a row in PostgreSQL with its owner, a lease by the server's clock, and a fencing token",
		Open:    openLease,
		MinTTL:  func(backends.Options) time.Duration { return time.Millisecond },
		Leased:  true,
		Tokens:  true,
	})
}

// leaseTable keeps the rows of released locks: their tokens go on from there.
// The advisory lock is for the creation of the table, which else fails where
// two clients are at it.
const leaseTable = `
SELECT pg_advisory_xact_lock(7165016, 1);
CREATE TABLE IF NOT EXISTS lockcheck_lease (
	key text PRIMARY KEY, owner text NOT NULL, token bigint NOT NULL, expires timestamptz NOT NULL)`

// All of them use clock_timestamp(), the time at which a row is looked at: now()
// is that at which the transaction began, before it waited for the row.
const (
	// The first condition spares the row a lock while the lease stands, the
	// last one decides.
	acquireLease = `
INSERT INTO lockcheck_lease AS l
SELECT $1, $2, 1, clock_timestamp() + $3::interval
WHERE NOT EXISTS (SELECT FROM lockcheck_lease WHERE key = $1 AND expires > clock_timestamp())
ON CONFLICT (key) DO UPDATE SET owner = $2, token = l.token + 1, expires = clock_timestamp() + $3::interval
WHERE l.expires <= clock_timestamp()
RETURNING token`

	renewLease = `
UPDATE lockcheck_lease SET expires = clock_timestamp() + $3::interval
WHERE key = $1 AND owner = $2 AND expires > clock_timestamp()
RETURNING token`

	releaseLease = `
UPDATE lockcheck_lease SET owner = '', expires = '-infinity'
WHERE key = $1 AND owner = $2 AND expires > clock_timestamp()
RETURNING token`
)

// lease is a client of leases. It is not safe for concurrent use.
type lease struct {
	config *pgconn.Config
	pg     *pgconn.PgConn // nil or closed after an error
	ttl    time.Duration
	held   map[string]leased // by key
}

// leased is a grant as the client remembers it.
type leased struct {
	owner string    // random for each acquire, so that none is mistaken for another
	until time.Time // the lease's end by the client's clock
}

func openLease(ctx context.Context, c backends.Config) (backends.Client, error) {
	if c.TTL < time.Millisecond {
		return nil, fmt.Errorf("the lease in postgres needs a TTL of at least 1ms, got %v", c.TTL)
	}
	config, err := configure(c)
	if err != nil {
		return nil, err
	}
	l := &lease{config: config, ttl: c.TTL.Truncate(time.Millisecond), held: map[string]leased{}}
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	if err := l.pg.Exec(ctx, leaseTable).Close(); err != nil {
		return nil, errors.Join(fmt.Errorf("make the table of leases: %w", err), l.Close())
	}
	return l, nil
}

func (l *lease) connect(ctx context.Context) error {
	if l.pg != nil && !l.pg.IsClosed() {
		return nil
	}
	pg, err := pgconn.ConnectConfig(ctx, l.config)
	if err != nil {
		return backends.Failed(fmt.Errorf("connect: %w", err))
	}
	l.pg = pg
	return nil
}

// exec runs one of the statements and returns the token of the row that it
// changed, or nil if it changed none.
func (l *lease) exec(ctx context.Context, sql, key, owner string) (*int64, error) {
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	args := [][]byte{[]byte(key), []byte(owner)}
	if strings.Contains(sql, "$3") {
		args = append(args, fmt.Appendf(nil, "%d milliseconds", l.ttl.Milliseconds()))
	}
	r := l.pg.ExecParams(ctx, sql, args, nil, nil, nil).Read()
	if r.Err != nil {
		if e, ok := errors.AsType[*pgconn.PgError](r.Err); ok && e.Severity == "ERROR" {
			return nil, backends.Failed(r.Err) // a statement on its own is rolled back whole
		}
		return nil, r.Err
	}
	if len(r.Rows) == 0 {
		return nil, nil
	}
	token, err := strconv.ParseInt(string(r.Rows[0][0]), 10, 64)
	return &token, err
}

func (l *lease) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		asked := time.Now()
		h := leased{rand.Text(), asked.Add(l.ttl)}
		token, err := l.exec(ctx, acquireLease, key, h.owner)
		if err != nil {
			return backends.Grant{}, err // if it was granted after all, it ends by itself
		}
		if token == nil {
			return backends.Grant{}, backends.ErrBusy
		}
		if late := backends.TooLate(asked, l.ttl); late != nil {
			return backends.Grant{}, l.undo(ctx, key, h.owner, late)
		}
		l.held[key] = h
		return backends.Grant{Token: token, TTL: l.ttl}, nil
	})
}

// undo gives back what was granted too late. If it cannot, the outcome is
// unknown.
func (l *lease) undo(ctx context.Context, key, owner string, late error) error {
	if _, err := l.exec(ctx, releaseLease, key, owner); err != nil {
		return fmt.Errorf("%v; and it could not be released: %v", late, err)
	}
	return late
}

func (l *lease) Renew(ctx context.Context, key string) (backends.Grant, error) {
	h, ok := l.held[key]
	if !ok {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	token, err := l.exec(ctx, renewLease, key, h.owner)
	if err != nil {
		return backends.Grant{}, err
	}
	if token == nil {
		delete(l.held, key)
		return backends.Grant{}, backends.ErrNotHeld
	}
	if late := backends.TooLate(asked, l.ttl); late != nil {
		delete(l.held, key)
		return backends.Grant{}, fmt.Errorf("%w: %w", backends.ErrNotHeld, l.undo(ctx, key, h.owner, late))
	}
	l.held[key] = leased{h.owner, asked.Add(l.ttl)}
	return backends.Grant{Token: token, TTL: l.ttl}, nil
}

func (l *lease) Release(ctx context.Context, key string) error {
	h, ok := l.held[key]
	if !ok {
		return backends.ErrNotHeld
	}
	token, err := l.exec(ctx, releaseLease, key, h.owner)
	if err != nil {
		return err // the owner is kept: releasing again is safe
	}
	delete(l.held, key)
	if token == nil {
		return backends.ErrNotHeld
	}
	return nil
}

// Check says whether the lease still runs by the client's own clock, as of now.
func (l *lease) Check(_ context.Context, key string) (bool, error) {
	h, ok := l.held[key]
	return ok && time.Now().Before(h.until), nil
}

func (l *lease) Close() error {
	if l.pg == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return l.pg.Close(ctx)
}
