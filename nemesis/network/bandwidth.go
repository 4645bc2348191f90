package network

import (
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

func init() {
	nemesis.Register(nemesis.Kind{
		Name:    "bandwidth",
		Summary: "make links between nodes narrow",
		Needs:   []string{nemesis.Links},
		Params: slowParams(map[string]string{
			"rate": "bytes a second in each direction of each connection, such as 64KB, the default",
		}),
		New: newBandwidth,
	})
}

func newBandwidth(of map[string]string) (nemesis.Fault, error) {
	p := &params{fault: "bandwidth", of: of}
	rate := p.bytes("rate", 64e3, 100, 20e6)
	// A fifth of a second's worth: long enough to measure, not to wait for.
	payload := max(64, int(rate)/5)
	return newSlow(p, &slow{
		pace:    proxy.Pace{Rate: int(rate)},
		payload: payload,
		seen: func(l *watched, _ int, took time.Duration, _ int64) (string, error) {
			least := time.Duration(payload) * time.Second / time.Duration(rate)
			if took < least*9/10 {
				return "", fmt.Errorf("%d B took %v, want %v at least", payload, took, least)
			}
			if l.took > least*9/10 {
				return "", fmt.Errorf("%d B took %v even before, so the link was no faster", payload, l.took)
			}
			return fmt.Sprintf("%d B there and back in %v (before: %v)", payload, took, l.took), nil
		},
	})
}
