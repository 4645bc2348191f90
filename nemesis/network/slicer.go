package network

import (
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

func init() {
	nemesis.Register(nemesis.Kind{
		Name:    "slicer",
		Summary: "cut what travels between nodes into small pieces, with a pause after each",
		Needs:   []string{nemesis.Links},
		Params: slowParams(map[string]string{
			"size":  "bytes of a piece, 16 by default",
			"pause": "between two pieces, 1ms by default",
		}),
		New: newSlicer,
	})
}

func newSlicer(of map[string]string) (nemesis.Fault, error) {
	p := &params{fault: "slicer", of: of}
	const pieces = 10
	size := p.bytes("size", 16, 1, 64e3)
	pause := p.duration("pause", time.Millisecond, 100*time.Microsecond)
	if pause > 100*time.Millisecond {
		p.fail("pause", "no more than 100ms")
	}
	return newSlow(p, &slow{
		pace:    proxy.Pace{Slice: int(size), Pause: pause},
		payload: pieces * int(size),
		seen: func(l *watched, _ int, took time.Duration, got int64) (string, error) {
			if got < pieces {
				return "", fmt.Errorf("%d B travelled in %d pieces, want %d at least", pieces*size, got, pieces)
			}
			return fmt.Sprintf("%d B travelled in %d pieces, there and back in %v (before: %v)", pieces*size, got, took, l.took), nil
		},
	})
}
