package network

import (
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

func init() {
	nemesis.Register(nemesis.Kind{
		Name:    "latency",
		Summary: "delay everything that travels between nodes",
		Needs:   []string{nemesis.Links},
		Params: slowParams(map[string]string{
			"delay":  "how long each direction takes longer; 50ms by default",
			"jitter": "by how much the delay varies, more or less; none by default",
		}),
		New: newLatency,
	})
}

func newLatency(of map[string]string) (nemesis.Fault, error) {
	p := &params{fault: "latency", of: of}
	pace := proxy.Pace{Delay: p.duration("delay", 50*time.Millisecond, time.Millisecond)}
	pace.Jitter = p.duration("jitter", 0, 0)
	if pace.Jitter > pace.Delay {
		p.fail("jitter", "no more than the delay")
	}
	// Half of what a probe may take, so that several of them fit.
	if pace.Delay+pace.Jitter > probeTimeout/4 {
		p.fail("delay", fmt.Sprintf("with jitter, no more than %v: cut the link to stop it for longer", probeTimeout/4))
	}
	return newSlow(p, &slow{
		pace: pace,
		seen: func(l *watched, directions int, took time.Duration, _ int64) (string, error) {
			least := time.Duration(directions) * (pace.Delay - pace.Jitter)
			if took < least {
				return "", fmt.Errorf("a round trip took %v, want %v at least", took, least)
			}
			return fmt.Sprintf("a round trip of %v (before: %v)", took, l.took), nil
		},
	})
}
