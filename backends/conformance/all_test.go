package conformance_test

import (
	"os"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	_ "github.com/lockcheck/lockcheck/backends/all"
	"github.com/lockcheck/lockcheck/backends/conformance"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // with -race each client would end a second late
	os.Exit(m.Run())
}

// exempt are backends that are no locks, or are known not to be safe ones: what
// is promised of them is tested where they are.
var exempt = map[string]string{
	"pgbouncer-transaction-session": "a session's lock does not survive pooling by transaction",
	"pgbouncer-small-session":       "clients that stay connected exhaust its pool",
	"postgres-session-rollback":     "its transaction fails",
	"postgres-session-stacked":      "it can be taken twice",
	"postgres-xact-rollback":        "its lock ends with its transaction, at once",
	"redis-del":                     "its release deletes what others have",
	"redis-get-del":                 "its release may delete what others have",
	"etcd-member":                   "it reaches one member alone, as Jepsen's clients did",
	"etcd-member-unchecked":         "it does not look whether its lease still stands",
	"conditional-write":             "its acquire excludes nobody",
	"idempotency-key":               "its acquire excludes nobody",
	"unique-constraint":             "its claims are for good",
}

func TestBackends(t *testing.T) {
	for _, name := range backends.Names() {
		t.Run(name, func(t *testing.T) { runOn(t, name, conformance.Servers) })
	}
}

// TestBackendsInContainers has the servers in containers: of two backends, or with
// LOCKCHECK_DOCKER_TESTS set of all.
func TestBackendsInContainers(t *testing.T) {
	names := []string{"redis", "etcd"}
	if os.Getenv("LOCKCHECK_DOCKER_TESTS") != "" {
		names = backends.Names()
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			runOn(t, name, conformance.Containers)
		})
	}
}

// runOn runs the suite on a backend, whose servers are started by one of Servers and
// Containers.
func runOn(t *testing.T, name string, start func(*testing.T, backends.Backend, backends.Options) []backends.Endpoint) {
	if why := exempt[name]; why != "" {
		t.Skip(why)
	}
	b, err := backends.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	command, err := selfexec.Command("worker", name)
	if err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, conformance.Subject{Backend: b, Servers: start(t, b, backends.Options{}), Command: command})
}
