package deploy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy/engine"
)

// newContained returns a runtime whose servers are containers, and the run's
// containers. The test is skipped where there is no engine or no image.
func newContained(t *testing.T, software ...string) (*Local, *Containers) {
	t.Helper()
	if err := CheckContainers(t.Context(), nil, software...); err != nil {
		t.Skip(err)
	}
	c, err := NewContainers(t.Context(), ContainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLocal(Options{Dir: t.TempDir(), Cache: cache, Containers: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		if left := remaining(t, c); len(left) > 0 {
			t.Errorf("Close left %v", left)
		}
	})
	return l, c
}

// remaining lists what there is of a run in the engine.
func remaining(t *testing.T, c *Containers) []string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	label := runLabel + "=" + c.project
	var all []string
	containers, err1 := c.engine.Containers(ctx, label)
	for _, x := range containers {
		all = append(all, x.Names...)
	}
	networks, err2 := c.engine.Networks(ctx, label)
	for _, x := range networks {
		all = append(all, x.Name)
	}
	volumes, err3 := c.engine.Volumes(ctx, label)
	for _, x := range volumes {
		all = append(all, x.Name)
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRedisContainer(t *testing.T) {
	l, _ := newContained(t, "redis")
	n := start(t, l, one("redis", "appendonly", "yes"))[0]
	lifecycle(t, l, n, redisPut(t), redisGet(t), true)
}

func TestRedisReplicaContainers(t *testing.T) {
	l, _ := newContained(t, "redis")
	nodes := start(t, l, redises())
	failover(t, []*Node{nodes[1], nodes[0]}, redisPut(t), redisGet(t))
}

func TestEtcdContainers(t *testing.T) {
	l, _ := newContained(t, "etcd")
	nodes := start(t, l, etcds(3))
	put, get := etcdPut(t), etcdGet(t)
	if err := put(nodes[0].Endpoint().URL); err != nil {
		t.Fatal(err)
	}
	if err := nodes[1].Restart(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if ok, err := get(nodes[1].Endpoint().URL); !ok || err != nil {
		t.Errorf("a member that lost its data and joined anew has it: %v, %v", ok, err)
	}
}

func TestPostgresContainers(t *testing.T) {
	l, _ := newContained(t, "postgres")
	nodes := start(t, l, []backends.Server{
		{Name: "postgres-1", Software: "postgres"},
		{Name: "postgres-2", Software: "postgres-standby", Options: map[string]string{"primary": "postgres-1"}},
	})
	failover(t, nodes, func(url string) error {
		_, err := postgresConn(t, url).Exec(t.Context(), "create table if not exists k ()")
		return err
	}, func(url string) (bool, error) {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return false, err
		}
		defer c.Close(t.Context())
		var ok bool
		err = c.QueryRow(t.Context(), "select to_regclass('k') is not null").Scan(&ok)
		return ok, err
	})
}

func TestFrozenContainer(t *testing.T) {
	l, _ := newContained(t, "redis")
	n := start(t, l, one("redis"))[0]
	c := n.Container()
	if proof, err := c.Freeze(t.Context()); err != nil || !strings.Contains(proof, "paused") {
		t.Fatalf("Freeze = %q, %v", proof, err)
	}
	if answers(t, n) {
		t.Error("a frozen server answers")
	}
	if proof, err := c.Thaw(t.Context()); err != nil || !strings.Contains(proof, "running") {
		t.Fatalf("Thaw = %q, %v", proof, err)
	}
	if !answers(t, n) {
		t.Error("a thawed server does not answer")
	}
	if _, err := c.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Kill(t.Context()); err != nil {
		t.Fatalf("kill a frozen server: %v", err)
	}
	if proof, err := c.Thaw(t.Context()); err != nil || !strings.Contains(proof, "gone") {
		t.Errorf("Thaw of a killed server = %q, %v", proof, err)
	}
}

func TestContainerOffItsNetwork(t *testing.T) {
	l, _ := newContained(t, "redis")
	n := start(t, l, one("redis"))[0]
	url := n.Endpoint().URL
	if _, err := n.Container().Leave(t.Context(), ClientsNetwork); err != nil {
		t.Fatal(err)
	}
	if answers(t, n) {
		t.Error("a server that is off the clients' network answers a client")
	}
	if _, err := n.Container().Leave(t.Context(), ClientsNetwork); err == nil {
		t.Error("it left the network twice")
	}
	if _, err := n.Container().Rejoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.Endpoint().URL; got != url || !answers(t, n) {
		t.Errorf("back on the network it does not answer at %s, or is now at %s", url, got)
	}
}

// answers reports whether a Redis server answers within a time in which a healthy one
// does a thousand times over.
func answers(t *testing.T, n *Node) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := n.Role(ctx)
	return err == nil
}

// TestCleanup has remains of a run whose process is gone, beside a run that goes on.
func TestCleanup(t *testing.T) {
	l, alive := newContained(t, "redis")
	start(t, l, one("redis"))

	_, gone := newContained(t, "redis")
	here, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	gone.owner = here + "/1/1" // the first process did not start then
	if err := gone.network(t.Context()); err != nil {
		t.Fatal(err)
	}
	site, err := gone.contain("redis")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.place("redis"); err != nil {
		t.Fatal(err)
	}
	n := &Node{server: one("redis")[0]}
	if err := gone.make(t.Context(), t.TempDir(), []*container{
		newContainer(n, &redis{bin: Binary{Path: "redis-server"}, dir: "/data"}, site, "/data"),
	}); err != nil {
		t.Fatal(err)
	}
	if got := len(remaining(t, gone)); got != 3 {
		// Another test's run may have removed it already, which is as well.
		t.Logf("before the cleanup there are %d things of the run that is gone", got)
	}
	if _, err := Cleanup(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if left := remaining(t, gone); len(left) > 0 {
		t.Errorf("left of the run that is gone: %v", left)
	}
	if got := len(remaining(t, alive)); got != 3 {
		t.Errorf("of the run that goes on there are %d things left, want its container and its networks", got)
	}
}

// forward makes the engine of this machine look like that of another: it is spoken to
// over TCP, by a name.
func forward(t *testing.T) {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if a, err := net.LookupIP(name); err != nil || !a[0].IsLoopback() || os.Getenv("DOCKER_HOST") != "" {
		t.Skipf("%s is no name of the loopback interface, or DOCKER_HOST is set", name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", "/var/run/docker.sock")
			if err != nil {
				from.Close()
				continue
			}
			for _, c := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(c[1], c[0])
					if w, ok := c[1].(interface{ CloseWrite() error }); ok {
						_ = w.CloseWrite()
					}
				}()
			}
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", "tcp://"+net.JoinHostPort(name, port))
}

func TestEngineOfAnotherMachine(t *testing.T) {
	if err := CheckContainers(t.Context(), nil, "redis"); err != nil {
		t.Skip(err)
	}
	forward(t)
	l, c := newContained(t, "redis")
	if c.Here() {
		t.Fatal("it is taken for an engine of this machine")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := l.port
	l.port = func() (int, error) { return taken.Addr().(*net.TCPAddr).Port, nil }
	if _, err := l.Start(t.Context(), one("redis")); !errors.Is(err, engine.ErrPortTaken) {
		t.Errorf("Start with a port that is taken = %v, want ErrPortTaken", err)
	}
	l.port = free
	again, _ := newContained(t, "redis")
	n := start(t, again, one("redis"))[0]
	if !answers(t, n) {
		t.Errorf("the server does not answer at its published port, %s", n.Endpoint().URL)
	}
	if _, err := n.PIDs(); err == nil {
		t.Error("processes of another machine are seen")
	}
	if proof, err := n.Container().Leave(t.Context(), ClientsNetwork); err != nil {
		t.Errorf("Leave = %q, %v", proof, err)
	}
	if _, err := n.Container().Rejoin(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestImageNames(t *testing.T) {
	for _, tt := range []struct {
		software string
		env      map[string]string
		versions map[string]string
		want     string
	}{
		{"redis", nil, nil, "redis:7.4"},
		{"redis-sentinel", nil, map[string]string{"redis": "6.2"}, "redis:6.2"},
		{"etcd", nil, map[string]string{"etcd": "3.5.9"}, "quay.io/coreos/etcd:v3.5.9"},
		{"postgres-standby", map[string]string{"LOCKCHECK_POSTGRES_IMAGE": "local/pg", "LOCKCHECK_POSTGRES_VERSION": "15"}, nil, "local/pg:15"},
		{"postgres", map[string]string{"LOCKCHECK_POSTGRES_VERSION": "15"}, map[string]string{"postgres": "16"}, "postgres:16"},
		{"pgbouncer", map[string]string{"LOCKCHECK_PGBOUNCER_IMAGE": "mine", "LOCKCHECK_PGBOUNCER_VERSION": "1"}, nil, "mine:1"},
	} {
		for _, i := range images {
			t.Setenv("LOCKCHECK_"+i.variable+"_IMAGE", "")
			t.Setenv("LOCKCHECK_"+i.variable+"_VERSION", "")
		}
		for k, v := range tt.env {
			t.Setenv(k, v)
		}
		if got, err := ImageName(tt.software, tt.versions); err != nil || got != tt.want {
			t.Errorf("image of %s with %v and %v is %q, %v; want %q", tt.software, tt.versions, tt.env, got, err, tt.want)
		}
	}
	if _, err := ImageName("memory", nil); err == nil {
		t.Error("what runs inside the harness has an image")
	}
}

func TestNoEngine(t *testing.T) {
	for host, want := range map[string]string{
		"unix://" + filepath.Join(t.TempDir(), "none.sock"): "start one",
		"tcp://127.0.0.1:1": "start one",
		"ssh://there":       "forward its socket",
	} {
		t.Setenv("DOCKER_HOST", host)
		err := CheckContainers(t.Context(), nil, "redis")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), host) {
			t.Errorf("without an engine at %s: %v, want a message with %q", host, err, want)
		}
		if strings.Contains(want, "start") && !errors.Is(err, engine.ErrNone) {
			t.Errorf("without an engine at %s: %v, want ErrNone", host, err)
		}
	}
}

func TestFreePrefix(t *testing.T) {
	all := netip.MustParsePrefix("198.18.0.0/15")
	used := []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/0"), // that of a default route does not count
		netip.MustParsePrefix("198.18.0.0/16"),
		netip.MustParsePrefix("198.19.128.0/17"),
	}
	for range 100 {
		p, ok := freePrefix(used)
		if !ok || !all.Overlaps(p) || p.Bits() != prefixBits {
			t.Fatalf("freePrefix = %v, %v", p, ok)
		}
		for _, u := range used[1:] {
			if u.Overlaps(p) {
				t.Fatalf("%v overlaps with %v", p, u)
			}
		}
	}
	if p, ok := freePrefix([]netip.Prefix{all}); ok {
		t.Errorf("freePrefix = %v, where all are used", p)
	}
}

func TestPackedFolderIsUnpacked(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "data")
	for _, dir := range []string{filepath.Join(from, "sub"), to} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(from, "sub", "file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := pack(&archive, from, userID{999, 998}); err != nil {
		t.Fatal(err)
	}
	// An engine names what it packs from the folder on, not from the root.
	short := bytes.NewReader(archive.Bytes())
	if err := unpack(renamed(t, short, strings.TrimPrefix(filepath.Dir(from), "/")+"/"), to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, "sub", "file")); err != nil || string(got) != "text" {
		t.Errorf("unpacked %q, %v", got, err)
	}
	if err := unpack(renamed(t, bytes.NewReader(evil(t)), ""), to); err == nil {
		t.Error("an archive wrote outside of its folder")
	}
}
