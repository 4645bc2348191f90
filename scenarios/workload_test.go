package scenarios_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/scenarios"
)

const disturbed = `name: disturbed
summary: "yes: it is"
workload: {clients: 3, wait: 0s, work: 0.2 ttl, check: true, body: rmw, for: 5s, operations: 200}
violates: lease
nemesis:
  - {fault: pause, on: holder, when: grant, nth: 3, after: 0.1 ttl, for: 1.5 ttl}
  - {fault: partition, on: [leader, c2], with: {groups: "c1,n1|c2", jump: -2 ttl}, at: 1s, for: 2s, until: grant}
`

func TestAWorkloadIsReadInFull(t *testing.T) {
	s, err := scenarios.Parse("f.yaml", []byte(disturbed))
	if err != nil {
		t.Fatal(err)
	}
	ttls := func(f float64) scenarios.Duration { return scenarios.Duration{TTLs: f} }
	want := scenarios.Workload{
		Clients: 3, Keys: 1, Work: ttls(0.2), Vary: 20, Check: true, Body: "rmw",
		For: scenarios.Duration{Time: 5 * time.Second}, Operations: 200, Line: 3,
	}
	if !reflect.DeepEqual(*s.Workload, want) {
		t.Errorf("workload %+v\nwant %+v", *s.Workload, want)
	}
	if !reflect.DeepEqual(s.Clients, []string{"c1", "c2", "c3"}) {
		t.Errorf("clients %v", s.Clients)
	}
	nemesis := []scenarios.Injection{
		{Fault: "pause", On: []string{"holder"}, When: "grant", Nth: 3, After: ttls(0.1), For: ttls(1.5), Line: 6},
		{
			Fault: "partition", On: []string{"leader", "c2"}, With: map[string]string{"groups": "c1,n1|c2", "jump": "-2 ttl"},
			At: scenarios.Duration{Time: time.Second}, For: scenarios.Duration{Time: 2 * time.Second}, Until: "grant", Line: 7,
		},
	}
	if !reflect.DeepEqual(s.Nemesis, nemesis) {
		t.Errorf("nemesis %+v\nwant %+v", s.Nemesis, nemesis)
	}
}

func TestAnAcquireWaitsForTwoLeasesUnlessTold(t *testing.T) {
	s, err := scenarios.Parse("f.yaml", []byte("name: x\nworkload: {clients: 1, operations: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Workload.Wait.Of(time.Second); got != 2*time.Second {
		t.Errorf("waits %v", got)
	}
}

// What Format writes reads as what it was given: so the schedule of a run can be
// run again.
func TestFormatIsReadAsTheSame(t *testing.T) {
	s, err := scenarios.Parse("f.yaml", []byte(disturbed))
	if err != nil {
		t.Fatal(err)
	}
	text := scenarios.Format(s, "Found by chance.\n\nOn a Monday.")
	again, err := scenarios.Parse("f.yaml", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if second := scenarios.Format(again, "Found by chance.\n\nOn a Monday."); string(second) != string(text) {
		t.Errorf("it becomes\n%s\nwas\n%s", second, text)
	}
	for i := range again.Nemesis {
		again.Nemesis[i].Line = s.Nemesis[i].Line
	}
	again.Workload.Line = s.Workload.Line
	if !reflect.DeepEqual(again.Nemesis, s.Nemesis) || !reflect.DeepEqual(again.Workload, s.Workload) || again.Summary != s.Summary {
		t.Errorf("%+v\nwant %+v", again, s)
	}
}
