package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Register("test-harness", harness)
	Register(Software{Name: "test-service", Serve: serveNothing})
	selfexec.Main()
	status := m.Run()
	if err := cache.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// cache spares the tests an initdb each.
var cache = NewCache()

// one returns a server of a software.
func one(software string, options ...string) []backends.Server {
	s := backends.Server{Name: software, Software: software, Options: map[string]string{}}
	for i := 0; i < len(options); i += 2 {
		s.Options[options[i]] = options[i+1]
	}
	return []backends.Server{s}
}

func etcds(n int) []backends.Server {
	var all []backends.Server
	for i := range n {
		all = append(all, backends.Server{Name: fmt.Sprintf("etcd-%d", i+1), Software: "etcd", Options: map[string]string{
			"heartbeat-interval": "50", "election-timeout": "500",
		}})
	}
	return all
}
func newLocal(t *testing.T, bin map[string]string) *Local {
	t.Helper()
	l, err := NewLocal(Options{Dir: t.TempDir(), Bin: bin, Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		if _, err := os.Stat(l.root); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Close left %s behind", l.root)
		}
	})
	return l
}

func start(t *testing.T, l *Local, servers []backends.Server) []*Node {
	t.Helper()
	began := time.Now()
	nodes, err := l.Start(t.Context(), servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %s %s started in %v", len(nodes), nodes[0].Software(), nodes[0].Version(), time.Since(began).Round(time.Millisecond))
	return nodes
}

func need(t *testing.T, software string) {
	t.Helper()
	if _, err := Find(t.Context(), software, ""); err != nil {
		t.Skipf("needs %s: %v", software, err)
	}
}

func pids(t *testing.T, n *Node) []int {
	t.Helper()
	all, err := n.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// alive reports whether a process exists that is not a zombie.
func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}

// eventually waits for ok, for as long as it takes a busy machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never seen: " + what)
		}
	}
}

