//go:build linux

package netns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/nemesis"
)

func TestMain(m *testing.M) {
	selfexec.Register("test-unprivileged", unprivileged)
	selfexec.Register("test-abandon", abandon)
	selfexec.Register("test-pg-holder", pgHolder)
	selfexec.Main()
	os.Exit(m.Run())
}

func newTestNet(t testing.TB) *Net {
	t.Helper()
	if err := Available(); err != nil {
		if !strings.Contains(err.Error(), "unavailable") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	n, err := NewNet()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func node(t testing.TB, n *Net, name string) *Node {
	t.Helper()
	nd, err := n.Node(name)
	if err != nil {
		t.Fatal(err)
	}
	return nd
}

// oneWay checks drops of one flow in a network of two nodes.
func oneWay(n *Net) error {
	for _, name := range []string{"A", "s"} {
		if _, err := n.Node(name); err != nil {
			return err
		}
	}
	cut, back := Flow{"A", "s"}, Flow{"s", "A"}
	expect := func(when string, f Flow, want bool) error {
		wait := time.Duration(0)
		if !want {
			wait = 100 * time.Millisecond
		}
		if got, err := n.Ping(f, wait); err != nil || got != want {
			return fmt.Errorf("%s: a packet %s: arrived %v, %v", when, f, got, err)
		}
		return nil
	}
	errs := []error{expect("before", cut, true), expect("before", back, true)}
	errs = append(errs, n.Drop(cut), expect("during", cut, false), expect("during", back, true))
	if dropped, err := n.Dropped(cut); err != nil || dropped == 0 {
		errs = append(errs, fmt.Errorf("the firewall dropped %d, %v", dropped, err))
	}
	errs = append(errs, n.Heal(), n.Heal(), n.Heal(cut), expect("after", cut, true))
	if _, err := n.Dropped(cut); err == nil {
		errs = append(errs, errors.New("after: no error for the count of what is not dropped"))
	}
	return errors.Join(errs...)
}

func TestDropIsOfOneDirection(t *testing.T) {
	n := newTestNet(t)
	if err := oneWay(n); err != nil {
		t.Error(err)
	}
	if err := n.Drop(Flow{"A", "nobody"}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an unknown node: %v", err)
	}
	if err := n.Drop(Flow{"A", "A"}); err == nil {
		t.Error("a node was cut off from itself")
	}
	t.Log("netem:", n.Netem())
}

// Whoever is in no namespace can still serve nodes: what Listen returns is a port of
// the node, and as reachable as the node is.
func TestListenIsInTheNode(t *testing.T) {
	n := newTestNet(t)
	addr := node(t, n, "s").Addr
	l, err := n.Listen("s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	if at.Addr() != addr {
		t.Errorf("listens on %v, want %v", at.Addr(), addr)
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		_, _ = c.Write([]byte("here")) // whose arrival is the test
		c.Close()
	}()
	c, err := n.Dial(at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "here" {
		t.Errorf("read %q, %v", got, err)
	}
	if c, err := net.DialTimeout("tcp", at.String(), 200*time.Millisecond); err == nil {
		c.Close()
		t.Error("it is reached from outside of the network")
	}
	if _, err := n.Listen("nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an unknown node: %v", err)
	}
}

func TestDropByIptables(t *testing.T) {
	if _, err := exec.LookPath("iptables-restore"); err != nil {
		t.Skip("iptables is not installed")
	}
	n := newTestNet(t)
	n.firewall = iptables
	if err := oneWay(n); err != nil {
		t.Error(err)
	}
}

func TestCountsAreRead(t *testing.T) {
	want := map[netip.Addr]int64{netip.MustParseAddr("10.77.0.11"): 3}
	for name, tc := range map[string]struct {
		fw     firewall
		output string
	}{
		"nft": {nftables, "table ip lockcheck {\n\tchain in {\n\t\ttype filter hook input priority filter; policy accept;\n" +
			"\t\tip saddr 10.77.0.11 counter packets 3 bytes 180 drop\n\t}\n}\n"},
		"iptables": {iptables, "Chain INPUT (policy ACCEPT 0 packets, 0 bytes)\n    pkts      bytes target     prot opt in     out     source               destination\n" +
			"       3      180 DROP       0    --  *      *       10.77.0.11           0.0.0.0/0\n"},
	} {
		if got := tc.fw.count(tc.output); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCommandsRunInsideUnderTheirOwnID(t *testing.T) {
	n := newTestNet(t)
	a := node(t, n, "A")
	argv := a.Command(nil, "sh", "-c", "echo $$; exec ip -o -4 addr")
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, rest, _ := strings.Cut(string(out), "\n")
	if pid != fmt.Sprint(cmd.Process.Pid) {
		t.Errorf("it ran as process %s, and was started as %d", pid, cmd.Process.Pid)
	}
	if !strings.Contains(rest, a.Addr.String()) || strings.Count(rest, "\n") != 2 {
		t.Errorf("its addresses are not lo and %s: %s", a.Addr, rest)
	}
	if again := node(t, n, "A"); again != a {
		t.Error("asked again, there is another node A")
	}
}

// target is a node that faults can act on.
type target struct {
	name string
	net  *Net
}

func (t target) Name() string     { return t.name }
func (t target) Namespaces() *Net { return t.net }

func TestPacketsFault(t *testing.T) {
	n := newTestNet(t)
	for _, name := range []string{"A", "n1", "n2"} {
		node(t, n, name)
	}
	kind, err := nemesis.Find("packets")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		params map[string]string
		lost   string
	}{
		{nil, "[A->n1 n1->A n1->n2 n2->n1]"},
		{map[string]string{"direction": "to"}, "[A->n1 n2->n1]"},
		{map[string]string{"direction": "from", "peers": "n2"}, "[n1->n2]"},
	} {
		f, err := kind.New(tc.params)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		proof, err := f.Inject(t.Context(), []nemesis.Target{target{"n1", n}})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(time.Since(start), proof)
		var lost []string
		for _, from := range n.Nodes() {
			for _, to := range n.Nodes() {
				if from == to {
					continue
				}
				arrived, err := n.Ping(Flow{from, to}, 200*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				if !arrived {
					lost = append(lost, Flow{from, to}.String())
				}
			}
		}
		if got := fmt.Sprint(lost); got != tc.lost {
			t.Errorf("%v: lost %s, want %s", tc.params, got, tc.lost)
		}
		start = time.Now()
		for range 2 {
			proof, err := f.Heal(t.Context())
			if err != nil {
				t.Error(err)
			}
			t.Log(time.Since(start), proof)
		}
	}
	for _, bad := range []map[string]string{{"direction": "up"}, {"peers": ","}} {
		if _, err := kind.New(bad); err == nil {
			t.Errorf("no error for %v", bad)
		}
	}
	f, err := kind.New(map[string]string{"peers": "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Inject(t.Context(), []nemesis.Target{target{"n1", n}}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("an unknown peer: %v", err)
	}
}

// TestUnprivileged does the same as an ordinary user.
func TestUnprivileged(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("all tests run as an ordinary user already")
	}
	newTestNet(t)
	// That user may not reach the test's own binary.
	dir, err := os.MkdirTemp("", "lockcheck-netns")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "test-unprivileged")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 77 {
		t.Skip(string(out))
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func unprivileged([]string) int {
	if err := Available(); err != nil {
		fmt.Println(err)
		return 77
	}
	n, err := NewNet()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer n.Close()
	if err := oneWay(n); err != nil {
		fmt.Println(err)
		return 1
	}
	a, err := n.Node("A")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	argv := a.Command(nil, "sh", "-c", "id -u; ip -o -4 addr show eth0")
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "65534\n") || !strings.Contains(string(out), a.Addr.String()) {
		fmt.Printf("inside: %v: %s", err, out)
		return 1
	}
	return 0
}

// TestAKilledHarnessLeavesNothing: the hub ends by itself.
func TestAKilledHarnessLeavesNothing(t *testing.T) {
	newTestNet(t)
	argv, err := selfexec.Command("test-abandon")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var hub int
	if _, err := fmt.Fscan(bufio.NewReader(out), &hub); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", hub))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", hub)
		}
	}
}

func abandon([]string) int {
	n, err := NewNet()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	n.Node("A")
	n.Node("B")
	n.Drop(Flow{"A", "B"})
	fmt.Println(n.cmd.Process.Pid)
	select {}
}

func TestNetworksInARowLeaveNothing(t *testing.T) {
	newTestNet(t)
	goroutines := runtime.NumGoroutine()
	files, _ := os.ReadDir("/proc/self/fd")
	before := links(t)
	for range 5 {
		n, err := NewNet()
		if err != nil {
			t.Fatal(err)
		}
		if err := oneWay(n); err != nil {
			t.Error(err)
		}
		if err := errors.Join(n.Close(), n.Close()); err != nil {
			t.Error(err)
		}
		if _, err := n.Node("late"); err == nil {
			t.Error("a closed network made a node")
		}
	}
	if after := links(t); after != before {
		t.Errorf("links of the machine: before %s, after %s", before, after)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		now, _ := os.ReadDir("/proc/self/fd")
		if runtime.NumGoroutine() <= goroutines && len(now) <= len(files) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines and %d files, before: %d and %d", runtime.NumGoroutine(), len(now), goroutines, len(files))
		}
		time.Sleep(time.Millisecond)
	}
}

