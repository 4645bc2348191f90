package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/history"
)

func init() {
	register(Kind{
		Name:     "postgres",
		Summary:  "a table in PostgreSQL with a token column: a conditional update rejects lower tokens",
		Software: "postgres",
		open:     func(ctx context.Context, o Options) (store, error) { return openPostgres(ctx, o) },
	})
}

// channel is where the database tells what it applied.
const channel = "lockcheck_applied"

// schema is the same rule as that of the fenced resource. The notification is
// part of the transaction that calls the function: so it is sent when, and
// only if, that commits, and the server sends notifications in the order of
// the commits.
const schema = `
DROP TABLE IF EXISTS lockcheck_object;
CREATE TABLE lockcheck_object (key text PRIMARY KEY, value text NOT NULL, token bigint);

CREATE OR REPLACE FUNCTION lockcheck_write(k text, v text, t bigint, process text, op bigint, request bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	highest bigint;
BEGIN
	INSERT INTO lockcheck_object AS o VALUES (k, v, t)
	ON CONFLICT (key) DO UPDATE SET value = excluded.value, token = coalesce(excluded.token, o.token)
	WHERE o.token IS NULL OR excluded.token IS NULL OR excluded.token >= o.token;
	IF NOT FOUND THEN
		SELECT token INTO highest FROM lockcheck_object WHERE key = k;
	END IF;
	PERFORM pg_notify('` + channel + `', %s(json_build_object(
		'key', k, 'value', v, 'token', t, 'process', process, 'op', op, 'request', request, 'highest', highest))::text);
	RETURN highest;
END $$;`

// logSchema is for a database with standbys. A failover loses what was notified
// before somebody listens to the new primary. So what is applied is also logged, by
// the same transaction, and each notification bears its number there.
const logSchema = `
DROP TABLE IF EXISTS lockcheck_log;
CREATE TABLE lockcheck_log (id bigserial PRIMARY KEY, applied jsonb NOT NULL);

CREATE OR REPLACE FUNCTION lockcheck_logged(a json) RETURNS jsonb LANGUAGE sql AS $$
	INSERT INTO lockcheck_log (applied) VALUES (a::jsonb) RETURNING applied || jsonb_build_object('log', id)
$$;`

// WriteSQL calls the write of a resource that is kept in Postgres. Its
// arguments are key, value, token, process and op, the last three may be NULL.
// It returns NULL, or the higher token because of which it rejected the write.
// Only what commits is applied.
const WriteSQL = `SELECT lockcheck_write($1, $2, $3, $4, $5, NULL)`

// applied is a notification. Those of syncs have nothing but a request.
type applied struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Token   *int64 `json:"token"`
	Process string `json:"process"`
	Op      *int64 `json:"op"`
	Request *int64 `json:"request"` // of the HTTP front or a sync, which wait for it
	Highest *int64 `json:"highest"` // set if the write was rejected
	Log     *int64 `json:"log"`     // its number in the log, if there is one
}

// database keeps objects in Postgres.
type database struct {
	rec      *history.Recorder
	config   *pgx.ConnConfig
	moves    bool               // it has standbys, one of which may become the primary
	logged   map[int64]struct{} // recorded, by number in the log; of the listener
	idle     chan *pgx.Conn     // for reuse
	cancel   context.CancelFunc
	requests atomic.Int64

	mu      sync.Mutex
	waiting map[int64]chan struct{} // by request: closed when it is recorded
	ended   chan struct{}           // closed when the listener has ended
	err     error                   // why, to be read after that
}

func openPostgres(ctx context.Context, o Options) (*database, error) {
	dsn, err := withStandbys(o.DSN, o.Standbys)
	if err != nil {
		return nil, fmt.Errorf("its address: %w", err)
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("its address: %w", err)
	}
	listener, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	sql := fmt.Sprintf(schema, "")
	if len(o.Standbys) > 0 {
		sql = logSchema + fmt.Sprintf(schema, "lockcheck_logged")
	}
	if _, err := listener.Exec(ctx, sql+listen); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the table: %w", err), listener.Close(ctx))
	}
	listening, cancel := context.WithCancel(context.Background())
	d := &database{
		rec:     o.Recorder,
		config:  config,
		moves:   len(o.Standbys) > 0,
		logged:  map[int64]struct{}{},
		idle:    make(chan *pgx.Conn, 4),
		cancel:  cancel,
		waiting: map[int64]chan struct{}{},
		ended:   make(chan struct{}),
	}
	go d.listen(listening, listener)
	return d, nil
}

