// Package backends names the lock systems that can be tested. Each system is a
// sub-package that registers a [Backend] under the name that users type: which
// servers it needs, and how a client takes a lock there.
package backends

import (
	"context"
	"errors"
	"time"

	"github.com/lockcheck/lockcheck/internal/registry"
)

// Backend describes one lock system. Nil functions and zero fields have the
// documented default.
type Backend struct {
	Name    string // as typed by users: "redis"
	Summary string // one line

	// Servers returns the servers that the lock needs, in the order in which
	// they start. Nil means none.
	Servers func(Options) []Server
	// Nodes lists the numbers of servers that users may choose with
	// Options.Nodes, the default first; empty means that there is no choice.
	Nodes []int
	// Open connects one client. The caller closes it. Required.
	Open func(context.Context, Config) (Client, error)

	// Observe connects an observer, for the clients that Open makes. The
	// caller closes it. Nil means that there is none.
	Observe func(context.Context, Config) (Observer, error)

	// MinTTL is the smallest lease that the service grants, given o; nil
	// means that any positive TTL will do.
	MinTTL func(o Options) time.Duration
	// Leased says that grants end by themselves at their TTL unless renewed.
	Leased bool
	// Tokens says that grants carry fencing tokens.
	Tokens bool
	// Deadline says that clients stop to believe at the end of Grant.Valid.
	Deadline bool
	// KeepsAlive says that clients renew their grants by themselves.
	KeepsAlive bool
	// Reentrant says that a client is granted what it holds, and releases it as
	// often.
	Reentrant bool
	// Apart says why the backend is left out when all backends are asked for:
	// it is no lock that anybody should use. "" means that it is not.
	Apart string
	// Resource names the resource that is used when the user names none;
	// "" means "unfenced".
	Resource string
	// Resources lists the resources that the backend can protect; empty
	// means all.
	Resources []string
}

// Options are what users may choose of a backend's topology.
type Options struct {
	Nodes int           // one of Backend.Nodes; 0 means the first of them
	TTL   time.Duration // lease asked for
}

// Server is one server that a backend needs.
type Server struct {
	Name     string // unique in the run: "redis", "etcd-1"
	Software string // what runs there: "redis", "etcd", "postgres", "memory"
	// Options go to whoever starts the software, e.g. etcd's election timeout.
	Options map[string]string
}

// Endpoint is a started server as clients see it.
type Endpoint struct {
	Name     string `json:"name"`
	Software string `json:"software"`
	URL      string `json:"url"` // "redis://127.0.0.1:6379", "http://…" for etcd, "postgres://…"
}

// Config is what a client needs to open a lock.
type Config struct {
	Process string // name of the client in the history
	Servers []Endpoint
	TTL     time.Duration
	// DSN is the database of the resource when it is "postgres", else "".
	ResourceDSN string
}

// URLs returns the endpoints of the servers that run the software.
func (c Config) URLs(software string) []string {
	var urls []string
	for _, s := range c.Servers {
		if s.Software == software {
			urls = append(urls, s.URL)
		}
	}
	return urls
}

// Client is one client of a lock service. Its methods are called one at a
// time. What else it can do it shows by implementing Renewer, Checker,
// Notifier or Writer.
//
// Errors: an error that wraps ErrBusy or ErrNotHeld, or is made by [Failed],
// says that the operation certainly had no effect. Any other error means that
// the outcome is unknown.
type Client interface {
	// Acquire takes the lock named key. It waits for it until wait has
	// passed; with wait 0 it tries once. ErrBusy says that it was not free.
	Acquire(ctx context.Context, key string, wait time.Duration) (Grant, error)
	// Release gives the lock up. ErrNotHeld says that it was lost before.
	Release(ctx context.Context, key string) error
	// Close ends the client's connections. It does not release locks
	// in any other way than the loss of the connection does.
	Close() error
}

// Renewer is a Client that extends leases on request.
type Renewer interface {
	Renew(ctx context.Context, key string) (Grant, error)
}

// Checker is a Client that can say whether it believes that it still holds,
// by its own means (a clock, a session's state), without being told to ask
// the server.
type Checker interface {
	Check(ctx context.Context, key string) (bool, error)
}

// Notifier is a Client that learns of a loss by itself. The channel is closed
// when it learns that the present grant of key was lost.
type Notifier interface {
	Lost(key string) <-chan struct{}
}

// Observer tells who holds a lock by the service's own account, whatever the
// clients were told. Its methods are called one at a time.
type Observer interface {
	Holder(ctx context.Context, key string) (Holder, error)
	Close() error
}

// Counter is an Observer that counts what the servers have done since they
// started. It may be asked while Holder is.
type Counter interface {
	Counts(ctx context.Context) (Counts, error)
}

// Counts are of all servers together. What a service does not do is 0.
type Counts struct {
	Events int64 `json:"events,omitempty"` // sent to those who watch
	Tries  int64 `json:"tries,omitempty"`  // attempts to take a lock that is polled
}

// Holder is who holds a lock: a client by name, or whoever was granted the token,
// where the service does not know clients by name. The zero value is nobody.
type Holder struct {
	Process string `json:"holder,omitempty"`
	Token   *int64 `json:"token,omitempty"`
}

// Writer is a Client through which the protected write itself goes, as when
// the write and the lock share a database transaction.
type Writer interface {
	Write(ctx context.Context, w Write) error
}

// Write is a write to the protected resource.
type Write struct {
	Key     string
	Value   string
	Process string
	Op      int64 // index of the invocation in the history
	Token   *int64
}

// Grant is what a successful acquire or renewal returns.
type Grant struct {
	Token *int64        // fencing token, nil if there is none
	TTL   time.Duration // lease promised from the invocation on, 0 if there is none
	Valid time.Duration // remaining time for which the client will believe that it holds; 0 if it keeps no deadline
}

var (
	// ErrBusy says that the lock was held by somebody else.
	ErrBusy = errors.New("lock is held by another")
	// ErrNotHeld says that the client did not hold the lock (any more).
	ErrNotHeld = errors.New("lock is not held")
	// ErrRejected says that the resource refused a write because of its token.
	ErrRejected = errors.New("rejected by the resource: stale token")
	// ErrPending says that a write is part of a transaction that the release
	// commits: until then its outcome is unknown.
	ErrPending = errors.New("takes effect when the release commits")
)

type failed struct{ error }

func (f failed) Unwrap() error { return f.error }

// Failed marks err as certain: the operation had no effect.
func Failed(err error) error { return failed{err} }

// IsFailed reports whether err says that the operation had no effect.
func IsFailed(err error) bool {
	var f failed
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrRejected) || errors.As(err, &f)
}

var all = registry.New[Backend]("backend")

// Register adds a backend. It is called from init functions.
func Register(b Backend) { all.Register(b.Name, b) }

// Names returns the names of all backends, sorted.
func Names() []string { return all.Names() }

// Find returns the backend registered under name.
func Find(name string) (Backend, error) { return all.Find(name) }
