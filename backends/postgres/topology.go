package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockcheck/lockcheck/backends"
)

type opener = func(context.Context, backends.Config) (backends.Client, error)

// Software that a lock in Postgres may need.
const (
	primarySoftware = "postgres"
	standbySoftware = "postgres-standby"
	poolerSoftware  = "pgbouncer"
)

var single = []backends.Server{{Name: "postgres", Software: primarySoftware}}

// replicated is a primary and a standby that streams from it asynchronously.
var replicated = []backends.Server{
	{Name: "postgres-1", Software: primarySoftware},
	{Name: "postgres-2", Software: standbySoftware, Options: map[string]string{"primary": "postgres-1"}},
}

// pooled is a server behind a pooler, with at most so many connections; 0 is
// the pooler's default.
func pooled(mode string, connections int) []backends.Server {
	o := map[string]string{"server": single[0].Name, "pool_mode": mode}
	if connections > 0 {
		o["default_pool_size"] = fmt.Sprint(connections)
		o["query_wait_timeout"] = "1" // seconds, for a connection; two minutes else
	}
	return append([]backends.Server{{Name: "pgbouncer", Software: poolerSoftware, Options: o}}, single...)
}

// register registers a lock on a single server, and on one with a standby.
func register(lock string, b backends.Backend) {
	registerAt("postgres-"+lock, "", single, b)
	registerAt("postgres-replicated-"+lock, ", with an asynchronous standby", replicated, b)
}

// smallPool is fewer connections than clients that hold locks at a time.
const smallPool = 2

// registerPooled registers a lock behind PgBouncer in its two modes, and behind
// a small pool of the mode that suits the lock.
func registerPooled(lock, suits string, b backends.Backend) {
	for _, mode := range []string{"session", "transaction"} {
		b := b
		if lock == "session" && mode != suits {
			b.Apart = "the lock breaks behind such a pooler, which is what it is here to show"
		}
		registerAt("pgbouncer-"+mode+"-"+lock, ", through PgBouncer that pools by "+mode, pooled(mode, 0), b)
	}
	b.Apart = "its pool is too small on purpose"
	registerAt("pgbouncer-small-"+lock, fmt.Sprintf(", through PgBouncer that pools %d connections by %s", smallPool, suits), pooled(suits, smallPool), b)
}

func registerAt(name, suffix string, servers []backends.Server, b backends.Backend) {
	b.Name = name
	b.Summary += suffix
	b.Servers = func(backends.Options) []backends.Server { return servers }
	backends.Register(b)
}

// configure returns how to connect: through the pooler if there is one, else to
// whichever server is the primary at that moment. Sessions bear the client's
// name, so that they can be told apart on the server.
func configure(c backends.Config) (*pgconn.Config, error) {
	urls := append(c.URLs(primarySoftware), c.URLs(standbySoftware)...)
	if through := c.URLs(poolerSoftware); len(through) > 0 {
		urls = through[:1]
	}
	if len(urls) == 0 {
		return nil, errors.New("the postgres lock needs a postgres server, got none")
	}
	all, err := url.Parse(urls[0])
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if len(urls) > 1 {
		var hosts []string
		for _, u := range urls {
			one, err := url.Parse(u)
			if err != nil {
				return nil, fmt.Errorf("postgres: %w", err)
			}
			hosts = append(hosts, one.Host)
		}
		all.Host = strings.Join(hosts, ",")
		q := all.Query()
		q.Set("target_session_attrs", "primary")
		all.RawQuery = q.Encode()
	}
	config, err := pgconn.ParseConfig(all.String())
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config.RuntimeParams["application_name"] = c.Process
	return config, nil
}
