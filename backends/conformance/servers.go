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
	return serve(t, b.Servers(o), deploy.Options{})
}

// Containers starts the servers of a backend as containers for the time of the test,
// and skips it where there is no engine, or no image.
func Containers(t *testing.T, b backends.Backend, o backends.Options) []backends.Endpoint {
	t.Helper()
	servers := b.Servers(o)
	var software []string
	for _, s := range servers {
		software = append(software, s.Software)
	}
	if err := deploy.CheckContainers(t.Context(), nil, software...); err != nil {
		t.Skip(err)
	}
	c, err := deploy.NewContainers(t.Context(), deploy.ContainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, servers, deploy.Options{Containers: c})
}

func serve(t *testing.T, servers []backends.Server, o deploy.Options) []backends.Endpoint {
	t.Helper()
	o.Dir = t.TempDir()
	local, err := deploy.NewLocal(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	nodes, err := local.Start(t.Context(), servers)
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
