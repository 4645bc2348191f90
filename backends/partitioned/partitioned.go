// Package partitioned routes each key to one consumer, instead of locking it: a
// consumer group of Redis Streams, with a stream for each key that has a single
// entry. Whoever that is delivered to is the key's consumer.
//
// Acquire reads the entry, or claims it from a consumer that has been idle for
// the TTL, as a group does that rebalances (XAUTOCLAIM). Renewal shows that the
// consumer is not idle. Release acknowledges the entry and adds the next, which
// whoever comes first is given. A consumer that was paused is not told that its
// key went to another: its write arrives late as with a lock, unless the
// resource can tell. There is nothing in an entry that rises from one consumer to
// the next when the group rebalances, and so no token.
package partitioned

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
	lock "github.com/lockcheck/lockcheck/backends/redis"
)

func init() {
	backends.Register(backends.Backend{
		Name:    "partitioned",
		Summary: "no lock, but one consumer for each key: a consumer group of Redis Streams",
		Servers: func(backends.Options) []backends.Server {
			return []backends.Server{{Name: "redis", Software: "redis"}}
		},
		Open:   open,
		MinTTL: func(backends.Options) time.Duration { return time.Millisecond },
		Leased: true,
	})
}

// group is the name of the one consumer group.
const group = "lockcheck"

// client is not safe for concurrent use, as backends.Client has it.
type client struct {
	rdb      *redis.Client
	consumer string // unique to this client
	ttl      time.Duration
	held     map[string]assignment // by key
	made     map[string]bool       // streams that are known to exist
}

// assignment is an entry that was delivered, as the client remembers it.
type assignment struct {
	id    string
	until time.Time // when another may claim it, by the client's clock
}

func open(ctx context.Context, c backends.Config) (backends.Client, error) {
	urls := c.URLs("redis")
	if len(urls) != 1 {
		return nil, fmt.Errorf("the consumer group needs one redis server, got %d", len(urls))
	}
	if c.TTL < time.Millisecond {
		return nil, fmt.Errorf("the consumer group needs a TTL of at least 1ms, got %v", c.TTL)
	}
	o, err := redis.ParseURL(urls[0])
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	o.MaxRetries = -1 // what is claimed unseen would be in the way
	o.ContextTimeoutEnabled = true
	o.PoolSize = lock.PoolSize
	o.DialerRetries = 1
	o.DisableIdentity = true
	p := &client{
		rdb:      redis.NewClient(o),
		consumer: c.Process + "-" + rand.Text(),
		ttl:      c.TTL.Truncate(time.Millisecond),
		held:     map[string]assignment{},
		made:     map[string]bool{},
	}
	if err := p.rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("redis at %s: %w", o.Addr, err), p.Close())
	}
	return p, nil
}

// first is the id of the first entry of a stream. That it can be added only
// once makes it the only one.
const first = "0-1"

// make makes the stream of a key with its group and its entry. It may be there.
func (p *client) make(ctx context.Context, key string) error {
	if p.made[key] {
		return nil
	}
	err := p.rdb.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: first, Values: []string{"key", key}}).Err()
	if err != nil && !strings.Contains(err.Error(), "equal or smaller") {
		return err
	}
	err = p.rdb.XGroupCreate(ctx, key, group, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return err
	}
	p.made[key] = true
	return nil
}

func (p *client) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		if err := p.make(ctx, key); err != nil {
			return backends.Grant{}, backends.Failed(fmt.Errorf("make the stream: %w", err)) // which assigns nothing
		}
		asked := time.Now()
		id, err := p.next(ctx, key)
		if err != nil {
			if strings.HasPrefix(err.Error(), "NOGROUP") {
				delete(p.made, key) // the server has lost it
			}
			// What was delivered unseen another may claim after the TTL.
			return backends.Grant{}, lock.Outcome(err)
		}
		if id == "" {
			return backends.Grant{}, backends.ErrBusy
		}
		if late := backends.TooLate(asked, p.ttl); late != nil {
			return backends.Grant{}, p.undo(ctx, key, id, late)
		}
		p.held[key] = assignment{id, asked.Add(p.ttl)}
		return backends.Grant{TTL: p.ttl}, nil
	})
}

