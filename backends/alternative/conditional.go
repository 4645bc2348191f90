package alternative

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	backends.Register(backends.Backend{
		Name:      "conditional-write",
		Summary:   "no lock, but a write in PostgreSQL on the condition that the version is the one that was read",
		Apart:     notLock,
		Servers:   servers,
		Open:      openConditional,
		Resource:  "postgres",
		Resources: []string{"postgres"},
	})
}

// The version and the object change in one transaction or not at all.
const conditionalSchema = `
CREATE TABLE IF NOT EXISTS lockcheck_version (key text PRIMARY KEY, version bigint NOT NULL);

CREATE OR REPLACE FUNCTION lockcheck_conditional_write(k text, v text, process text, op bigint, seen bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF seen = 0 THEN
		INSERT INTO lockcheck_version VALUES (k, 1) ON CONFLICT DO NOTHING;
	ELSE
		UPDATE lockcheck_version SET version = version + 1 WHERE key = k AND version = seen;
	END IF;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM lockcheck_write(k, v, NULL, process, op, NULL);
	RETURN true;
END $$;`

// conditional is a client of conditional writes. Acquire reads the version of
// the object and is always granted; a read after it sees that version or a later
// one. Write changes the object if that still has the version, and fails if it
// has not: the client has to acquire again. Release ends the attempt.
type conditional struct {
	*database
	seen map[string]int64 // the version that was read, by key
}

func openConditional(ctx context.Context, c backends.Config) (backends.Client, error) {
	d, err := connect(ctx, c, conditionalSchema)
	if err != nil {
		return nil, err
	}
	return &conditional{d, map[string]int64{}}, nil
}

func (c *conditional) Acquire(ctx context.Context, key string, _ time.Duration) (backends.Grant, error) {
	text, err := c.value(ctx, `SELECT version FROM lockcheck_version WHERE key = $1`, []byte(key))
	if err != nil {
		return backends.Grant{}, backends.Failed(err) // it changes nothing
	}
	version := int64(0)
	if text != nil {
		if version, err = strconv.ParseInt(string(text), 10, 64); err != nil {
			return backends.Grant{}, backends.Failed(err)
		}
	}
	c.seen[key] = version
	return backends.Grant{}, nil
}

var errOvertaken = errors.New("the object has another version than was read: zero rows")

// Write implements backends.Writer.
func (c *conditional) Write(ctx context.Context, w backends.Write) error {
	version, ok := c.seen[w.Key]
	if !ok {
		return backends.Failed(errors.New("its version was not read"))
	}
	done, err := c.value(ctx, `SELECT lockcheck_conditional_write($1, $2, $3, $4, $5)`, append(write(w), fmt.Appendf(nil, "%d", version))...)
	if err != nil {
		return err
	}
	if string(done) != "t" {
		return backends.Failed(fmt.Errorf("%w of version %d", errOvertaken, version))
	}
	c.seen[w.Key] = version + 1
	return nil
}

func (c *conditional) Release(_ context.Context, key string) error {
	if _, ok := c.seen[key]; !ok {
		return backends.ErrNotHeld
	}
	delete(c.seen, key)
	return nil
}
