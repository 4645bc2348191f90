package redis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	servers := pair()
	for i := range sentinels {
		servers = append(servers, backends.Server{
			Name: fmt.Sprintf("sentinel-%d", i+1), Software: sentinelSoftware,
			Options: map[string]string{
				"monitor":                 "redis-1",
				"replicas":                "redis-2",
				"down-after-milliseconds": fmt.Sprint(downAfter.Milliseconds()),
				"failover-timeout":        fmt.Sprint((10 * downAfter).Milliseconds()),
			},
		})
	}
	register("redis-sentinel", "redis-replicated whose replica is promoted by three Sentinels", servers, openSentinel, nil)
}

const (
	sentinels        = 3
	sentinelSoftware = "redis-sentinel"
	downAfter        = 300 * time.Millisecond
	// sentinelMaster is the name of the primary, as whoever starts the
	// Sentinels has it.
	sentinelMaster = "lockcheck"
)

// openSentinel returns a client that follows the Sentinels by the means of its
// library.
func openSentinel(ctx context.Context, c backends.Config) (backends.Client, error) {
	addresses := func(software string) (all []string) {
		for _, u := range c.URLs(software) {
			all = append(all, strings.TrimPrefix(u, "redis://"))
		}
		return all
	}
	watchers := addresses(sentinelSoftware)
	if len(watchers) == 0 {
		return nil, fmt.Errorf("the lock behind Sentinel needs servers of %s, got none", sentinelSoftware)
	}
	paths, err := announced(ctx, c.URLs("redis"))
	if err != nil {
		return nil, err
	}
	s := &Server{redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            sentinelMaster,
		SentinelAddrs:         watchers,
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		PoolSize:              PoolSize,
		DialerRetries:         1,
		DisableIdentity:       true,
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			if path, ok := paths[address]; ok {
				address = path
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	})}
	return newClient(ctx, s, s, c)
}

// announced returns for the address that each server announces, and Sentinels
// therefore tell, the one at which this client is to reach it: they differ where
// there is a proxy in between.
func announced(ctx context.Context, urls []string) (map[string]string, error) {
	paths := map[string]string{}
	for _, u := range urls {
		s, err := Dial(u)
		if err != nil {
			return nil, err
		}
		o := s.rdb.Options()
		port, err := s.rdb.ConfigGet(ctx, "port").Result()
		s.Close()
		if err != nil {
			return nil, fmt.Errorf("redis at %s: %w", o.Addr, err)
		}
		host, _, err := net.SplitHostPort(o.Addr)
		if err != nil {
			return nil, err
		}
		paths[net.JoinHostPort(host, port["port"])] = o.Addr
	}
	return paths, nil
}
