// Package redis is the lock on a single Redis server: SET key value NX PX ttl
// with a random value for each acquire, and scripts that compare the value
// before they renew or delete.
//
// It follows https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
// for one instance. Its grants carry no fencing token: the value is not ordered.
//
// Around it there are, all with the same client: a server that writes an
// append-only file, one with an asynchronous replica that the harness or
// Sentinel promotes, and one that waits for its replica.
package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	register("redis", "one Redis server: SET NX PX, compare-and-delete", single(nil), open, observe)
	for _, fsync := range []string{"everysec", "always"} {
		register("redis-aof-"+fsync, "redis with an append-only file, fsync "+fsync,
			single(map[string]string{"appendonly": "yes", "appendfsync": fsync}), open, observe)
	}
}

func register(
	name, summary string, servers []backends.Server,
	open func(context.Context, backends.Config) (backends.Client, error),
	observe func(context.Context, backends.Config) (backends.Observer, error),
) {
	backends.Register(lock(name, summary, servers, open, observe))
}

// lock returns a backend of these servers.
func lock(
	name, summary string, servers []backends.Server,
	open func(context.Context, backends.Config) (backends.Client, error),
	observe func(context.Context, backends.Config) (backends.Observer, error),
) backends.Backend {
	return backends.Backend{
		Name:    name,
		Summary: summary,
		Servers: func(backends.Options) []backends.Server { return servers },
		Open:    open,
		Observe: observe,
		MinTTL:  func(backends.Options) time.Duration { return time.Millisecond },
		Leased:  true,
	}
}

func single(options map[string]string) []backends.Server {
	return []backends.Server{{Name: "redis", Software: "redis", Options: options}}
}

// client is not safe for concurrent use, as backends.Client has it.
type client struct {
	process string
	server  server
	ttl     time.Duration
	held    map[string]hold // by key
	// stray are values that an acquire with an unknown outcome may have
	// left on the server, by key.
	stray map[string][]string
}

// server is a [Server] or one around it.
type server interface {
	Set(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	Delete(ctx context.Context, key, value string) (bool, error)
	Extend(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	Close() error
}

// hold is a grant as the client remembers it.
type hold struct {
	value string
	until time.Time // the lease's end by the client's clock
}

func open(ctx context.Context, c backends.Config) (backends.Client, error) {
	return openAround(ctx, c, func(s *Server) server { return s })
}

// openAround returns a client of the one server, with another around it.
func openAround(ctx context.Context, c backends.Config, around func(*Server) server) (backends.Client, error) {
	urls := c.URLs("redis")
	if len(urls) != 1 {
		return nil, fmt.Errorf("the redis lock needs one redis server, got %d", len(urls))
	}
	s, err := Dial(urls[0])
	if err != nil {
		return nil, err
	}
	return newClient(ctx, s, around(s), c)
}

// newClient returns a client of a server, once that answers. If it does not,
// the server is closed.
func newClient(ctx context.Context, s *Server, around server, c backends.Config) (backends.Client, error) {
	if c.TTL < time.Millisecond {
		s.Close()
		return nil, fmt.Errorf("the redis lock needs a TTL of at least 1ms, got %v", c.TTL)
	}
	if err := s.Ping(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("redis at %s: %w", s.rdb.Options().Addr, err)
	}
	return &client{
		process: c.Process,
		server:  around,
		ttl:     c.TTL.Truncate(time.Millisecond),
		held:    map[string]hold{},
		stray:   map[string][]string{},
	}, nil
}

func (c *client) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		return c.try(ctx, key)
	})
}

func (c *client) try(ctx context.Context, key string) (backends.Grant, error) {
	c.clean(ctx, key)
	value := c.process + ":" + rand.Text() // who it is helps an observer
	asked := time.Now()
	set, err := c.server.Set(ctx, key, value, c.ttl)
	if err != nil {
		if !backends.IsFailed(err) {
			c.stray[key] = append(c.stray[key], value)
		}
		return backends.Grant{}, err
	}
	if !set {
		return backends.Grant{}, backends.ErrBusy
	}
	if late := backends.TooLate(asked, c.ttl); late != nil {
		return backends.Grant{}, c.undo(ctx, key, value, late)
	}
	c.held[key] = hold{value, asked.Add(c.ttl)}
	return backends.Grant{TTL: c.ttl}, nil
}

// undo gives back what was granted too late. If it cannot, the outcome is
// unknown.
func (c *client) undo(ctx context.Context, key, value string, late error) error {
	if _, err := c.server.Delete(ctx, key, value); err != nil {
		c.stray[key] = append(c.stray[key], value)
		return fmt.Errorf("%v; and it could not be deleted: %v", late, err)
	}
	return late
}

// clean deletes what earlier acquires may have left, as far as the server can
// be reached: else it is gone after the TTL. It runs before the next operation
// on the key, and not in the acquire that failed, whose context has ended.
func (c *client) clean(ctx context.Context, key string) {
	for len(c.stray[key]) > 0 {
		if _, err := c.server.Delete(ctx, key, c.stray[key][0]); err != nil {
			return
		}
		c.stray[key] = c.stray[key][1:]
	}
	delete(c.stray, key)
}

func (c *client) Renew(ctx context.Context, key string) (backends.Grant, error) {
	h, ok := c.held[key]
	if !ok {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	had, err := c.server.Extend(ctx, key, h.value, c.ttl)
	if err != nil {
		return backends.Grant{}, err
	}
	if !had {
		delete(c.held, key)
		return backends.Grant{}, backends.ErrNotHeld
	}
	if late := backends.TooLate(asked, c.ttl); late != nil {
		delete(c.held, key)
		return backends.Grant{}, fmt.Errorf("%w: %w", backends.ErrNotHeld, c.undo(ctx, key, h.value, late))
	}
	c.held[key] = hold{h.value, asked.Add(c.ttl)}
	return backends.Grant{TTL: c.ttl}, nil
}

func (c *client) Release(ctx context.Context, key string) error {
	c.clean(ctx, key)
	h, ok := c.held[key]
	if !ok {
		return backends.ErrNotHeld
	}
	had, err := c.server.Delete(ctx, key, h.value)
	if err != nil {
		return err // the value is kept: releasing again is safe
	}
	delete(c.held, key)
	if !had {
		return backends.ErrNotHeld
	}
	return nil
}

// Check says whether the lease still runs by the client's own clock, as of now.
func (c *client) Check(_ context.Context, key string) (bool, error) {
	h, ok := c.held[key]
	return ok && time.Now().Before(h.until), nil
}

func (c *client) Close() error { return c.server.Close() }