// undo gives back what was assigned too late. If it cannot, the outcome is
// unknown.
func (p *client) undo(ctx context.Context, key, id string, late error) error {
	if _, err := p.run(ctx, done, key, id); err != nil {
		return fmt.Errorf("%v; and it could not be acknowledged: %v", late, err)
	}
	return late
}

// idle is how long an entry must have been idle, by the server's count, so that it
// certainly was for the TTL: both of its times are cut to milliseconds.
func (p *client) idle() time.Duration { return p.ttl + time.Millisecond }

// next returns the id of the entry if it is delivered to this consumer now: for
// the first time, or because the one that had it was idle.
func (p *client) next(ctx context.Context, key string) (string, error) {
	read, err := p.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: p.consumer, Streams: []string{key, ">"}, Count: 1, Block: -1,
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", err
	}
	if len(read) == 1 && len(read[0].Messages) == 1 {
		return read[0].Messages[0].ID, nil
	}
	claimed, _, err := p.rdb.XAutoClaimJustID(ctx, &redis.XAutoClaimArgs{
		Stream: key, Group: group, Consumer: p.consumer, MinIdle: p.idle(), Start: "0", Count: 1,
	}).Result()
	if err != nil || len(claimed) == 0 {
		return "", err
	}
	return claimed[0], nil
}

// keep resets the idle time of an entry if it is the consumer's.
var keep = redis.NewScript(`
if #redis.call("xpending", KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2]) == 0 then
	return 0
end
redis.call("xclaim", KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], "justid")
return 1`)

// done acknowledges an entry if it is the consumer's, and adds the next.
var done = redis.NewScript(`
if #redis.call("xpending", KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2]) == 0 then
	return 0
end
redis.call("xack", KEYS[1], ARGV[1], ARGV[3])
redis.call("xdel", KEYS[1], ARGV[3])
redis.call("xadd", KEYS[1], "*", "key", KEYS[1])
return 1`)

func (p *client) run(ctx context.Context, script *redis.Script, key, id string) (bool, error) {
	n, err := script.Run(ctx, p.rdb, []string{key}, group, p.consumer, id).Int()
	return n == 1, lock.Outcome(err)
}

func (p *client) Renew(ctx context.Context, key string) (backends.Grant, error) {
	a, ok := p.held[key]
	if !ok {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	had, err := p.run(ctx, keep, key, a.id)
	if err != nil {
		return backends.Grant{}, err
	}
	if !had {
		delete(p.held, key)
		return backends.Grant{}, backends.ErrNotHeld
	}
	if late := backends.TooLate(asked, p.ttl); late != nil {
		delete(p.held, key)
		return backends.Grant{}, fmt.Errorf("%w: %w", backends.ErrNotHeld, p.undo(ctx, key, a.id, late))
	}
	p.held[key] = assignment{a.id, asked.Add(p.ttl)}
	return backends.Grant{TTL: p.ttl}, nil
}

func (p *client) Release(ctx context.Context, key string) error {
	a, ok := p.held[key]
	if !ok {
		return backends.ErrNotHeld
	}
	had, err := p.run(ctx, done, key, a.id)
	if err != nil {
		return err // the id is kept: acknowledging again is safe
	}
	delete(p.held, key)
	if !had {
		return backends.ErrNotHeld
	}
	return nil
}

// Check says whether the TTL since the last sign of life still runs by the
// client's own clock, as of now.
func (p *client) Check(_ context.Context, key string) (bool, error) {
	a, ok := p.held[key]
	return ok && time.Now().Before(a.until), nil
}

func (p *client) Close() error { return p.rdb.Close() }