// lifecycle is what holds for every server that is a process.
func lifecycle(t *testing.T, l *Local, n *Node, put func(url string) error, get func(url string) (bool, error), keeps bool) {
	t.Helper()
	url := n.Endpoint().URL
	check := func(when string, want bool) {
		t.Helper()
		got, err := get(url)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got != want {
			t.Errorf("%s: the data is there: %v, want %v", when, got, want)
		}
	}
	if n.Version() == "" {
		t.Error("no version")
	}
	check("at first", false)
	if err := put(url); err != nil {
		t.Fatal(err)
	}
	check("after a put", true)

	before := pids(t, n)
	if len(before) == 0 {
		t.Fatal("it has no processes")
	}
	if err := n.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range before {
		if alive(pid) {
			t.Errorf("process %d outlived Kill", pid)
		}
	}
	if err := n.Kill(t.Context()); err != nil {
		t.Errorf("Kill of a killed server = %v", err)
	}
	if got := pids(t, n); len(got) != 0 {
		t.Errorf("PIDs of a killed server = %v", got)
	}

	began := time.Now()
	if err := n.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted with data in %v", time.Since(began).Round(time.Millisecond))
	check("restarted with its data", keeps)
	if err := put(url); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err := n.Restart(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted without data in %v", time.Since(began).Round(time.Millisecond))
	check("restarted without its data", false)
	if got := n.Endpoint().URL; got != url {
		t.Errorf("its URL was %s and is %s", url, got)
	}
	select {
	case <-n.Exited():
		t.Errorf("Exited says that it ended by itself: %v", n.Err())
	default:
	}

	for _, pid := range pids(t, n) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
	select {
	case <-n.Exited():
	case <-time.After(10 * time.Second):
		t.Fatal("Exited did not tell")
	}
	if err := n.Err(); err == nil || !strings.Contains(err.Error(), "signal: killed") || !strings.Contains(err.Error(), n.Log()) {
		t.Errorf("Err = %v, want how it ended and the end of %s", err, n.Log())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Restart(t.Context(), true); !errors.Is(err, errClosed) {
		t.Errorf("Restart after Close = %v", err)
	}
}

func TestCloseStopsEverythingAndIsIdempotent(t *testing.T) {
	need(t, "redis")
	l := newLocal(t, nil)
	n := start(t, l, one("redis"))[0]
	before := pids(t, n)
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if slices.ContainsFunc(before, alive) {
		t.Error("the server is still there")
	}
	if _, err := os.Stat(n.Log()); err != nil {
		t.Errorf("the log is gone: %v", err)
	}
	if _, err := l.Start(t.Context(), one("redis")); !errors.Is(err, errClosed) {
		t.Errorf("Start after Close = %v", err)
	}
}

// A signal handler closes while the main goroutine waits for a server that
// will never be ready.
func TestCloseEndsAStart(t *testing.T) {
	l := newLocal(t, map[string]string{"redis": script(t, `[ "$1" = --version ] && echo v=7.0 && exit; exec sleep 1000`)})
	failed := make(chan error, 1)
	go func() {
		_, err := l.Start(t.Context(), one("redis"))
		failed <- err
	}()
	eventually(t, "the program started", func() bool {
		_, err := os.Stat(filepath.Join(l.options.Dir, "redis.log"))
		return err == nil
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, errClosed) {
		t.Errorf("Start = %v", err)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	l := newLocal(t, map[string]string{"redis": script(t, `[ "$1" = --version ] && echo v=7.0 && exit; exec sleep 1000`)})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.Start(ctx, one("redis")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start = %v", err)
	}
}

// script writes an executable that the shell runs.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatCannotBeStartedIsExplained(t *testing.T) {
	dies := script(t, `[ "$1" = --version ] && echo v=7.0 && exit; echo first; echo 'cannot go on'; exit 3`)
	tests := []struct {
		name    string
		bin     map[string]string
		servers []backends.Server
		want    []string
	}{
		{"no such program", map[string]string{"redis": "/no/such/redis-server"}, one("redis"), []string{"/no/such/redis-server", "no such file"}},
		{"not a program", map[string]string{"redis": script(t, "echo hello")}, one("redis"), []string{"no version in it", "hello"}},
		{"dies at start", map[string]string{"redis": dies}, one("redis"), []string{"redis ended while it started", "exit status 3", "cannot go on"}},
		{"unknown software", nil, one("oracle"), []string{`unknown software "oracle"`, "there are etcd, "}},
		{"bad name", nil, []backends.Server{{Name: "../x", Software: "redis"}}, []string{`server name "../x"`}},
		{"same name", nil, append(one("test-service"), one("test-service")...), []string{`two servers named "test-service"`}},
		{"reserved option", nil, one("redis", "port", "6379"), []string{`"port"`, "set by lockcheck itself"}},
		{"line break", nil, one("redis", "save", "1 1\nport 6379"), []string{"line break"}},
		{"unknown redis option", nil, one("redis", "no-such-directive", "1"), []string{"redis ended while it started", "no-such-directive"}},
		{"unknown etcd option", nil, one("etcd", "no-such-option", "1"), []string{`etcd has no option "no-such-option"`}},
		{"bad etcd option", nil, one("etcd", "election-timeout", "soon"), []string{`"soon" is not a whole number`}},
		{"unknown postgres setting", nil, one("postgres", "no_such_setting", "1"), []string{"postgres ended while it started", "no_such_setting"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if s := tt.servers[0].Software; tt.bin == nil && software[s].Name != "" {
				need(t, s)
			}
			l := newLocal(t, tt.bin)
			_, err := l.Start(t.Context(), tt.servers)
			if err == nil {
				t.Fatal("Start gave no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Start = %v\nwant %q in it", err, want)
				}
			}
			if len(l.nodes) != 0 {
				t.Errorf("nodes are left: %v", l.nodes)
			}
		})
	}
}

func TestUnusableFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "logs")} {
		if _, err := NewLocal(Options{Dir: dir}); err == nil {
			t.Errorf("NewLocal in %q gave no error", dir)
		}
	}
	if _, err := NewLocal(Options{Dir: t.TempDir(), Bin: map[string]string{"oracle": "x"}}); err == nil {
		t.Error("a program for an unknown software gave no error")
	}
}

// If another program takes the port between its choice and its use, another is
// tried, and nobody talks to the other program.
func TestTakenPortIsGivenUp(t *testing.T) {
	for _, s := range []string{"redis", "etcd", "postgres"} {
		t.Run(s, func(t *testing.T) {
			need(t, s)
			foreign, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer foreign.Close()
			taken := foreign.Addr().(*net.TCPAddr).Port
			go func() { // is there and says nothing
				for {
					c, err := foreign.Accept()
					if err != nil {
						return
					}
					defer c.Close()
				}
			}()

			l := newLocal(t, nil)
			first := true
			take := l.ports.take
			l.port = func() (int, error) {
				if first {
					first = false
					return taken, nil
				}
				return take()
			}
			n := start(t, l, one(s))[0]
			if first {
				t.Fatal("the port was never given out")
			}
			if strings.Contains(n.Endpoint().URL, fmt.Sprintf(":%d", taken)) {
				t.Errorf("the server is at %s, which is another's", n.Endpoint().URL)
			}
			// It says so when there is no way out.
			l.port = func() (int, error) { return taken, nil }
			again := one(s)
			again[0].Name = "again"
			_, err = l.Start(t.Context(), again)
			if want := fmt.Sprintf("port %d of again is taken", taken); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Start = %v, want %q in it", err, want)
			}
		})
	}
}

