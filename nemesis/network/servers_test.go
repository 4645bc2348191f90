package network_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// freeAddr returns a loopback address that was free a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// serve runs a server until the test ends, and returns its process id.
func serve(t testing.TB, argv ...string) int {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		t.Skipf("%s is not installed", argv[0])
	}
	cmd := exec.Command(path, argv[1:]...)
	cmd.Dir = t.TempDir()
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGKILL)
		cmd.Wait()
		if t.Failed() {
			t.Log(argv[0], log.String()[max(0, log.Len()-2000):])
		}
	})
	return cmd.Process.Pid
}

func newRedis(t testing.TB) (addr string) {
	t.Helper()
	addr = freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	pid := serve(t, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	c := redisAt(t, addr)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		info, err := c.Info(t.Context(), "server").Result()
		if err == nil {
			if !strings.Contains(info, fmt.Sprintf("process_id:%d\r", pid)) {
				t.Fatalf("another server has taken %s", addr)
			}
			return addr
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func redisAt(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1, Protocol: 2, DisableIdentity: true,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second})
	t.Cleanup(func() { c.Close() })
	return c
}

// TestAWriteHeldInTheNetworkIsStale is the bug of a paused lock holder with nobody
// paused: A's write is on its way for longer than its lock lasts.
func TestAWriteHeldInTheNetworkIsStale(t *testing.T) {
	const rounds, ttl = 20, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	locks, store := newRedis(t), newRedis(t)
	mesh, err := proxy.NewMesh()
	if err != nil {
		t.Fatal(err)
	}
	defer mesh.Close()
	through := func(source, target, addr string) *redis.Client {
		a, err := mesh.Listen(source, target, addr)
		if err != nil {
			t.Fatal(err)
		}
		return redisAt(t, a)
	}
	lockOfA, lockOfB := through("A", "redis", locks), through("B", "redis", locks)
	storeOfA, storeOfB := through("A", "store", store), through("B", "store", store)
	for _, c := range []*redis.Client{lockOfA, lockOfB, storeOfA, storeOfB} {
		if err := c.Ping(ctx).Err(); err != nil {
			t.Fatal(err)
		}
	}

	stale := 0
	for i := range rounds {
		key := fmt.Sprint("lock", i)
		if ok, err := lockOfA.SetNX(ctx, key, "A", ttl).Result(); err != nil || !ok {
			t.Fatal(ok, err)
		}
		f := newFault(t, "partition", params{"peers": "store"})
		if _, err := f.Inject(ctx, []nemesis.Target{node{"A", mesh}}); err != nil {
			t.Fatal(err)
		}
		var late sync.WaitGroup
		late.Go(func() {
			if err := storeOfA.RPush(ctx, "writes"+key, "A").Err(); err != nil {
				t.Error(err)
			}
		})
		for {
			ok, err := lockOfB.SetNX(ctx, key, "B", time.Minute).Result()
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := storeOfB.RPush(ctx, "writes"+key, "B").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Heal(ctx); err != nil {
			t.Fatal(err)
		}
		late.Wait()
		writes, err := storeOfB.LRange(ctx, "writes"+key, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(writes) == "[B A]" {
			stale++
		}
	}
	if stale != rounds {
		t.Errorf("A's write was stale in %d of %d rounds", stale, rounds)
	}
}

// TestOnlyRenewalsAreHeld: a lock that is renewed is lost, though its holder can
// reach the server with anything else.
func TestOnlyRenewalsAreHeld(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	addr := newRedis(t)
	mesh, err := proxy.NewMesh()
	if err != nil {
		t.Fatal(err)
	}
	defer mesh.Close()
	proxied, err := mesh.Listen("A", "redis", addr)
	if err != nil {
		t.Fatal(err)
	}
	renewals, others := redisAt(t, proxied), redisAt(t, proxied)
	if err := renewals.Set(ctx, "k", "A", 200*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	f := newFault(t, "partition", params{"match": "pexpire", "mode": "drop"})
	inject(t, f, []nemesis.Target{node{"A", mesh}})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		if err := renewals.PExpire(ctx, "k", time.Minute).Err(); err == nil {
			t.Error("the renewal was answered")
		}
	})
	for {
		n, err := others.Exists(ctx, "k").Result()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	heal(t, f)
	renewing.Wait()
}

func BenchmarkRedis(b *testing.B) {
	addr := newRedis(b)
	mesh, err := proxy.NewMesh()
	if err != nil {
		b.Fatal(err)
	}
	defer mesh.Close()
	proxied, err := mesh.Listen("A", "redis", addr)
	if err != nil {
		b.Fatal(err)
	}
	for _, way := range []struct{ name, addr string }{{"direct", addr}, {"mesh", proxied}} {
		b.Run(way.name, func(b *testing.B) {
			c := redisAt(b, way.addr)
			for b.Loop() {
				if err := c.Set(b.Context(), "k", "v", 0).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// etcd is three members whose links to each other pass the mesh.
type etcd struct {
	mesh    *proxy.Mesh
	clients map[string]*clientv3.Client
}

var members = []string{"n1", "n2", "n3"}

func newEtcd(t *testing.T) *etcd {
	t.Helper()
	mesh, err := proxy.NewMesh()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mesh.Close() })
	var mu sync.Mutex
	pids := map[string][]int{}
	owners := proxy.Owners{PIDs: func() map[string][]int {
		mu.Lock()
		defer mu.Unlock()
		all := map[string][]int{}
		for name, p := range pids {
			all[name] = p
		}
		return all
	}}
	peer, advertised := map[string]string{}, map[string]string{}
	var cluster []string
	for _, name := range members {
		var sources []string
		for _, s := range members {
			if s != name {
				sources = append(sources, s)
			}
		}
		peer[name] = freeAddr(t)
		if advertised[name], err = mesh.ListenPeers(name, peer[name], sources, owners.Identify); err != nil {
			t.Fatal(err)
		}
		cluster = append(cluster, name+"=http://"+advertised[name])
	}
	e := &etcd{mesh: mesh, clients: map[string]*clientv3.Client{}}
	for _, name := range members {
		client := "http://" + freeAddr(t)
		pid := serve(t, "etcd", "--name", name, "--data-dir", "data",
			"--listen-peer-urls", "http://"+peer[name], "--initial-advertise-peer-urls", "http://"+advertised[name],
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new",
			"--heartbeat-interval", "50", "--election-timeout", "500")
		mu.Lock()
		pids[name] = []int{pid}
		mu.Unlock()
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{client}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		e.clients[name] = c
	}
	return e
}

// leader waits until all of some members agree on a leader among wanted.
func (e *etcd) leader(t *testing.T, of, wanted []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		ids, votes := map[uint64]string{}, map[uint64]int{}
		for _, name := range of {
			once, stop := context.WithTimeout(ctx, time.Second)
			s, err := e.clients[name].Status(once, e.clients[name].Endpoints()[0])
			stop()
			if err == nil {
				ids[s.Header.MemberId] = name
				votes[s.Leader]++
			}
		}
		for id, n := range votes {
			for _, w := range wanted {
				if n == len(of) && ids[id] == w {
					return w
				}
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%v agree on no leader among %v", of, wanted)
	return ""
}

func TestAnIsolatedEtcdLeaderIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	e := newEtcd(t)
	for _, direction := range []string{"both", "from"} {
		old := e.leader(t, members, members)
		var rest []string
		for _, m := range members {
			if m != old {
				rest = append(rest, m)
			}
		}
		f := newFault(t, "partition", params{"direction": direction, "peers": strings.Join(rest, ",")})
		inject(t, f, []nemesis.Target{node{old, e.mesh}})
		start := time.Now()
		now := e.leader(t, rest, rest)
		t.Logf("%s: %s took over from %s after %v", direction, now, old, time.Since(start).Round(time.Millisecond))

		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if _, err := e.clients[old].Put(short, "k", "v"); err == nil && direction == "both" {
			t.Error("the isolated leader accepted a write")
		}
		cancel()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := e.clients[now].Put(ctx, "k", "v"); err != nil {
			t.Error("the new leader:", err)
		}
		if _, err := e.clients[old].Get(ctx, "k", clientv3.WithSerializable()); err != nil {
			t.Error("a serializable read from the isolated member:", err)
		}
		cancel()
		proof := heal(t, f)
		if strings.Contains(string(proof), " 0 B held") {
			t.Errorf("no traffic between members was held: %s", proof)
		}
	}
	if n := e.mesh.Strangers(); n > 0 {
		t.Logf("%d connections could not be identified", n)
	}
	e.leader(t, members, members)
}
