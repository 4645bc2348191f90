package deploy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// replicaOf is the option of a server that names the one that it replicates.
const replicaOf = "replicaof"

// replication returns the lines of the configuration that make it a replica.
func (r *redis) replication() string {
	if r.primary == "" {
		return ""
	}
	host, port, _ := net.SplitHostPort(r.primary) // of our own making
	return fmt.Sprintf("%s %s %s\n", replicaOf, host, port)
}

// linked returns an error as long as a replica has not had all of the data of
// its primary. Later it may serve without: the primary may be gone for good.
func (r *redis) linked(ctx context.Context) error {
	if r.primary == "" || r.synced {
		return nil
	}
	return r.with(ctx, func(c *goredis.Client) error {
		// The answer is "slave", host, port, state, offset.
		role, err := c.Do(ctx, "ROLE").Slice()
		if err != nil {
			return err
		}
		if len(role) < 4 || role[0] != "slave" || role[3] != "connected" {
			return fmt.Errorf("its role is %v, not that of a connected replica", role)
		}
		r.synced = true
		return nil
	})
}

// with runs f with a client of the server.
func (r *redis) with(ctx context.Context, f func(*goredis.Client) error) error {
	return withRedis(ctx, r.address(), f)
}

// withRedis runs f with a client of the server at an address. The client has one
// connection, and reports every failure at once. A server that is down is found
// out here: the library would also log it.
func withRedis(ctx context.Context, address string, f func(*goredis.Client) error) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	used := false
	c := goredis.NewClient(&goredis.Options{
		Addr: address, MaxRetries: -1, DialerRetries: 1, PoolSize: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if used {
				return nil, errors.New("the connection broke")
			}
			used = true
			return conn, nil
		},
	})
	defer c.Close()
	return f(c)
}

func (r *redis) role(ctx context.Context) (role string, err error) {
	err = r.with(ctx, func(c *goredis.Client) error {
		answer, err := c.Do(ctx, "ROLE").Slice()
		switch {
		case err != nil:
			return err
		case len(answer) > 0 && answer[0] == "master":
			role = Primary
		default:
			role = Replica
		}
		return nil
	})
	return role, err
}

func (r *redis) promote(ctx context.Context) error {
	err := r.with(ctx, func(c *goredis.Client) error {
		if err := c.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
			return err
		}
		return c.ConfigRewrite(ctx).Err() // it is to be one after a restart, too
	})
	if err != nil {
		return err
	}
	r.primary = ""
	return r.await(ctx, Primary)
}

func (r *redis) await(ctx context.Context, want string) error {
	for {
		role, err := r.role(ctx)
		if err == nil && role == want {
			return nil
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return fmt.Errorf("it is %s, not %s: %w", role, want, context.Cause(ctx))
		}
	}
}

func (r *redis) follow(to peer) error {
	r.primary, r.synced = to.address, false
	// The last such line counts.
	return appendTo(r.conf(), "\n"+r.replication())
}

// LimitMemory has the server evict all its keys, and keeps it short of memory:
// there is little for new keys, any of which may be evicted for another. It
// returns how many keys were evicted. FreeMemory ends it.
func (n *Node) LimitMemory(ctx context.Context) (int64, error) {
	var evicted int64
	err := n.redis(func(r *redis) error {
		return r.with(ctx, func(c *goredis.Client) (err error) {
			evicted, err = r.evict(ctx, c)
			return err
		})
	})
	return evicted, err
}

// spare is the memory that is left for new keys, in bytes.
const spare = 64 << 10

func (r *redis) evict(ctx context.Context, c *goredis.Client) (int64, error) {
	before, err := info(ctx, c, "stats", "evicted_keys")
	if err != nil {
		return 0, err
	}
	if err := c.ConfigSet(ctx, "maxmemory-policy", "allkeys-random").Err(); err != nil {
		return 0, err
	}
	if err := c.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		return 0, err
	}
	// Any command has the server look for memory, and goes on until none of
	// the keys is left.
	for {
		left, err := c.DBSize(ctx).Result()
		if err != nil {
			return 0, err
		}
		if left == 0 {
			break
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return 0, fmt.Errorf("%d keys are left: %w", left, context.Cause(ctx))
		}
	}
	used, err := info(ctx, c, "memory", "used_memory")
	if err != nil {
		return 0, err
	}
	if err := c.ConfigSet(ctx, "maxmemory", fmt.Sprint(used+spare)).Err(); err != nil {
		return 0, err
	}
	after, err := info(ctx, c, "stats", "evicted_keys")
	return after - before, err
}

// FreeMemory gives the server back the memory settings that it was started
// with.
func (n *Node) FreeMemory(ctx context.Context) error {
	return n.redis(func(r *redis) error {
		return r.with(ctx, func(c *goredis.Client) error {
			for option, standard := range map[string]string{"maxmemory": "0", "maxmemory-policy": "noeviction"} {
				if v, ok := r.options[option]; ok {
					standard = v
				}
				if err := c.ConfigSet(ctx, option, standard).Err(); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// info returns a number of a section of INFO.
func info(ctx context.Context, c *goredis.Client, section, name string) (int64, error) {
	all, err := c.InfoMap(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	for _, fields := range all {
		if v, ok := fields[name]; ok {
			var n int64
			_, err := fmt.Sscan(v, &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("INFO %s has no %s", section, name)
}

// redis runs f with the program of a Redis server.
func (n *Node) redis(f func(*redis) error) error {
	if r, ok := n.program().(*redis); ok {
		if err := f(r); err != nil {
			return fmt.Errorf("%s: %w", n.Name(), err)
		}
		return nil
	}
	return fmt.Errorf("%s is %s, not redis", n.Name(), n.Software())
}
