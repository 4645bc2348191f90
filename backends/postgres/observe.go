package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/lockcheck/lockcheck/backends"
)

// observer reads pg_locks on the server itself: sessions bear the names of their
// clients.
type observer struct{ db *pgx.Conn }

func observe(ctx context.Context, c backends.Config) (backends.Observer, error) {
	urls := c.URLs(primarySoftware)
	if len(urls) == 0 {
		return nil, errors.New("the postgres observer needs a postgres server, got none")
	}
	db, err := pgx.Connect(ctx, urls[0])
	if err != nil {
		return nil, fmt.Errorf("postgres observer: %w", err)
	}
	return observer{db}, nil
}

// holderSQL finds the session with an advisory lock of two integers (objsubid 2,
// see the documentation of pg_locks).
const holderSQL = `SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
	AND l.classid = $1::bigint::oid AND l.objid = $2::bigint::oid`

func (o observer) Holder(ctx context.Context, key string) (backends.Holder, error) {
	a, b := keys(key)
	var h backends.Holder
	err := o.db.QueryRow(ctx, holderSQL, int64(uint32(a)), int64(uint32(b))).Scan(&h.Process)
	if errors.Is(err, pgx.ErrNoRows) {
		return backends.Holder{}, nil
	}
	if err != nil {
		return backends.Holder{}, fmt.Errorf("observe %s: %w", key, err)
	}
	return h, nil
}

func (o observer) Close() error { return o.db.Close(context.Background()) }
