package harness

import (
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	_ "github.com/lockcheck/lockcheck/backends/all"
	"github.com/lockcheck/lockcheck/scenarios"
)

// The lock of an external client has no servers on memory: what would cut it off from
// those, or hit them, would hit nobody.
func TestFaultsMustReachWhatTheyAreMeantFor(t *testing.T) {
	external := []string{"./my-lock"}
	for _, c := range []struct {
		backend string
		client  []string
		fault   string
		on      []string
		why     string // part of it; "" is within reach
	}{
		{"memory", external, "partition", []string{"A"}, "fault partition is one of the network, and the lock has no servers here"},
		{"memory", external, "packets", []string{"holder"}, "fault packets is one of the network"},
		{"memory", external, "pause", []string{"A"}, ""},
		{"memory", external, "pause", []string{"holder"}, ""},
		{"memory", external, "pause", []string{"A", "servers"}, "fault pause is to hit servers, and the lock has no servers here"},
		{"memory", external, "kill", []string{"random"}, "is to hit random"},
		{"memory", nil, "partition", []string{"A"}, ""},
		{"redis", external, "partition", []string{"A"}, ""},
		{"redis", external, "pause", []string{"servers"}, ""},
	} {
		b, err := backends.Find(c.backend)
		if err != nil {
			t.Fatal(err)
		}
		for _, sc := range []*scenarios.Scenario{
			{Clients: []string{"A"}, Steps: []scenarios.Step{{Fault: c.fault, On: c.on}}},
			{Clients: []string{"A"}, Nemesis: []scenarios.Injection{{Fault: c.fault, On: c.on}}},
		} {
			why := OutOfReach(sc, Options{Backend: b, Client: c.client})
			if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
				t.Errorf("%s on %v with %s and the client %v: %q, want %q", c.fault, c.on, c.backend, c.client, why, c.why)
			}
		}
	}
}
