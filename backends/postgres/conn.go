// Package postgres is locks in PostgreSQL: the two kinds of advisory lock, of a
// session and of a transaction, and a row with a lease. They are there on a
// single server, on one with a standby, and the advisory ones behind PgBouncer.
//
// Advisory locks: each client has a connection of its own, never one from a pool: the lock
// belongs to it. A grant promises no lease, since the lock ends with the session
// and not at a time. A TTL makes the server end a session that was idle for so
// long, as that of a frozen client is. A client learns that its session has
// ended by reading from the connection while it is idle; and where nothing comes
// through, by its own clock, a tenth of the TTL before the server can end it.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/backends"
)

// conn is a session of the server, and the lock that it has. It is not safe for
// concurrent use.
type conn struct {
	config *pgconn.Config
	args   derive
	ttl    time.Duration // idle time after which the server ends it; 0 is never

	pg    *pgconn.PgConn // nil before the first use and after the session's end
	key   string         // of the lock that the session has, "" if it has none
	lost  chan struct{}  // of the present lock, closed when the session has ended
	lose  func()         // closes lost
	watch *watch         // nil while a statement runs or there is no lock

	sent  time.Time   // when the last statement was
	clock *time.Timer // closes lost when the session was idle for too long; nil if it may be
}

// watch reads from the idle connection.
type watch struct {
	stop context.CancelFunc
	err  chan error // gets one error, nil if it was stopped
}

func newConn(ctx context.Context, c backends.Config, args derive) (*conn, error) {
	config, err := configure(c)
	if err != nil {
		return nil, err
	}
	n := &conn{config: config, args: args, ttl: c.TTL}
	return n, n.connect(ctx)
}

// connect starts a session if there is none.
func (c *conn) connect(ctx context.Context) error {
	if c.pg != nil && !c.pg.IsClosed() {
		return nil
	}
	pg, err := pgconn.ConnectConfig(ctx, c.config)
	if err != nil {
		return backends.Failed(fmt.Errorf("connect: %w", err)) // a new session has no lock
	}
	c.pg = pg
	return nil
}

// idle states the TTL as the server's parameter of that name, "0" without one.
func (c *conn) idle() string { return fmt.Sprintf("'%dms'", c.ttl.Milliseconds()) }

// exec runs statements in one message. It returns the value of the one that
// returns a single value, and the command tag of the last.
func (c *conn) exec(ctx context.Context, sql string) (value string, tag string, err error) {
	c.sent = time.Now()
	results, err := c.pg.Exec(ctx, sql).ReadAll()
	for _, r := range results {
		if len(r.Rows) == 1 && len(r.Rows[0]) == 1 {
			value = string(r.Rows[0][0])
		}
		tag = r.CommandTag.String()
	}
	return value, tag, err
}

// granted notes that the session, which the server ends when it is idle, has
// the lock. The answer that said so may be old, after a wait or on a slow network,
// and the session at its end: then it is asked again.
func (c *conn) granted(ctx context.Context, key string) error {
	if c.ttl == 0 {
		c.acquired(key)
		return nil
	}
	if time.Since(c.sent) > c.ttl/2 {
		if _, _, err := c.exec(ctx, "SELECT 1"); err != nil {
			c.drop()
			if _, ok := errors.AsType[*pgconn.PgError](err); ok {
				err = backends.Failed(err) // the server itself says that the session has ended
			}
			return fmt.Errorf("the session has ended since: %w", err)
		}
	}
	if c.left() <= 0 {
		c.drop()
		return errors.New("the answer took so long that the session may have ended")
	}
	c.acquired(key)
	c.clock = time.AfterFunc(c.left(), c.lose)
	return nil
}

// left is how long the client can rely on the session not having ended for
// being idle, which it is from the last statement on.
func (c *conn) left() time.Duration { return c.ttl - c.ttl/10 - time.Since(c.sent) }

// acquired notes that the session has the lock, and begins to watch for its end.
func (c *conn) acquired(key string) {
	lost := make(chan struct{})
	c.key, c.lost, c.lose = key, lost, sync.OnceFunc(func() { close(lost) })
	c.resume()
}