func links(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
	}
	return strings.Join(names, " ")
}

// TestHalfOpenTCPToPostgres is what a proxy can't show: the client is cut off
// without a word, and only keepalives tell the server.
func TestHalfOpenTCPToPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	bin := "/usr/lib/postgresql/15/bin"
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		t.Skip("PostgreSQL 15 is not installed")
	}
	data, as := pgData(t, bin)
	for _, tc := range []struct {
		name     string
		settings []string
		freed    bool
	}{
		{"keepalives 1/1/2", []string{"tcp_keepalives_idle=1", "tcp_keepalives_interval=1", "tcp_keepalives_count=2", "tcp_user_timeout=2000"}, true},
		{"defaults", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newTestNet(t)
			server, a := node(t, n, "pg"), node(t, n, "A")
			start(t, server, as, append([]string{filepath.Join(bin, "postgres"), "-D", data, "-p", "5432",
				"-c", "listen_addresses=" + server.Addr.String(), "-c", "unix_socket_directories=", "-c", "fsync=off"}, options(tc.settings)...)...)
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			b := connect(t, ctx, n, server.Addr)

			holder, err := selfexec.Command("test-pg-holder", server.Addr.String())
			if err != nil {
				t.Fatal(err)
			}
			out := start(t, a, nil, holder...)
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "true\n" {
				t.Fatalf("the holder says %q, %v", line, err)
			}
			if held, err := try(ctx, b); err != nil || held {
				t.Fatalf("before the cut: granted %v, %v", held, err)
			}
			cutAt := time.Now()
			if err := n.Drop(Flow{"A", "pg"}, Flow{"pg", "A"}); err != nil {
				t.Fatal(err)
			}
			freed := false
			for time.Since(cutAt) < 8*time.Second && !freed {
				if freed, err = try(ctx, b); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
			took := time.Since(cutAt)
			dropped, err := n.Dropped(Flow{"pg", "A"})
			t.Logf("freed: %v, after %v; packets of the server that were dropped: %d, %v", freed, took.Round(time.Millisecond), dropped, err)
			if freed != tc.freed {
				t.Errorf("freed: %v, want %v", freed, tc.freed)
			}
			if tc.freed && dropped == 0 {
				t.Error("no keepalive was dropped, so the cut was not what freed it")
			}
		})
	}
}

