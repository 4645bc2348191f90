// Package clients_test runs the adapters of this folder against real servers:
// each must keep to the protocol, and do in the scenarios what its lock can.
package clients_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	_ "github.com/lockcheck/lockcheck/backends/all"
	"github.com/lockcheck/lockcheck/backends/conformance"
	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/internal/client/protocolcheck"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // with -race each client would end a second late
	status := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(status)
}

// adapter is one of this folder.
type adapter struct {
	name    string
	backend string
	command func(*testing.T) []string // builds or installs what it needs, or skips
	args    []string
	// conforms says that the whole conformance suite is run with it, too: one of
	// a language, since it takes some twenty processes at a time.
	conforms bool
	// fence is the verdict on property fence under gc-pause.
	fence checker.Verdict
}

func adapters() []adapter {
	const violated, held = checker.Violated, checker.Held
	return []adapter{
		{"go/redsync", "redis", golang("redsync"), nil, true, violated},
		{"go/redsync -until", "redis", golang("redsync"), []string{"-until"}, false, held},
		{"go/redlock of five", "redlock", golang("redsync"), nil, false, violated},
		{"go/redislock", "redis", golang("redislock"), nil, false, violated},
		{"go/etcd", "etcd", golang("etcd"), nil, true, violated},
		{"go/goredis", "redis", golang("goredis"), nil, false, violated},
		{"go/pgx", "postgres-session", golang("pgx"), nil, false, violated},
		{"python/redis_lock.py", "redis", python("redis_lock.py", "redis"), nil, true, violated},
		{"python/postgres_lock.py", "postgres-session", python("postgres_lock.py", "psycopg2"), nil, false, violated},
		{"node/redlock.js", "redis", node("redlock.js"), nil, false, violated},
		{"node/ioredis.js", "redis", node("ioredis.js"), nil, false, violated},
		{"java/RedisLock.java", "redis", java("RedisLock"), nil, false, violated},
		{"shell/etcdctl.sh", "etcd", shell("etcdctl.sh", "jq", "curl", "etcdctl"), nil, false, violated},
	}
}

// find skips the test where the backend is not part of this program.
func find(t *testing.T, name string) backends.Backend {
	t.Helper()
	b, err := backends.Find(name)
	if err != nil {
		t.Skip(err)
	}
	return b
}

func TestAdaptersKeepToTheProtocol(t *testing.T) {
	for _, a := range adapters() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			b := find(t, a.backend)
			command := append(a.command(t), a.args...)
			keeps(t, command, conformance.Servers(t, b, backends.Options{TTL: time.Second}), b)
		})
	}
}

// Templates are locks that are files: they need no server.
func TestTemplatesKeepToTheProtocol(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // where their files are
	for name, command := range map[string]func(*testing.T) []string{
		"go": golang("template"), "python": python("template.py", "json"), "node": node("template.js"),
		"shell": shell("template.sh", "jq", "curl", "flock"),
	} {
		t.Run(name, func(t *testing.T) { keeps(t, command(t), nil, backends.Backend{}) })
	}
}

