package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/conformance"
)

// The adapter that the protocol's specification prints must itself conform.
func TestAdapterOfTheSpecification(t *testing.T) {
	python := pythonWithRedis(t)
	doc, err := os.ReadFile("../../docs/client-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(doc), "```python\n")
	code, _, ended := strings.Cut(code, "```\n")
	if !found || !ended {
		t.Fatal("docs/client-protocol.md has no adapter in Python")
	}
	path := filepath.Join(t.TempDir(), "adapter.py")
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	redis, err := backends.Find("redis")
	if err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, conformance.Subject{
		Backend: redis,
		Servers: conformance.Servers(t, redis, backends.Options{}),
		Command: []string{python, path},
	})
}

// pythonWithRedis returns a Python that has redis-py.
func pythonWithRedis(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import redis").Run() == nil {
			return p
		}
	}
	t.Skip("no python3 with redis-py (Debian: apt install python3-redis)")
	return ""
}
