package alternative

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/backends"
)

// notLock is why these are left out when all locks are asked for.
const notLock = "it is an alternative to a lock: acquire excludes nobody, or for good"

func init() {
	backends.Register(backends.Backend{
		Name:    "unique-constraint",
		Summary: "no lock, but a claim of each job that PostgreSQL accepts once, for good",
		Apart:   notLock,
		Servers: servers,
		Open:    openUnique,
	})
}

const uniqueSchema = `CREATE TABLE IF NOT EXISTS lockcheck_claim (job text PRIMARY KEY, owner text NOT NULL)`

// unique is a client of claims. The key of the lock is the job. Acquire inserts
// a claim of it, which the constraint rejects if there is one: the job is busy
// or done. Release ends the work; the claim stays. So a job is never done by
// two, and not at all if the one who claimed it dies.
type unique struct {
	*database
	owner   string          // of the claims of this client
	working map[string]bool // by job
	done    map[string]bool
}

func openUnique(ctx context.Context, c backends.Config) (backends.Client, error) {
	d, err := connect(ctx, c, uniqueSchema)
	if err != nil {
		return nil, err
	}
	return &unique{d, c.Process + "-" + rand.Text(), map[string]bool{}, map[string]bool{}}, nil
}

// uniqueViolation is the error of a second row.
const uniqueViolation = "23505"

func (c *unique) Acquire(ctx context.Context, job string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		_, err := c.value(ctx, `INSERT INTO lockcheck_claim VALUES ($1, $2)`, []byte(job), []byte(c.owner))
		if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == uniqueViolation {
			// It may be its own, of a try whose answer was lost.
			var owner []byte
			owner, err = c.value(ctx, `SELECT owner FROM lockcheck_claim WHERE job = $1`, []byte(job))
			if err != nil {
				return backends.Grant{}, err
			}
			if string(owner) != c.owner || c.working[job] || c.done[job] {
				return backends.Grant{}, backends.ErrBusy
			}
		}
		if err != nil {
			return backends.Grant{}, err
		}
		c.working[job] = true
		return backends.Grant{}, nil
	})
}

func (c *unique) Release(_ context.Context, job string) error {
	if !c.working[job] {
		return backends.ErrNotHeld
	}
	delete(c.working, job)
	c.done[job] = true
	return nil
}