func keeps(t *testing.T, command []string, servers []backends.Endpoint, b backends.Backend) {
	t.Helper()
	ttl := time.Second
	if b.MinTTL != nil {
		ttl = max(ttl, b.MinTTL(backends.Options{TTL: ttl}))
	}
	right := 0
	err := protocolcheck.Run(t.Context(), protocolcheck.Options{
		Command: command, Servers: servers, TTL: ttl, Patience: 20 * time.Second, Dir: t.TempDir(),
		Report: func(l protocolcheck.Line) {
			switch l.Result {
			case protocolcheck.Right:
				right++
			case protocolcheck.Wrong, protocolcheck.Note:
				t.Errorf("%s %s: %s\n%s", l.Result, l.What, l.Why, strings.Join(l.Messages, "\n"))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if right < 10 {
		t.Errorf("only %d things are right", right)
	}
}

func TestAdaptersConform(t *testing.T) {
	for _, a := range adapters() {
		if !a.conforms {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			b := find(t, a.backend)
			b.Resource = "" // its writes go to the resource that all have
			conformance.Run(t, conformance.Subject{
				Backend: b,
				Command: append(a.command(t), a.args...),
				Servers: conformance.Servers(t, b, backends.Options{}),
				TTL:     2 * time.Second,
			})
		})
	}
}

// Without a fault nothing may be violated. With a holder that is frozen past its
// lease, the second client is granted the lock, as the first believes that it
// still holds.
func TestAdaptersInScenarios(t *testing.T) {
	cache := deploy.NewCache()
	t.Cleanup(func() {
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, a := range adapters() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			b := find(t, a.backend)
			command := append(a.command(t), a.args...)
			run := func(scenario string, ttl time.Duration) *reports.Run {
				sc, err := scenarios.LoadAll(scenario)
				if err != nil {
					t.Fatal(err)
				}
				r, err := harness.Run(t.Context(), sc[0], harness.Options{
					Backend: b, Resource: "unfenced", TTL: ttl, Seed: 1, Repeat: 1, Client: command, Cache: cache, Out: t.TempDir(),
				})
				if errors.Is(err, exec.ErrNotFound) {
					t.Skipf("%v (lockcheck doctor says how to install it)", err)
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.Status == reports.Error || r.Status == reports.Inconclusive {
					t.Fatalf("%s: %s: %v", scenario, r.Status, r.Reasons)
				}
				return r
			}
			// On a busy machine a short lease would end by itself.
			if r := run("no-fault", 10*time.Second); r.Status != reports.Pass {
				t.Errorf("no-fault: %s: %s", r.Status, r.Outline())
			}
			if r := run("gc-pause", 0); r.Verdict(checker.Fence) != a.fence || r.Verdict(checker.Lease) == checker.Violated {
				t.Errorf("gc-pause: %s, want fence %s", r.Outline(), a.fence)
			}
		})
	}
}

// built are the programs of the Go module, built once.
var built struct {
	sync.Once
	dir string
	err error
}

// golang builds the Go module, which is one of its own.
func golang(name string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		built.Do(func() {
			if built.dir, built.err = os.MkdirTemp("", "lockcheck-clients-"); built.err != nil {
				return
			}
			build := exec.Command("go", "build", "-o", built.dir+"/", "./...")
			build.Dir = "go"
			if out, err := build.CombinedOutput(); err != nil {
				built.err = errors.New(strings.TrimSpace(string(out)))
			}
		})
		if built.err != nil {
			t.Skipf("the Go module cannot be built: %v", built.err)
		}
		return []string{filepath.Join(built.dir, name)}
	}
}

func python(file, module string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		for _, p := range []string{"python3", "/usr/bin/python3"} {
			if exec.Command(p, "-c", "import "+module).Run() == nil {
				return []string{p, absolute(t, "python", file)}
			}
		}
		t.Skipf("no python3 with %s (Debian: apt install python3-%s)", module, module)
		return nil
	}
}

var installed struct {
	sync.Once
	err error
}

// node installs the packages that package-lock.json names.
func node(file string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		installed.Do(func() {
			if _, err := os.Stat("node/node_modules/redlock"); err == nil {
				return
			}
			install := exec.Command("npm", "ci", "--no-audit", "--no-fund")
			install.Dir = "node"
			if out, err := install.CombinedOutput(); err != nil {
				installed.err = errors.New("npm ci: " + err.Error() + " " + strings.TrimSpace(string(out)))
			}
		})
		if installed.err != nil {
			t.Skip(installed.err)
		}
		return []string{"node", absolute(t, "node", file)}
	}
}

func java(class string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		dir := t.TempDir()
		if out, err := exec.Command("javac", "-d", dir, filepath.Join("java", class+".java")).CombinedOutput(); err != nil {
			if errors.Is(err, exec.ErrNotFound) {
				t.Skip("no javac (Debian: apt install default-jdk-headless)")
			}
			t.Fatalf("javac: %s", out)
		}
		return []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", dir, class}
	}
}

func shell(file string, needs ...string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		for _, program := range needs {
			if _, err := exec.LookPath(program); err != nil {
				t.Skipf("no %s", program)
			}
		}
		return []string{"bash", absolute(t, "shell", file)}
	}
}

func absolute(t *testing.T, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
