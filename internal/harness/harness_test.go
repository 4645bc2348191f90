package harness

import (
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/scenarios"
)

// What one scenario sets on its servers is not set on those of the next run.
func TestSettingsAreOfOneRun(t *testing.T) {
	shared := []backends.Server{{Name: "db", Software: "postgres"}}
	b := backends.Backend{Servers: func(backends.Options) []backends.Server { return shared }}
	with := &run{Options: Options{Backend: b}, scenario: &scenarios.Scenario{Settings: map[string]string{"work_mem": "1MB"}}}
	if got := with.serversWanted()[0].Options["work_mem"]; got != "1MB" {
		t.Errorf("work_mem is %q where the scenario sets it", got)
	}
	without := &run{Options: Options{Backend: b}, scenario: &scenarios.Scenario{}}
	if got := without.serversWanted()[0].Options; len(got) > 0 {
		t.Errorf("the next run's server has the settings %v", got)
	}
}
