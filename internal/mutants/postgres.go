package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
)

// postgresStrategy is an advisory lock of a session, on a connection of its own.
// The server ends a session that was idle for the TTL, and the client sends a
// heartbeat; if none is answered for so long, it gives up first.
var postgresStrategy = strategy{backend: "postgres-session", open: openPostgres}

const (
	wrongConnection = "unlock-on-another-connection"
	holdCached      = "session-lock-with-cached-state"
	stackedLocks    = "stacked-locks-released-once"
	xactReleases    = "unlock-before-work-is-done"
	keySeeded       = "key-hash-differs-per-process"
	keyNarrow       = "lock-names-collide"
)

func postgresMutants() []Mutant {
	m := func(kind, name, property, scenario, flaw string, reports ...string) Mutant {
		return Mutant{Name: name, Kind: kind, Flaw: flaw, Reports: reports, Twin: "correct-postgres", Property: property, Scenario: scenario, strategy: postgresStrategy}
	}
	return []Mutant{
		m("K12", wrongConnection, "liveness", "long-wait", "lock and unlock run on whatever connection the pool has", "SaaSy-Solutions/mockforge#968", "goauthentik/authentik#23876"),
		m("K13", holdCached, "mutex", "cut-holder", "that the lock was granted is remembered, and nobody looks whether the session lives", "JasperFx/wolverine#2602"),
		m("K14", stackedLocks, "liveness", "long-wait", "renewing locks again, and releasing unlocks once", "JasperFx/wolverine#2691"),
		m("K14", xactReleases, "mutex", "no-fault", "the lock is one of a transaction that ends before the work does", "redisson/redisson#2183", "kubernetes/kubernetes#139991"),
		m("K11", keySeeded, "mutex", "no-fault", "each process hashes the lock's name in its own way", "ClosureTree/with_advisory_lock#6"),
		m("K11", keyNarrow, "liveness", "two-locks", "different names make one key", "symfony/symfony#58838"),
	}
}

type pgLock struct {
	flaw    string
	process string
	url     string
	ttl     time.Duration

	mu   sync.Mutex // of the connection: heartbeats come at any time
	conn *pgx.Conn
	pool *pgx.Conn // flaw wrongConnection
	held map[string]*watchdog
	work transaction // flaw commitAfterUnlock
}

func openPostgres(ctx context.Context, c backends.Config, flaw string) (backends.Client, error) {
	urls := c.URLs("postgres")
	if len(urls) == 0 {
		return nil, errors.New("it needs a PostgreSQL server")
	}
	l := &pgLock{flaw: flaw, process: c.Process, url: urls[0], ttl: c.TTL, held: map[string]*watchdog{}, work: transaction{url: c.ResourceDSN}}
	var err error
	if l.conn, err = l.connect(ctx); err != nil {
		return nil, err
	}
	if flaw == wrongConnection {
		if l.pool, err = l.connect(ctx); err != nil {
			l.conn.Close(ctx)
			return nil, err
		}
	}
	return l, nil
}

// connect makes a session that bears the client's name, by which it can be found.
func (l *pgLock) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(l.url)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = l.process
	return pgx.ConnectConfig(ctx, config)
}

// id is an expression for the number of the lock named key.
func (l *pgLock) id() string {
	switch l.flaw {
	case keySeeded:
		return fmt.Sprintf("hashtextextended($1, %d)", os.Getpid())
	case keyNarrow:
		return "length($1)::bigint"
	case keyCRC32:
		return "$1::text::bigint"
	}
	return "hashtextextended($1, 0)"
}

