package checker

import (
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// A renewal after which it is not certain that the lease had not lapsed begins another
// hold. Its lease may count from any time between the renewal's call and its answer,
// and a grant that fits one of them is no violation.
func TestTheLeaseOfAResumedHoldCountsFromTheCallOfItsRenewal(t *testing.T) {
	for _, c := range []struct {
		what, events string
		lease        Verdict
	}{
		{"an acquire waited for longer than a lease, and the next grant comes 299 ms after the answer to the renewal", `
			{"time":1000000,"process":"B","type":"invoke","f":"acquire","key":"k"}
			{"time":2000000,"process":"B","type":"ok","f":"acquire","key":"k","ttl":500000000}
			{"time":5000000,"process":"A","type":"invoke","f":"acquire","key":"k"}
			{"time":399000000,"process":"B","type":"invoke","f":"release","key":"k"}
			{"time":399500000,"process":"B","type":"ok","f":"release","key":"k"}
			{"time":400000000,"process":"A","type":"ok","f":"acquire","key":"k","ttl":300000000}
			{"time":430000000,"process":"A","type":"invoke","f":"renew","key":"k"}
			{"time":435300000,"process":"A","type":"ok","f":"renew","key":"k","ttl":300000000}
			{"time":436000000,"process":"B","type":"invoke","f":"acquire","key":"k"}
			{"time":734500000,"process":"B","type":"ok","f":"acquire","key":"k","ttl":300000000}`, Held},
		{"and 299 ms after its call", `
			{"time":1000000,"process":"B","type":"invoke","f":"acquire","key":"k"}
			{"time":2000000,"process":"B","type":"ok","f":"acquire","key":"k","ttl":500000000}
			{"time":5000000,"process":"A","type":"invoke","f":"acquire","key":"k"}
			{"time":399000000,"process":"B","type":"invoke","f":"release","key":"k"}
			{"time":399500000,"process":"B","type":"ok","f":"release","key":"k"}
			{"time":400000000,"process":"A","type":"ok","f":"acquire","key":"k","ttl":300000000}
			{"time":430000000,"process":"A","type":"invoke","f":"renew","key":"k"}
			{"time":435300000,"process":"A","type":"ok","f":"renew","key":"k","ttl":300000000}
			{"time":436000000,"process":"B","type":"invoke","f":"acquire","key":"k"}
			{"time":729000000,"process":"B","type":"ok","f":"acquire","key":"k","ttl":300000000}`, Violated},
		{"the client's own deadline passed before the answer to the renewal", `
			{"time":5000000,"process":"A","type":"invoke","f":"acquire","key":"k"}
			{"time":6000000,"process":"A","type":"ok","f":"acquire","key":"k","ttl":300000000,"until":100000000}
			{"time":90000000,"process":"A","type":"invoke","f":"renew","key":"k"}
			{"time":140000000,"process":"A","type":"ok","f":"renew","key":"k","ttl":300000000,"until":240000000}
			{"time":150000000,"process":"B","type":"invoke","f":"acquire","key":"k"}
			{"time":400000000,"process":"B","type":"ok","f":"acquire","key":"k","ttl":300000000}`, Held},
	} {
		h, err := history.Decode(strings.NewReader(strings.TrimSpace(c.events)), history.ReadOptions{})
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		p := Check(h, Options{}).Property(Lease)
		if p.Verdict != c.lease {
			t.Errorf("%s: %s, want %s: %s", c.what, p.Verdict, c.lease, p.Why)
		}
		if p.Second != nil && p.Second.Outcome == "disagrees" {
			t.Errorf("%s: porcupine disagrees: %s", c.what, p.Second.Detail)
		}
	}
}
