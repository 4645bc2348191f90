package conformance_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	_ "github.com/lockcheck/lockcheck/backends/all"
	"github.com/lockcheck/lockcheck/backends/conformance"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)


func TestScratch(t *testing.T) {
	var servers []backends.Endpoint
	if err := json.Unmarshal([]byte(os.Getenv("SERVERS")), &servers); err != nil {
		t.Skip(err)
	}
	for _, name := range backends.Names() {
		b, _ := backends.Find(name)
		if len(backends.Config{Servers: servers}.URLs(b.Servers(backends.Options{})[0].Software)) == 0 {
			continue
		}
		cmd, err := selfexec.Command("worker", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, conformance.Subject{Backend: b, Servers: servers, Command: cmd})
		})
	}
}