// exec runs a statement that returns a boolean, on the session.
func (l *pgLock) exec(ctx context.Context, conn *pgx.Conn, function, key string) (yes bool, err error) {
	if l.flaw == keyCRC32 {
		key = crc32Key(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err = conn.QueryRow(ctx, "SELECT "+function+"("+l.id()+")", key).Scan(&yes)
	return yes, err
}

// set sets a parameter of the session to a time.
func (l *pgLock) set(ctx context.Context, name string, d time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.conn.Exec(ctx, fmt.Sprintf("SET %s = %d", name, d.Milliseconds()))
	return err
}

func (l *pgLock) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	if l.flaw == waitGoesOn && wait > 0 {
		return l.blocking(ctx, key, wait)
	}
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		if l.conn.IsClosed() {
			conn, err := l.connect(ctx)
			if err != nil {
				return backends.Grant{}, backends.Failed(err)
			}
			l.conn = conn
		}
		function := "pg_try_advisory_lock"
		if l.flaw == xactReleases {
			function = "pg_try_advisory_xact_lock"
		}
		asked := time.Now()
		got, err := l.exec(ctx, l.conn, function, key)
		if err != nil {
			l.conn.Close(context.WithoutCancel(ctx))
			return backends.Grant{}, err
		}
		if !got {
			return backends.Grant{}, backends.ErrBusy
		}
		// The server ends the session if it hears nothing for the TTL.
		if l.flaw != wrongConnection {
			if err := l.set(ctx, "idle_session_timeout", l.ttl); err != nil {
				return backends.Grant{}, err
			}
		}
		if time.Since(asked) > l.ttl-margin(l.ttl) {
			l.conn.Close(context.WithoutCancel(ctx))
			return backends.Grant{}, backends.Failed(errors.New("the grant came too late to rely on it"))
		}
		l.held[key] = watch(l.ttl, asked, l.flaw == holdCached, func(ctx context.Context) (bool, error) { return l.beat(ctx) })
		return backends.Grant{}, nil
	})
}

// blocking has the server wait. When the time is up the client goes its way, and
// what it asked for stands.
func (l *pgLock) blocking(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	granted := make(chan error, 1)
	go func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, err := l.conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_lock("+l.id()+")", key)
		granted <- err
	}()
	select {
	case err := <-granted:
		if err == nil {
			l.held[key] = watch(l.ttl, time.Now(), false, l.beat)
		}
		return backends.Grant{}, err
	case <-time.After(wait):
		return backends.Grant{}, fmt.Errorf("%w: canceling statement due to timeout", backends.ErrBusy)
	}
}

// Write writes as part of a transaction, with the flaw that needs one. It is only asked
// if what is protected is in the database.
func (l *pgLock) Write(ctx context.Context, w backends.Write) error {
	if l.flaw == commitAfterUnlock {
		return l.work.write(ctx, w)
	}
	conn, err := pgx.Connect(ctx, l.work.url)
	if err != nil {
		return backends.Failed(err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, resource.WriteSQL, w.Key, w.Value, w.Token, w.Process, w.Op)
	return err
}

// beat shows the server that the client lives, and the client that its session
// does. An error that ends the session ends the hold.
func (l *pgLock) beat(ctx context.Context) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn.IsClosed() {
		return false, nil
	}
	_, err := l.conn.Exec(ctx, "SELECT 1")
	var ended *pgconn.PgError
	if errors.As(err, &ended) {
		return false, nil
	}
	return err == nil, err
}

func (l *pgLock) Renew(ctx context.Context, key string) (backends.Grant, error) {
	dog := l.held[key]
	if dog == nil || !dog.holds() {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	if l.flaw == stackedLocks {
		if _, err := l.exec(ctx, l.conn, "pg_try_advisory_lock", key); err != nil {
			return backends.Grant{}, err
		}
	}
	stood, err := l.beat(ctx)
	if err != nil {
		return backends.Grant{}, err
	}
	if !stood {
		return backends.Grant{}, backends.ErrNotHeld
	}
	dog.extended(asked)
	return backends.Grant{}, nil
}

func (l *pgLock) Release(ctx context.Context, key string) error {
	dog := l.held[key]
	if dog == nil {
		return backends.ErrNotHeld
	}
	delete(l.held, key)
	lost := !dog.holds()
	dog.end()
	if lost || l.conn.IsClosed() {
		l.conn.Close(ctx)
		return backends.ErrNotHeld
	}
	conn := l.conn
	if l.flaw == wrongConnection {
		conn = l.pool
	}
	had, err := l.exec(ctx, conn, "pg_advisory_unlock", key)
	if err != nil {
		l.conn.Close(context.WithoutCancel(ctx))
		return err
	}
	if l.flaw == wrongConnection || l.flaw == xactReleases {
		return nil
	}
	if !had {
		return backends.ErrNotHeld
	}
	return l.set(ctx, "idle_session_timeout", 0)
}

// Check is also where a method that was called under the lock returns, and the
// transaction around it is committed.
func (l *pgLock) Check(ctx context.Context, key string) (bool, error) {
	if err := l.work.commit(ctx); err != nil {
		return false, err
	}
	dog := l.held[key]
	return dog != nil && dog.holds(), nil
}

func (l *pgLock) Lost(key string) <-chan struct{} { return l.held[key].lost }

func (l *pgLock) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, dog := range l.held {
		dog.stop()
	}
	if l.pool != nil {
		l.pool.Close(ctx)
	}
	l.work.close(ctx)
	return l.conn.Close(ctx)
}
