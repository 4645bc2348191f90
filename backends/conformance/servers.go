package conformance

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
)

// Servers starts the servers of a backend for the time of the test, and skips
// it if one is not installed.
func Servers(t *testing.T, b backends.Backend, o backends.Options) []backends.Endpoint {
	t.Helper()
	local, err := deploy.NewLocal(deploy.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	nodes, err := local.Start(t.Context(), b.Servers(o))
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("%v (lockcheck doctor says how to install it)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	endpoints := make([]backends.Endpoint, len(nodes))
	for i, n := range nodes {
		endpoints[i] = n.Endpoint()
	}
	return endpoints
}
