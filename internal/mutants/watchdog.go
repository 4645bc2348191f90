package mutants

import (
	"context"
	"sync"
	"time"
)

// watchdog renews a grant in the background, and ends the hold when the lease may
// be over: when the service says so, or when no renewal was confirmed for as long
// as the lease lasts, less a margin. It is what tells a holder that is cut off.
type watchdog struct {
	ttl   time.Duration
	renew func(context.Context) (bool, error) // reports whether the grant still stood
	blind bool                                // a flaw: losses are not told

	mu    sync.Mutex
	until time.Time // when the client stops to believe

	lost  chan struct{} // closed when the hold is lost
	stop  context.CancelFunc
	ended chan struct{} // closed when it renews no more
}

// margin is the part of a lease that a client leaves unused: its notice must be
// out before the service grants the lock again.
func margin(ttl time.Duration) time.Duration { return ttl / 5 }

// watch starts a watchdog of a grant that was asked for at a time. The caller
// ends it.
func watch(ttl time.Duration, asked time.Time, blind bool, renew func(context.Context) (bool, error)) *watchdog {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watchdog{ttl: ttl, renew: renew, blind: blind, lost: make(chan struct{}), stop: cancel, ended: make(chan struct{})}
	w.extended(asked)
	go w.run(ctx)
	return w
}

// watchUntil is a watchdog that renews nothing: the hold ends at a time.
func watchUntil(until time.Time) *watchdog {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watchdog{until: until, lost: make(chan struct{}), stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		select {
		case <-time.After(time.Until(until)):
			close(w.lost)
		case <-ctx.Done():
		}
	}()
	return w
}

// extended notes that a renewal that was asked for at a time was confirmed.
func (w *watchdog) extended(asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = asked.Add(w.ttl - margin(w.ttl))
}

// left is for how long the client still believes.
func (w *watchdog) left() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.until)
}

// holds reports whether the client believes that it holds.
func (w *watchdog) holds() bool {
	select {
	case <-w.lost:
		return false
	default:
		return w.blind || w.left() > 0
	}
}

func (w *watchdog) run(ctx context.Context) {
	defer close(w.ended)
	for ctx.Err() == nil {
		select {
		case <-time.After(min(w.ttl/4, max(w.left(), 0))):
		case <-ctx.Done():
			return
		}
		within := w.left()
		if w.blind {
			within = w.ttl
		}
		if within <= 0 {
			close(w.lost)
			return
		}
		asked := time.Now()
		bounded, cancel := context.WithTimeout(ctx, min(within, w.ttl/2))
		stood, err := w.renew(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && stood:
			w.extended(asked)
		case err == nil && !w.blind:
			close(w.lost)
			return
		}
	}
}

// end stops the renewing, and returns when none can come any more.
func (w *watchdog) end() {
	w.stop()
	<-w.ended
}