func TestPortsAreOutsideTheKernelsRange(t *testing.T) {
	tests := []struct{ first, last, low, high int }{
		{32768, 60999, 10000, 32768},
		{49152, 65535, 10000, 32768},
		{20000, 60999, 10000, 20000},
		{1024, 60999, 61000, 65536},
		{1024, 65535, 10000, 32768}, // no room: as good as any
	}
	for _, tt := range tests {
		p := &ports{low: 10000, high: 32768}
		p.outside(tt.first, tt.last)
		if p.low != tt.low || p.high != tt.high {
			t.Errorf("outside(%d, %d): [%d, %d), want [%d, %d)", tt.first, tt.last, p.low, p.high, tt.low, tt.high)
		}
	}
}

func TestPortsAreGivenOutOnce(t *testing.T) {
	a, b := newPorts(), newPorts()
	defer a.close()
	defer b.close()
	// Few enough that they must meet.
	for _, p := range []*ports{a, b} {
		p.low, p.high = 10000, 10020
	}
	seen := map[int]bool{}
	for range 8 {
		for _, p := range []*ports{a, b} {
			port, err := p.take()
			if err != nil {
				t.Skipf("others use these ports: %v", err)
			}
			if seen[port] {
				t.Errorf("port %d is given out twice", port)
			}
			seen[port] = true
		}
	}
}

// serveNothing is a server inside the harness that accepts and closes.
func serveNothing(l net.Listener, options map[string]string) (string, func() error, error) {
	if options["fail"] != "" {
		return "", nil, errors.New(options["fail"])
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return "test://" + l.Addr().String(), l.Close, nil
}

func TestServerInsideTheHarness(t *testing.T) {
	l := newLocal(t, nil)
	n := start(t, l, one("test-service"))[0]
	addr := strings.TrimPrefix(n.Endpoint().URL, "test://")
	serves := func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	if !serves() {
		t.Errorf("nothing is at %s", addr)
	}
	if _, err := n.PIDs(); err == nil {
		t.Error("PIDs gave no error")
	}
	for range 2 {
		if err := n.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if serves() {
		t.Error("it serves after Kill")
	}
	if err := n.Restart(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if !serves() || n.Endpoint().URL != "test://"+addr {
		t.Errorf("after a restart it is at %s and serves: %v", n.Endpoint().URL, serves())
	}
	if _, err := l.Start(t.Context(), []backends.Server{{Name: "b", Software: "test-service", Options: map[string]string{"fail": "no luck"}}}); err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("Start = %v", err)
	}
}

// left is what a harness of a test would leave behind.
type left struct {
	PIDs     []int
	Dirs     []string
	Segments []string
}

// harness starts one of everything there is, stops some of the processes, and
// waits to be killed.
func harness(args []string) int {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	ctx := context.Background()
	l, err := NewLocal(Options{Dir: args[0], Bin: map[string]string{"etcd": embedded}})
	if err != nil {
		return fail(err)
	}
	servers := etcds(3)
	for _, s := range []string{"redis", "postgres"} {
		if _, err := Find(ctx, s, ""); err == nil {
			servers = append(servers, one(s)...)
		}
	}
	nodes, err := l.Start(ctx, servers)
	if err != nil {
		return fail(err)
	}
	x := left{Dirs: []string{l.root}}
	for _, t := range l.cache.templates {
		x.Dirs = append(x.Dirs, t.root)
	}
	for _, n := range nodes {
		pids, err := n.PIDs()
		if err != nil {
			return fail(err)
		}
		x.PIDs = append(x.PIDs, pids...)
		if p, ok := n.body.(*process).program.(*postgres); ok {
			lines, err := p.pidLines()
			if err != nil {
				return fail(err)
			}
			x.Segments = append(x.Segments, strings.Fields(lines[6])[1])
		}
		// Of Postgres a child, which is in a group of its own: it can't see
		// that its parent dies.
		_ = syscall.Kill(slices.Max(pids), syscall.SIGSTOP)
	}
	if err := json.NewEncoder(os.Stdout).Encode(x); err != nil {
		return fail(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func TestNothingOutlivesAKilledHarness(t *testing.T) {
	argv, err := selfexec.Command("test-harness", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var x left
	err = json.NewDecoder(stdout).Decode(&x)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if len(x.PIDs) < 3 {
		t.Fatalf("only processes %v were started", x.PIDs)
	}
	t.Logf("%d processes", len(x.PIDs))
	eventually(t, "no process left", func() bool { return !slices.ContainsFunc(x.PIDs, alive) })
	eventually(t, "no folder left", func() bool {
		return !slices.ContainsFunc(x.Dirs, func(dir string) bool {
			_, err := os.Stat(dir)
			return err == nil
		})
	})
	eventually(t, "no shared memory left", func() bool {
		return !slices.ContainsFunc(x.Segments, func(id string) bool { return slices.Contains(sharedMemory(t), id) })
	})
}

// sharedMemory lists the System V shared memory segments, where that can be
// told.
func sharedMemory(t *testing.T) []string {
	b, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var ids []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 {
			ids = append(ids, f[1])
		}
	}
	return ids
}
