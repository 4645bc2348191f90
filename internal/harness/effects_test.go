package harness

import (
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// underFaults is a history of grants at 2, 7, 9 and 13, and of faults: from 3 to
// 6 and from 4 to 8 at once, from 12 to its end, and one that did not take effect.
const underFaults = `{"index":0,"time":1,"process":"A","type":"invoke","f":"acquire","key":"k"}
{"index":1,"time":2,"process":"A","type":"ok","f":"acquire","key":"k"}
{"index":2,"time":3,"process":"nemesis","type":"ok","f":"pause","value":{"on":["A"]}}
{"index":3,"time":4,"process":"nemesis","type":"ok","f":"partition","value":{"on":["A","B"]}}
{"index":4,"time":5,"process":"A","type":"invoke","f":"release","key":"k"}
{"index":5,"time":6,"process":"A","type":"ok","f":"release","key":"k"}
{"index":6,"time":6,"process":"nemesis","type":"info","f":"heal","value":{"fault":"pause","on":["A"]}}
{"index":7,"time":6,"process":"B","type":"invoke","f":"acquire","key":"k"}
{"index":8,"time":7,"process":"B","type":"ok","f":"acquire","key":"k"}
{"index":9,"time":8,"process":"nemesis","type":"info","f":"heal","value":{"fault":"partition","on":["A","B"]}}
{"index":10,"time":8,"process":"C","type":"invoke","f":"acquire","key":"l"}
{"index":11,"time":9,"process":"C","type":"ok","f":"acquire","key":"l"}
{"index":12,"time":10,"process":"nemesis","type":"invoke","f":"kill","value":{"on":["B"]}}
{"index":13,"time":11,"process":"nemesis","type":"fail","f":"kill","value":{"on":["B"]},"error":"no such process"}
{"index":14,"time":11,"process":"D","type":"invoke","f":"acquire","key":"m"}
{"index":15,"time":12,"process":"nemesis","type":"ok","f":"kill","value":{"on":["B"]}}
{"index":16,"time":13,"process":"D","type":"ok","f":"acquire","key":"m"}
{"index":17,"time":14,"process":"E","type":"invoke","f":"acquire","key":"k"}
{"index":18,"time":15,"process":"E","type":"fail","f":"acquire","key":"k"}
{"index":19,"time":16,"process":"E","type":"invoke","f":"acquire","key":"k"}
{"index":20,"time":17,"process":"E","type":"info","f":"acquire","key":"k"}
`

func TestGrantsUnderFaultAreThoseConfirmedWhileAFaultIsInEffect(t *testing.T) {
	h, err := history.Decode(strings.NewReader(underFaults), history.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if faults, granted := tally(h); faults != 3 || granted != 2 {
		t.Errorf("%d faults and %d grants under them, want 3 and 2: B's and D's", faults, granted)
	}
	h, err = history.Decode(strings.NewReader(underFaults[:strings.Index(underFaults, `{"index":2`)]), history.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if faults, granted := tally(h); faults != 0 || granted != 0 {
		t.Errorf("without faults there are %d, and %d grants under them", faults, granted)
	}
}

func TestEffectsAreToldWhileTheyLast(t *testing.T) {
	h, err := history.Decode(strings.NewReader(underFaults), history.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int64]string{
		2: "pause on A", 3: "pause on A; partition on A,B", 6: "partition on A,B", 9: "", 12: "", 13: "", 15: "kill on B",
	}
	var x Effects
	for _, e := range h.Other {
		x.Observe(e)
		if got := strings.Join(x.Now(), "; "); got != want[e.Index] {
			t.Errorf("after event %d: %q, want %q", e.Index, got, want[e.Index])
		}
	}
	if x.Took != 3 {
		t.Errorf("%d took effect, want 3", x.Took)
	}
}
