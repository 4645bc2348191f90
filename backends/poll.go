package backends

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Waits between the tries of Poll: random, so that waiters do not keep step.
const (
	minPoll = 2 * time.Millisecond
	maxPoll = 6 * time.Millisecond
)

// Poll is Acquire for a lock that only knows tries: it tries until it gets
// another answer than ErrBusy or wait has passed. The lease of the grant then
// counts from the invocation of Poll.
func Poll(ctx context.Context, wait time.Duration, try func(context.Context) (Grant, error)) (Grant, error) {
	invoked := time.Now()
	for {
		tried := time.Now()
		g, err := try(ctx)
		if err == nil && g.TTL > 0 {
			g.TTL += tried.Sub(invoked)
		}
		if !errors.Is(err, ErrBusy) {
			return g, err
		}
		pause := minPoll + rand.N(maxPoll-minPoll)
		if time.Since(invoked)+pause > wait {
			return g, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return g, err // still busy: this try certainly had no effect
		}
	}
}
