package alternative

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	backends.Register(backends.Backend{
		Name:      "idempotency-key",
		Summary:   "no lock, but an effect that happens once for each key, in PostgreSQL, whoever tries and how often",
		Apart:     notLock,
		Servers:   servers,
		Open:      openIdempotent,
		Resource:  "postgres",
		Resources: []string{"postgres"},
	})
}

// The key and the effect are stored in one transaction or not at all.
const idempotentSchema = `
CREATE TABLE IF NOT EXISTS lockcheck_idempotency (key text PRIMARY KEY, result text NOT NULL);

CREATE OR REPLACE FUNCTION lockcheck_idempotent_write(k text, v text, process text, op bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	stored text;
BEGIN
	INSERT INTO lockcheck_idempotency VALUES (k, v) ON CONFLICT DO NOTHING;
	IF FOUND THEN
		PERFORM lockcheck_write(k, v, NULL, process, op, NULL);
		RETURN NULL;
	END IF;
	SELECT result INTO STRICT stored FROM lockcheck_idempotency WHERE key = k;
	RETURN stored;
END $$;`

// idempotent is a client of effects that happen once. The key of the lock is the
// idempotency key: it names the job, and all who do that job know it. Acquire
// and release do nothing. Write has its effect if it is the first for the key,
// and else fails with the result that the first has stored, also if that was
// an earlier try of the same client: this one has had no effect.
type idempotent struct {
	*database
	begun map[string]bool // by key
}

func openIdempotent(ctx context.Context, c backends.Config) (backends.Client, error) {
	d, err := connect(ctx, c, idempotentSchema)
	if err != nil {
		return nil, err
	}
	return &idempotent{d, map[string]bool{}}, nil
}

func (c *idempotent) Acquire(_ context.Context, key string, _ time.Duration) (backends.Grant, error) {
	c.begun[key] = true
	return backends.Grant{}, nil
}

var errDone = errors.New("done before")

// Write implements backends.Writer.
func (c *idempotent) Write(ctx context.Context, w backends.Write) error {
	stored, err := c.value(ctx, `SELECT lockcheck_idempotent_write($1, $2, $3, $4)`, write(w)...)
	if err != nil {
		return err
	}
	if stored != nil {
		return backends.Failed(fmt.Errorf("%w: the stored result is %q", errDone, stored))
	}
	return nil
}

func (c *idempotent) Release(_ context.Context, key string) error {
	if !c.begun[key] {
		return backends.ErrNotHeld
	}
	delete(c.begun, key)
	return nil
}