// pgData makes a cluster, and returns who may run it.
func pgData(t *testing.T, bin string) (string, *Credential) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lockcheck-netns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	cmd := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--no-sync")
	var as *Credential
	if os.Getuid() == 0 {
		const uid = 65534
		as = &Credential{uid, uid}
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	hba := "host all all 10.77.0.0/24 trust\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		t.Fatal(err)
	}
	return data, as
}

func options(settings []string) []string {
	var o []string
	for _, s := range settings {
		o = append(o, "-c", s)
	}
	return o
}

// start runs a command in a node until the test ends.
func start(t *testing.T, n *Node, as *Credential, argv ...string) io.Reader {
	t.Helper()
	argv = n.Command(as, argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = os.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGQUIT)
		cmd.Wait()
		if t.Failed() {
			t.Log(argv, log.String())
		}
	})
	return out
}

// connect waits until the server lets the harness in.
func connect(t *testing.T, ctx context.Context, n *Net, addr netip.Addr) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(fmt.Sprintf("postgres://postgres@%s:5432/postgres?sslmode=disable", addr))
	if err != nil {
		t.Fatal(err)
	}
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		return n.Dial(netip.AddrPortFrom(addr, 5432))
	}
	for {
		c, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			t.Cleanup(func() { c.Close(context.Background()) })
			return c
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func try(ctx context.Context, c *pgx.Conn) (granted bool, err error) {
	err = c.QueryRow(ctx, "SELECT pg_try_advisory_lock(1)").Scan(&granted)
	return granted, err
}

// pgHolder takes the lock and keeps it until it is killed.
func pgHolder(args []string) int {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@%s:5432/postgres?sslmode=disable", args[0]))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	granted, err := try(ctx, c)
	fmt.Println(granted)
	if err != nil || !granted {
		return 1
	}
	select {}
}
