package deploy

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/keeper"
)

// TestKeptContainer has what a keeper is there for: a server that is killed leaves its
// container, with its address, where connections are refused; and when the harness is
// gone nothing goes on.
func TestKeptContainer(t *testing.T) {
	l, run := newContained(t, "redis")
	if err := run.Patched(); err != nil {
		t.Skip(err)
	}
	n := start(t, l, one("redis"))[0]
	c := n.body.(*container)
	u, err := url.Parse(n.Endpoint().URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", u.Host, 10*time.Second)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to a server that was killed: %v, want it refused", err)
	}
	if err := n.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}

	// Not by us: as when the kernel is out of memory.
	pids, err := n.PIDs()
	if err != nil || len(pids) != 1 {
		t.Fatalf("PIDs = %v, %v; want that of the server and not the keeper's", pids, err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Skip(err) // not root
	}
	select {
	case <-n.Exited():
		if err := n.Err(); !strings.Contains(err.Error(), "signal: killed") || !strings.Contains(err.Error(), "Ready to accept connections") {
			t.Errorf("Err = %v, want how it ended, and its log", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody saw that the server has ended")
	}

	if err := n.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := c.leave(); err != nil { // which is all that a harness that is killed does
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := run.engine.Wait(ctx, c.id); err != nil {
		t.Errorf("the container goes on without the harness: %v", err)
	}
}

func TestKeeperOnAnotherMachine(t *testing.T) {
	if _, err := findKeeper(t.Context(), false); err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("findKeeper = %v, want why there is none", err)
	}
}

// TestKeeperHasWhatItLoads runs this program from what containers are given of it.
func TestKeeperHasWhatItLoads(t *testing.T) {
	k, err := findKeeper(t.Context(), true)
	if err != nil {
		t.Skip(err)
	}
	root := t.TempDir()
	for at, source := range k.mounts {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(at)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(source, filepath.Join(root, at)); err != nil {
			t.Fatal(err)
		}
	}
	var argv []string
	for _, a := range k.argv {
		if strings.HasPrefix(a, keeperDir) {
			a = filepath.Join(root, a)
		}
		argv = append(argv, a)
	}
	cmd := exec.Command(argv[0], append(argv[1:], keeper.Role)...)
	text, _ := cmd.CombinedOutput()
	if !strings.Contains(string(text), "want the path of a socket and a command") {
		t.Errorf("%v says %q, want what the keeper says without arguments", argv, text)
	}
}
