package nemesis_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/nemesis"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

// servers starts servers for the time of the test.
func servers(t *testing.T, wanted ...backends.Server) []*deploy.Node {
	t.Helper()
	for _, s := range wanted {
		if _, err := deploy.Find(t.Context(), s.Software, ""); err != nil {
			t.Skipf("needs %s: %v", s.Software, err)
		}
	}
	l, err := deploy.NewLocal(deploy.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	nodes, err := l.Start(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func fault(t *testing.T, name string, params map[string]string) nemesis.Fault {
	t.Helper()
	kind, err := nemesis.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := kind.New(params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := f.Heal(ctx); err != nil {
			t.Errorf("heal: %v", err)
		}
	})
	return f
}

func inject(t *testing.T, f nemesis.Fault, want string, targets ...nemesis.Target) {
	t.Helper()
	began := time.Now()
	proof, err := f.Inject(t.Context(), targets)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(proof), want) {
		t.Errorf("proof %q, want %q in it", proof, want)
	}
	t.Logf("in effect after %v: %s", time.Since(began).Round(time.Millisecond), proof)
}

// heal heals twice, as may happen.
func heal(t *testing.T, f nemesis.Fault, want string) {
	t.Helper()
	began := time.Now()
	proof, err := f.Heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(proof), want) {
		t.Errorf("proof of healing %q, want %q in it", proof, want)
	}
	t.Logf("healed after %v: %s", time.Since(began).Round(time.Millisecond), proof)
	if _, err := f.Heal(t.Context()); err != nil {
		t.Errorf("healed again: %v", err)
	}
}

func client(t *testing.T, n *deploy.Node) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(n.Endpoint().URL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func set(t *testing.T, n *deploy.Node) {
	t.Helper()
	if err := client(t, n).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, n *deploy.Node) bool {
	t.Helper()
	found, err := client(t, n).Exists(t.Context(), "k").Result()
	if err != nil {
		t.Fatal(err)
	}
	return found == 1
}

var (
	lasting   = backends.Server{Name: "redis", Software: "redis", Options: map[string]string{"appendonly": "yes", "appendfsync": "always"}}
	replica   = backends.Server{Name: "redis-2", Software: "redis", Options: map[string]string{"replicaof": "redis-1"}}
	original  = backends.Server{Name: "redis-1", Software: "redis", Options: map[string]string{"repl-diskless-sync": "no"}}
	pgPrimary = backends.Server{Name: "postgres-1", Software: "postgres"}
	pgStandby = backends.Server{Name: "postgres-2", Software: "postgres-standby", Options: map[string]string{"primary": "postgres-1"}}
)

func etcds() (all []backends.Server) {
	for i := range 3 {
		all = append(all, backends.Server{
			Name: fmt.Sprintf("etcd-%d", i+1), Software: "etcd",
			Options: map[string]string{"heartbeat-interval": "50", "election-timeout": "500"},
		})
	}
	return all
}

func TestKilledServerComesBackWithItsData(t *testing.T) {
	n := servers(t, lasting)[0]
	set(t, n)
	f := fault(t, "kill", nil)
	inject(t, f, "gone: process", n)
	if pids, err := n.PIDs(); err != nil || len(pids) > 0 {
		t.Errorf("processes %v, %v", pids, err)
	}
	heal(t, f, "redis runs again")
	if !has(t, n) {
		t.Error("its data is lost")
	}
}

// sleeper is a client: a process that nobody can start again.
type sleeper struct{ cmd *exec.Cmd }

func (s sleeper) Name() string         { return "A" }
func (s sleeper) PIDs() ([]int, error) { return []int{s.cmd.Process.Pid}, nil }

func TestKilledClientStaysDead(t *testing.T) {
	c := sleeper{exec.Command("sleep", "1000")}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f := fault(t, "kill", nil)
	inject(t, f, "A: gone: process", c)
	if err := c.cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("it ended with %v", err)
	}
	heal(t, f, "A stays dead")
	if _, err := fault(t, "kill", nil).Inject(t.Context(), []nemesis.Target{c}); err == nil {
		t.Error("a client that is gone was killed")
	}
}

