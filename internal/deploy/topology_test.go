package deploy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

// redises returns a primary, whose replica it puts first: the order is not that
// in which they start.
func redises() []backends.Server {
	return []backends.Server{
		{Name: "redis-2", Software: "redis", Options: map[string]string{"replicaof": "redis-1"}},
		{Name: "redis-1", Software: "redis", Options: map[string]string{"repl-diskless-sync": "no"}},
	}
}

func role(t *testing.T, n *Node, want string) {
	t.Helper()
	if got, err := n.Role(t.Context()); err != nil || got != want {
		t.Fatalf("role of %s is %q, %v; want %s", n.Name(), got, err, want)
	}
}

// failover kills the first node, promotes the second, and has the first come
// back as its replica.
func failover(t *testing.T, nodes []*Node, put func(url string) error, get func(url string) (bool, error)) {
	t.Helper()
	first, second := nodes[0], nodes[1]
	role(t, first, Primary)
	role(t, second, Replica)
	if err := put(first.Endpoint().URL); err != nil {
		t.Fatal(err)
	}
	has := func(n *Node) func() bool {
		return func() bool {
			ok, err := get(n.Endpoint().URL)
			return ok && err == nil
		}
	}
	eventually(t, "the data on the replica", has(second))
	if err := first.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if role, err := first.Role(t.Context()); err == nil {
		t.Errorf("a server that is down says that it is %s", role)
	}
	began := time.Now()
	for range 2 { // promoting the primary is harmless
		if err := second.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("promoted in %v", time.Since(began).Round(time.Millisecond))
	role(t, second, Primary)
	if err := put(second.Endpoint().URL); err != nil {
		t.Errorf("the new primary takes no writes: %v", err)
	}
	if err := second.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	role(t, second, Primary)
	began = time.Now()
	if err := first.Follow(t.Context(), second.Name()); err != nil {
		t.Fatal(err)
	}
	t.Logf("followed in %v", time.Since(began).Round(time.Millisecond))
	role(t, first, Replica)
	if err := first.Follow(t.Context(), first.Name()); err == nil {
		t.Error("a server follows itself")
	}
}

func TestRedisReplica(t *testing.T) {
	need(t, "redis")
	l := newLocal(t, nil)
	nodes := start(t, l, redises())
	failover(t, []*Node{nodes[1], nodes[0]}, redisPut(t), redisGet(t))
}

func TestPostgresStandby(t *testing.T) {
	need(t, "postgres")
	l := newLocal(t, nil)
	nodes := start(t, l, []backends.Server{
		{Name: "postgres-1", Software: "postgres"},
		{Name: "postgres-2", Software: "postgres-standby", Options: map[string]string{"primary": "postgres-1"}},
	})
	failover(t, nodes, func(url string) error {
		_, err := postgresConn(t, url).Exec(t.Context(), "create table if not exists k ()")
		return err
	}, func(url string) (bool, error) {
		var ok bool
		err := postgresConn(t, url).QueryRow(t.Context(), "select to_regclass('k') is not null").Scan(&ok)
		return ok, err
	})
}

func TestEtcdLeaderHandsOver(t *testing.T) {
	for name, bin := range map[string]map[string]string{"found": nil, "embedded": {"etcd": embedded}} {
		t.Run(name, func(t *testing.T) {
			l := newLocal(t, bin)
			nodes := start(t, l, etcds(3))
			for _, n := range nodes {
				if err := n.Promote(t.Context()); err != nil {
					t.Fatal(err)
				}
				role(t, n, Primary)
				for _, other := range nodes {
					if other != n {
						role(t, other, Replica)
					}
				}
			}
		})
	}
}

func TestSentinelsFailOver(t *testing.T) {
	need(t, "redis")
	servers := redises()
	for i := range 3 {
		servers = append(servers, backends.Server{
			Name: fmt.Sprintf("sentinel-%d", i+1), Software: "redis-sentinel",
			Options: map[string]string{"monitor": "redis-1", "replicas": "redis-2", "down-after-milliseconds": "300", "failover-timeout": "3000"},
		})
	}
	l := newLocal(t, nil)
	nodes := start(t, l, servers)
	sentinel := goredis.NewSentinelClient(&goredis.Options{Addr: strings.TrimPrefix(nodes[2].Endpoint().URL, "redis://")})
	defer sentinel.Close()
	at := func() string {
		addr, err := sentinel.GetMasterAddrByName(t.Context(), SentinelMaster).Result()
		if err != nil {
			return err.Error()
		}
		return "redis://" + strings.Join(addr, ":")
	}
	if got := at(); got != nodes[1].Endpoint().URL {
		t.Fatalf("the Sentinel says that the primary is at %s", got)
	}
	began := time.Now()
	if err := nodes[1].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica promoted", func() bool { return at() == nodes[0].Endpoint().URL })
	t.Logf("failed over in %v", time.Since(began).Round(time.Millisecond))
	role(t, nodes[0], Primary)
}

func TestPgbouncer(t *testing.T) {
	need(t, "postgres")
	need(t, "pgbouncer")
	l := newLocal(t, nil)
	nodes := start(t, l, []backends.Server{
		{Name: "pgbouncer", Software: "pgbouncer", Options: map[string]string{"server": "postgres", "pool_mode": "transaction", "default_pool_size": "1"}},
		{Name: "postgres", Software: "postgres"},
	})
	url := nodes[0].Endpoint().URL
	sessions := func() (pids []string) {
		t.Helper()
		for range 2 {
			var pid string
			c := postgresConn(t, url+"&default_query_exec_mode=simple_protocol")
			if err := c.QueryRow(t.Context(), "select pg_backend_pid()::text").Scan(&pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return pids
	}
	if p := sessions(); p[0] != p[1] {
		t.Errorf("two clients have the sessions %v, want the same: the pool has one", p)
	}
	for _, keep := range []bool{true, false} {
		if err := nodes[0].Restart(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
		sessions()
	}
	// It comes back to a database that was away.
	if err := nodes[1].Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := nodes[0].Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	sessions()
}

func TestMemoryIsLimited(t *testing.T) {
	need(t, "redis")
	l := newLocal(t, nil)
	n := start(t, l, one("redis"))[0]
	if err := redisPut(t)(n.Endpoint().URL); err != nil {
		t.Fatal(err)
	}
	evicted, err := n.LimitMemory(t.Context())
	if err != nil || evicted != 1 {
		t.Fatalf("%d keys were evicted, %v; want 1", evicted, err)
	}
	if ok, err := redisGet(t)(n.Endpoint().URL); ok || err != nil {
		t.Errorf("the key is there: %v, %v", ok, err)
	}
	if err := redisPut(t)(n.Endpoint().URL); err != nil {
		t.Errorf("there is no room for a new key: %v", err)
	}
	for range 2 {
		if err := n.FreeMemory(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c := redisClient(t, n.Endpoint().URL)
	if got, err := c.ConfigGet(t.Context(), "maxmemory*").Result(); err != nil || got["maxmemory"] != "0" || got["maxmemory-policy"] != "noeviction" {
		t.Errorf("settings %v, %v", got, err)
	}
}

func TestSessionsAreEnded(t *testing.T) {
	need(t, "postgres")
	l := newLocal(t, nil)
	n := start(t, l, one("postgres"))[0]
	a := postgresConn(t, n.Endpoint().URL+"&application_name=A")
	b := postgresConn(t, n.Endpoint().URL+"&application_name=B")
	pids, err := n.EndSessions(t.Context(), "A")
	if err != nil || len(pids) != 1 || pids[0] != int(a.PgConn().PID()) {
		t.Fatalf("ended %v, %v; want %d", pids, err, a.PgConn().PID())
	}
	if err := a.Ping(t.Context()); err == nil {
		t.Error("the session of A lives")
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Errorf("the session of B: %v", err)
	}
}

func TestPowersThatAServerHasNot(t *testing.T) {
	l := newLocal(t, nil)
	n := start(t, l, one("test-service"))[0]
	_, roleErr := n.Role(t.Context())
	_, memoryErr := n.LimitMemory(t.Context())
	_, sessionErr := n.EndSessions(t.Context(), "A")
	for what, err := range map[string]error{
		"Role": roleErr, "Promote": n.Promote(t.Context()), "Follow": n.Follow(t.Context(), "x"),
		"LimitMemory": memoryErr, "FreeMemory": n.FreeMemory(t.Context()), "EndSessions": sessionErr,
	} {
		if err == nil || !strings.Contains(err.Error(), "test-service") {
			t.Errorf("%s: error %v, want one that says what the server is", what, err)
		}
	}
}

func TestServersThatNeedOthers(t *testing.T) {
	need(t, "redis")
	for _, tt := range []struct {
		name    string
		servers []backends.Server
		want    string
	}{
		{"one that is not there", redises()[:1], `server redis-2 needs redis-1: there is no server named "redis-1"`},
		{"each other", []backends.Server{
			{Name: "a", Software: "redis", Options: map[string]string{"replicaof": "b"}},
			{Name: "b", Software: "redis", Options: map[string]string{"replicaof": "a"}},
		}, "the servers a, b cannot start"},
		{"itself", []backends.Server{{Name: "a", Software: "redis", Options: map[string]string{"replicaof": "a"}}}, "the servers a cannot start"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newLocal(t, nil).Start(t.Context(), tt.servers)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

// Peers are reached at the address that the options give.
func TestLinkBetweenServers(t *testing.T) {
	need(t, "redis")
	l := newLocal(t, nil)
	none := errors.New("no link")
	l.options.Peer = func(server, addr string, peers []string) (string, error) {
		if server != "redis-1" || len(peers) != 1 || peers[0] != "redis-2" || addr == "" {
			t.Errorf("Peer(%s, %s, %v)", server, addr, peers)
		}
		return "", none
	}
	if _, err := l.Start(t.Context(), redises()); !errors.Is(err, none) {
		t.Errorf("error %v, want %v", err, none)
	}
}
