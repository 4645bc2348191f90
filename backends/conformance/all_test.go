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

func TestBackends(t *testing.T) {
	for _, name := range backends.Names() {
		t.Run(name, func(t *testing.T) {
			b, err := backends.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			command, err := selfexec.Command("worker", name)
			if err != nil {
				t.Fatal(err)
			}
			conformance.Run(t, conformance.Subject{Backend: b, Servers: conformance.Servers(t, b, backends.Options{}), Command: command})
		})
	}
}
