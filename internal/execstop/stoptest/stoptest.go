// Package stoptest starts servers for tests, with what package execstop puts
// into them. A server ends with its test.
package stoptest

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// Need returns the path of a program, or skips the test.
func Need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(err)
	}
	return path
}

// FreePort returns a port of the loopback that was free a moment ago.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Eventually waits for what is tried to succeed, such as a server to answer.
func Eventually(t testing.TB, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Start starts a server with the patches.
func Start(t testing.TB, cmd *exec.Cmd, patches ...execstop.Patch) {
	t.Helper()
	if err := guard.StartBy(cmd, func() error { return execstop.Start(cmd, execstop.Options{}, patches...) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := guard.Kill(context.Background(), cmd); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed, or ended as some tests want
		guard.Forget(cmd)
	})
}

// Redis starts a Redis server with the patches and further arguments, and
// returns once it answers.
func Redis(t testing.TB, patches []execstop.Patch, args ...string) (*exec.Cmd, *redis.Client) {
	t.Helper()
	port := FreePort(t)
	cmd := exec.Command(Need(t, "redis-server"), append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()}, args...)...)
	Start(t, cmd, patches...)
	db := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, MaxRetries: -1, ReadTimeout: 10 * time.Second})
	t.Cleanup(func() { db.Close() })
	Eventually(t, func(ctx context.Context) error { return db.Ping(ctx).Err() })
	return cmd, db
}