func TestRestart(t *testing.T) {
	n := servers(t, lasting)[0]
	for _, tt := range []struct {
		params map[string]string
		proof  string
		kept   bool
	}{
		{nil, "with its data", true},
		{map[string]string{"data": "keep"}, "with its data", true},
		{map[string]string{"data": "lose"}, "without its data", false},
	} {
		set(t, n)
		f := fault(t, "restart", tt.params)
		inject(t, f, tt.proof, n)
		if got := has(t, n); got != tt.kept {
			t.Errorf("%v: the data is there: %v, want %v", tt.params, got, tt.kept)
		}
		heal(t, f, "redis runs")
	}
}

func TestRestartStaysDown(t *testing.T) {
	n := servers(t, lasting)[0]
	const down = 300 * time.Millisecond
	began := time.Now()
	inject(t, fault(t, "restart", map[string]string{"after": down.String()}), "runs again", n)
	if took := time.Since(began); took < down {
		t.Errorf("it was back after %v, want %v", took, down)
	}
	// What is cut short is healed all the same.
	f := fault(t, "restart", map[string]string{"after": "1m"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := f.Inject(ctx, []nemesis.Target{n}); err == nil {
		t.Fatal("a minute was over in 100 ms")
	}
	heal(t, f, "redis runs again")
}

// A whole cluster comes back only together.
func TestRestartOfACluster(t *testing.T) {
	nodes := servers(t, etcds()...)
	inject(t, fault(t, "restart", nil), "etcd-3 runs again", nodes[0], nodes[1], nodes[2])
}

func role(t *testing.T, n *deploy.Node, want string) {
	t.Helper()
	if got, err := n.Role(t.Context()); err != nil || got != want {
		t.Errorf("%s is %q, %v; want %s", n.Name(), got, err, want)
	}
}

func TestFailover(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		n := servers(t, original, replica)
		f := fault(t, "failover", nil)
		inject(t, f, "redis-1 was the primary, gone: process", n[1], n[0])
		role(t, n[1], "primary")
		heal(t, f, "redis-2 says that it is primary, redis-1 says that it is replica")
	})
	t.Run("redis keeps both", func(t *testing.T) {
		n := servers(t, original, replica)
		f := fault(t, "failover", map[string]string{"how": "handover"})
		inject(t, f, "and redis-1 that it is primary", n[0], n[1])
		heal(t, f, "redis-1 says that it is replica")
	})
	t.Run("postgres", func(t *testing.T) {
		n := servers(t, pgPrimary, pgStandby)
		f := fault(t, "failover", map[string]string{"to": "postgres-2"})
		inject(t, f, "postgres-2 says that it is now", n[0], n[1])
		heal(t, f, "postgres-1 says that it is replica")
	})
	t.Run("etcd", func(t *testing.T) {
		n := servers(t, etcds()...)
		all := []nemesis.Target{n[0], n[1], n[2]}
		elected := fault(t, "failover", map[string]string{"how": "elect"})
		inject(t, elected, "was the primary, gone", all...)
		heal(t, elected, "says that it is replica")
		for _, x := range n {
			if r, err := x.Role(t.Context()); err != nil || r == "primary" {
				continue
			}
			f := fault(t, "failover", map[string]string{"how": "handover", "to": x.Name()})
			inject(t, f, "that it is replica", all...)
			role(t, x, "primary")
			heal(t, f, x.Name()+" says that it is primary")
			break
		}
	})
	t.Run("sentinel", func(t *testing.T) {
		wanted := []backends.Server{original, replica}
		for i := range 3 {
			wanted = append(wanted, backends.Server{
				Name: fmt.Sprintf("sentinel-%d", i+1), Software: "redis-sentinel",
				Options: map[string]string{"monitor": "redis-1", "replicas": "redis-2", "down-after-milliseconds": "300"},
			})
		}
		n := servers(t, wanted...)
		f := fault(t, "failover", map[string]string{"how": "elect"})
		inject(t, f, "redis-2 says that it is now", n[0], n[1])
		heal(t, f, "redis-1 says that it is replica")
	})
}