// resume watches the idle connection for the end of the session.
func (c *conn) resume() {
	if c.key == "" || c.pg.IsClosed() {
		return
	}
	if c.clock != nil {
		c.clock.Reset(c.left())
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{stop: cancel, err: make(chan error, 1)}
	c.watch = w
	go func(pg *pgconn.PgConn, lose func()) {
		for {
			err := pg.WaitForNotification(ctx)
			switch {
			case err == nil:
				continue // not asked for: nobody listens
			case ctx.Err() != nil && !pg.IsClosed():
				w.err <- nil
			default:
				lose()
				w.err <- err
			}
			return
		}
	}(c.pg, c.lose)
}

// pause ends the watch, so that a statement can run. It returns an error that
// wraps ErrNotHeld if the session has ended or has not the lock named key.
func (c *conn) pause(key string) error {
	if c.key != key {
		return backends.ErrNotHeld
	}
	w := c.watch
	if w == nil {
		return fmt.Errorf("%w: its session has ended", backends.ErrNotHeld)
	}
	c.watch = nil
	w.stop()
	if err := <-w.err; err != nil {
		return fmt.Errorf("%w: its session has ended: %w", backends.ErrNotHeld, err)
	}
	return c.given()
}

// given returns an error that wraps ErrNotHeld if the client has given the lock
// up, by its clock. Then it ends the session, so that nothing is left of it.
func (c *conn) given() error {
	select {
	case <-c.lost:
		c.drop()
		return fmt.Errorf("%w: its session was idle for so long that it may have ended", backends.ErrNotHeld)
	default:
		return nil
	}
}

// kept is after a statement was answered: the session lives, and is watched again.
// It returns an error that wraps ErrNotHeld if the answer came too late.
func (c *conn) kept() error {
	if c.clock != nil && c.left() <= 0 {
		c.lose()
	}
	if err := c.given(); err != nil {
		return err
	}
	c.resume()
	return nil
}

// forget notes that the session has no lock any more.
func (c *conn) forget() {
	if c.clock != nil {
		c.clock.Stop()
		c.clock = nil
	}
	if c.watch != nil {
		c.watch.stop()
		<-c.watch.err
		c.watch = nil
	}
	c.key = ""
}

// drop ends the session, and with it whatever it holds: so nothing is left of
// an acquire with an unknown outcome once the server has noticed.
func (c *conn) drop() {
	if c.key != "" {
		c.forget()
		c.lose()
	}
	if c.pg != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.pg.Close(ctx) // the socket is closed in any case
		c.pg = nil
	}
}

// Check says whether the session has the lock as far as the client knows.
func (c *conn) Check(_ context.Context, key string) (bool, error) {
	if c.key != key {
		return false, nil
	}
	select {
	case <-c.lost:
		return false, nil
	default:
		return true, nil
	}
}

// Lost is closed when the client learns that its session has ended.
func (c *conn) Lost(string) <-chan struct{} { return c.lost }

func (c *conn) Close() error {
	c.drop()
	return nil
}

// ready prepares an acquire. A session has at most one lock: its locks would
// end together.
func (c *conn) ready(ctx context.Context, key string) error {
	if c.key != "" {
		holds, _ := c.Check(ctx, c.key) // cannot fail
		if holds {
			return backends.Failed(fmt.Errorf("this client still holds %s: advisory locks stack, a second one would need a second release", c.key))
		}
		c.drop()
	}
	return c.connect(ctx)
}

// millis states a wait as a value of lock_timeout, where 0 would mean for ever.
func millis(wait time.Duration) string {
	return fmt.Sprintf("'%dms'", max(1, wait.Milliseconds()))
}

// refused turns the server's errors into the outcome of an acquire that held
// nothing before: no lock in time is busy, and any other error that leaves the
// session alive is certain too.
func (c *conn) refused(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && e.Code == "55P03": // lock_not_available: lock_timeout has passed
		return backends.ErrBusy
	case ok && !strings.EqualFold(e.Severity, "FATAL"):
		return backends.Failed(err)
	}
	c.drop()
	return err
}
