package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy/engine"
	"github.com/lockcheck/lockcheck/internal/execstop"
)

// Check is what was found of one thing that runs may need.
type Check struct {
	Name    string `json:"name"`
	Found   bool   `json:"found"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	// Problem says why it does not count as found: it is missing, or it is
	// there and does not work.
	Problem string `json:"problem,omitempty"`
	// Disables says what cannot be done without it.
	Disables string `json:"disables,omitempty"`
	// Install is the command that installs it, or a sentence about what to
	// do; "" if there is nothing to do.
	Install string `json:"install,omitempty"`
}

// wanted is something that Doctor looks for.
type wanted struct {
	name     string
	disables string
	find     func(context.Context) (Binary, error)
	packages map[string]string // package manager → what to install
	hint     string            // if no package manager is known
}

// managers are package managers with their commands, in the order in which
// they are looked for.
var managers = []struct{ program, command string }{
	{"apt-get", "apt-get install -y"},
	{"dnf", "dnf install -y"},
	{"apk", "apk add"},
	{"brew", "brew install"},
}

// Doctor looks for everything that runs may need on this machine. The order is
// that in which people want to read it.
func Doctor(ctx context.Context) []Check {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all := wants()
	checks := make([]Check, len(all))
	var wg sync.WaitGroup
	for i, w := range all {
		wg.Go(func() { checks[i] = w.check(ctx) })
	}
	wg.Wait()
	return checks
}

func wants() []wanted {
	named := func(name string) func(context.Context) (Binary, error) {
		return func(ctx context.Context) (Binary, error) { return Find(ctx, name, "") }
	}
	tool := func(name, flag, pattern string) func(context.Context) (Binary, error) {
		return func(ctx context.Context) (Binary, error) {
			path, err := locate("", name, usual(name)...)
			if err != nil {
				return Binary{}, err
			}
			v, err := version(ctx, path, flag, regexp.MustCompile(pattern))
			return Binary{Path: path, Version: v}, err
		}
	}
	return []wanted{
		{
			name: "redis-server", find: named("redis"), disables: "all backends on Redis",
			packages: map[string]string{"apt-get": "redis-server", "dnf": "redis", "apk": "redis", "brew": "redis"},
			hint:     "install Redis 6.2 or later",
		}, {
			name: "etcd", find: named("etcd"), disables: "nothing: the embedded etcd is used",
			packages: map[string]string{"apt-get": "etcd-server", "dnf": "etcd", "apk": "etcd", "brew": "etcd"},
			hint:     "nothing has to be done",
		}, {
			name: "postgres", find: named("postgres"), disables: "all backends on Postgres, and the postgres resource",
			packages: map[string]string{"apt-get": "postgresql", "dnf": "postgresql-server", "apk": "postgresql", "brew": "postgresql"},
			hint:     "install PostgreSQL 12 or later",
		}, {
			name: "pgbouncer", find: tool("pgbouncer", "--version", `PgBouncer (\S+)`), disables: "scenarios with a connection pool",
			packages: map[string]string{"apt-get": "pgbouncer", "dnf": "pgbouncer", "apk": "pgbouncer", "brew": "pgbouncer"},
			hint:     "install PgBouncer",
		}, {
			name: "docker", find: tool("docker", "--version", `Docker version ([^,\s]+)`), disables: "the docker runtime",
			packages: map[string]string{"apt-get": "docker.io", "dnf": "moby-engine", "apk": "docker", "brew": "--cask docker"},
			hint:     "install Docker",
		}, {
			name: "docker compose", find: composePlugin, disables: "the docker runtime",
			// Not by the package manager: the package has another name in each release.
			hint: "install Docker's compose plugin (such as docker-compose-v2), or run scripts/docker-engine",
		}, {
			name: "container engine", find: containerEngine, disables: "the docker runtime",
			hint: "start Docker, run scripts/docker-engine, or say with DOCKER_HOST where an engine is",
		}, {
			name: "network namespaces", find: namespaces, disables: "network faults at packet level; those through proxies work",
			hint: "run as root, or allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)",
		}, {
			name: "clock injection", find: clocks, disables: "clock faults",
			hint: "run on Linux on amd64",
		}, {
			name: "user for Postgres", find: anotherUser, disables: "all backends on Postgres, and the postgres resource",
			hint: "add a user named postgres, or do not run as root",
		},
	}
}

func (w wanted) check(ctx context.Context) Check {
	c := Check{Name: w.name}
	bin, err := w.find(ctx)
	if err == nil {
		c.Found, c.Path, c.Version = true, bin.Path, bin.Version
		return c
	}
	c.Problem, c.Disables, c.Install = err.Error(), w.disables, w.install()
	return c
}

// install returns the command for the package manager of this machine.
func (w wanted) install() string {
	for _, m := range managers {
		if _, err := exec.LookPath(m.program); err != nil {
			continue
		}
		pkg, ok := w.packages[m.program]
		if !ok {
			break
		}
		sudo := ""
		if os.Geteuid() != 0 && m.program != "brew" {
			sudo = "sudo "
		}
		return fmt.Sprintf("%s%s %s", sudo, m.command, pkg)
	}
	return w.hint
}

// composePlugin looks for the compose plugin of the docker command.
func composePlugin(ctx context.Context) (Binary, error) {
	v, err := composeVersion(ctx)
	return Binary{Version: v}, err
}

// containerEngine looks for an engine that answers. Its path is where it does.
func containerEngine(ctx context.Context) (Binary, error) {
	e, err := engine.Connect(ctx)
	if err != nil {
		return Binary{}, err
	}
	i := e.Info()
	if i.OS != "linux" {
		return Binary{}, fmt.Errorf("the engine at %s runs containers of %s, and the servers need linux", e.At(), i.OS)
	}
	b := Binary{Path: e.At(), Version: i.Version}
	if i.Podman {
		b.Version = "Podman " + b.Version
	}
	if !e.Here() {
		b.Path += "  (another machine: faults of the network by proxies, of clocks and of disks, and kills are not available)"
	}
	return b, nil
}

// namespaces reports whether a network namespace can be made, by making one.
func namespaces(ctx context.Context) (Binary, error) {
	if runtime.GOOS != "linux" {
		return Binary{}, fmt.Errorf("%s has no network namespaces", runtime.GOOS)
	}
	path, err := exec.LookPath("unshare")
	if err != nil {
		return Binary{}, err
	}
	flags := "-n"
	if os.Geteuid() != 0 {
		flags = "-Urn"
	}
	_, err = output(ctx, exec.Command(path, flags, "true"))
	return Binary{}, err
}

// clocks reports whether the clock of a single process can be changed.
func clocks(context.Context) (Binary, error) {
	return Binary{}, execstop.Available()
}

// anotherUser reports whether Postgres can be run as somebody who is not root.
func anotherUser(context.Context) (Binary, error) {
	_, err := postgresOwner()
	return Binary{}, err
}