func TestFailoverFails(t *testing.T) {
	n := servers(t, original, replica)
	for name, tt := range map[string]struct {
		params  map[string]string
		targets []nemesis.Target
		want    string
	}{
		"a single server":       {nil, []nemesis.Target{n[0]}, "two or more"},
		"a client":              {nil, []nemesis.Target{n[0], sleeper{}}, "A is no server with replicas"},
		"to itself":             {map[string]string{"to": "redis-1"}, []nemesis.Target{n[0], n[1]}, "redis-1 is not among the targets, or is the primary already"},
		"to one that is absent": {map[string]string{"to": "redis-3"}, []nemesis.Target{n[0], n[1]}, "redis-3 is not among"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fault(t, "failover", tt.params).Inject(t.Context(), tt.targets)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
	role(t, n[0], "primary")
}

func TestTerminateSession(t *testing.T) {
	n := servers(t, pgPrimary)[0]
	connect := func(name string) *pgx.Conn {
		c, err := pgx.Connect(t.Context(), n.Endpoint().URL+"&application_name="+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(context.Background()) })
		return c
	}
	a, b := connect("A"), connect("B")
	f := fault(t, "terminate-session", nil)
	inject(t, f, "that served A", n, sleeper{})
	if err := a.Ping(t.Context()); err == nil {
		t.Error("the session of A lives")
	}
	if err := b.Ping(t.Context()); err != nil {
		t.Errorf("the session of B: %v", err)
	}
	heal(t, f, "")
	if _, err := f.Inject(t.Context(), []nemesis.Target{n, sleeper{}}); err == nil || !strings.Contains(err.Error(), "A had no session") {
		t.Errorf("error %v, want that there was none to end", err)
	}
	if _, err := f.Inject(t.Context(), []nemesis.Target{n}); err == nil {
		t.Error("it took no client")
	}
}

func TestEvict(t *testing.T) {
	n := servers(t, lasting)[0]
	f := fault(t, "evict", nil)
	if _, err := f.Inject(t.Context(), []nemesis.Target{n}); err == nil || !strings.Contains(err.Error(), "redis had no key") {
		t.Errorf("error %v, want that there was nothing to evict", err)
	}
	heal(t, f, "redis has its memory back")
	set(t, n)
	inject(t, f, "redis evicted 1 keys", n)
	if has(t, n) {
		t.Error("the key is there")
	}
	set(t, n) // there is room for one
	heal(t, f, "redis has its memory back")
	set(t, n)
	inject(t, f, "evicted 1", n)
	if err := n.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	heal(t, f, "redis is down")
}

func TestParametersAreChecked(t *testing.T) {
	for _, tt := range []struct {
		fault  string
		params map[string]string
		want   string
	}{
		{"restart", map[string]string{"data": "some"}, `data "some": want keep or lose`},
		{"restart", map[string]string{"after": "soon"}, `after "soon": want a time`},
		{"restart", map[string]string{"after": "-1s"}, `after "-1s": want a time`},
		{"restart", map[string]string{"after": "11m"}, `after "11m": want a time`},
		{"failover", map[string]string{"how": "pray"}, `how "pray": want promote, elect or handover`},
		{"failover", map[string]string{"how": "elect", "to": "b"}, "cannot be chosen"},
	} {
		kind, err := nemesis.Find(tt.fault)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kind.New(tt.params); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %v: error %v, want %q in it", tt.fault, tt.params, err, tt.want)
		}
	}
}

func TestNothingIsInjectedOnTargetsThatCannot(t *testing.T) {
	type nothing struct{ nemesis.Target }
	for _, name := range []string{"kill", "restart", "failover", "terminate-session", "evict"} {
		for what, targets := range map[string][]nemesis.Target{"none": nil, "one without powers": {nothing{sleeper{}}}} {
			if _, err := fault(t, name, nil).Inject(t.Context(), targets); err == nil || !strings.HasPrefix(err.Error(), name) {
				t.Errorf("%s on %s: error %v, want one that begins with the fault's name", name, what, err)
			}
		}
	}
}