// withStandbys returns an address that stands for whichever of the servers is the
// primary.
func withStandbys(dsn string, standbys []string) (string, error) {
	if len(standbys) == 0 {
		return dsn, nil
	}
	var hosts []string
	for _, s := range append([]string{dsn}, standbys...) {
		u, err := url.Parse(s)
		if err != nil {
			return "", err
		}
		hosts = append(hosts, u.Host)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.Host = strings.Join(hosts, ",")
	q := u.Query()
	q.Set("target_session_attrs", "primary")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

const listen = "LISTEN " + channel

// listen records what the database applied, until ctx ends or the connection
// does: then what was applied later is missing. If there are standbys it goes on
// with the new primary.
func (d *database) listen(ctx context.Context, c *pgx.Conn) {
	defer close(d.ended)
	for {
		err := d.follow(ctx, c)
		c.Close(context.Background()) // it only listened
		for c = nil; d.moves && c == nil && ctx.Err() == nil; {
			c, err = d.relisten(ctx)
		}
		if c == nil {
			d.err = fmt.Errorf("the connection that listens to the database ended: %w", err)
			return
		}
	}
}

// follow records what it is notified of, until an error.
func (d *database) follow(ctx context.Context, c *pgx.Conn) error {
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var a applied
		if err := json.Unmarshal([]byte(n.Payload), &a); err != nil {
			return fmt.Errorf("notification %.100q: %w", n.Payload, err)
		}
		d.record(a)
	}
}

// record records what was applied, once, and tells who waits for it.
func (d *database) record(a applied) {
	if a.Log != nil {
		if _, again := d.logged[*a.Log]; again {
			return
		}
		d.logged[*a.Log] = struct{}{}
	}
	if a.Key != "" {
		d.rec.Record(a.event())
	}
	if a.Request == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiting[*a.Request]; w != nil {
		close(w)
		delete(d.waiting, *a.Request)
	}
}

// relisten listens to the server that is the primary now, and records what that
// has applied meanwhile. It takes its time if there is none.
func (d *database) relisten(ctx context.Context) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, d.config.Copy())
	if err == nil {
		if err = d.catchUp(ctx, c); err == nil {
			return c, nil
		}
		c.Close(context.Background()) // it only listened
	}
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
	return nil, err
}

func (d *database) catchUp(ctx context.Context, c *pgx.Conn) error {
	if _, err := c.Exec(ctx, listen); err != nil {
		return err
	}
	rows, err := c.Query(ctx, `SELECT applied || jsonb_build_object('log', id) FROM lockcheck_log ORDER BY id`)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[applied])
	for _, a := range all {
		d.record(a)
	}
	return err
}

func (a applied) event() history.Event {
	r := request{key: a.Key, value: a.Value, process: a.Process, op: a.Op, token: a.Token}
	e := r.event(history.Write)
	e.Value = text(a.Value)
	switch {
	case a.Highest != nil && a.Token != nil:
		e.Type, e.Error = history.Fail, errStale{*a.Token, *a.Highest}.Error()
	case a.Token == nil:
		e.Error = noToken
	}
	return e
}

// await runs f with the number of a new request and returns once the listener
// has recorded it.
func (d *database) await(ctx context.Context, f func(request int64) error) error {
	id := d.requests.Add(1)
	done := make(chan struct{})
	d.mu.Lock()
	d.waiting[id] = done
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.waiting, id)
		d.mu.Unlock()
	}()
	if err := f(id); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-d.ended:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// with runs f on a connection of its own.
func (d *database) with(ctx context.Context, f func(*pgx.Conn) error) error {
	var c *pgx.Conn
	for c == nil || c.IsClosed() {
		select {
		case c = <-d.idle:
			continue
		default:
		}
		var err error
		if c, err = pgx.ConnectConfig(ctx, d.config.Copy()); err != nil {
			return err
		}
	}
	err := f(c)
	select {
	case d.idle <- c:
	default:
		err = errors.Join(err, c.Close(ctx))
	}
	return err
}

func (d *database) write(ctx context.Context, r request) error {
	var highest *int64
	err := d.await(ctx, func(id int64) error {
		return d.with(ctx, func(c *pgx.Conn) error {
			return c.QueryRow(ctx, `SELECT lockcheck_write($1, $2, $3, $4, $5, $6)`,
				r.key, r.value, r.token, r.process, r.op, id).Scan(&highest)
		})
	})
	if err != nil {
		return explain(err)
	}
	if highest != nil {
		return errStale{*r.token, *highest}
	}
	return nil
}

// explain says what a value has to do with a notification.
func explain(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "22023" {
		return fmt.Errorf("key and value may have 7000 bytes together: %w", err)
	}
	return err
}

func (d *database) read(ctx context.Context, r request) (string, error) {
	var value string
	err := d.with(ctx, func(c *pgx.Conn) error {
		err := c.QueryRow(ctx, `SELECT value FROM lockcheck_object WHERE key = $1`, r.key).Scan(&value)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return "", err
	}
	r.token = nil // nobody looks at it
	e := r.event(history.Read)
	e.Value = text(value)
	d.rec.Record(e)
	return value, nil
}

func (d *database) sync(ctx context.Context) error {
	notify := func(ctx context.Context) error {
		return d.await(ctx, func(id int64) error {
			return d.with(ctx, func(c *pgx.Conn) error {
				_, err := c.Exec(ctx, `SELECT pg_notify($1, $2)`, channel, fmt.Sprintf(`{"request":%d}`, id))
				return err
			})
		})
	}
	for {
		if !d.moves {
			return notify(ctx)
		}
		// During a failover a try may meet a server that is gone, or be early.
		try, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		err := notify(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (d *database) close() error {
	d.cancel()
	<-d.ended
	for {
		select {
		case c := <-d.idle:
			c.Close(context.Background()) // nothing is under way on it
		default:
			return nil
		}
	}
}
