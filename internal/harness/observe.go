package harness

import (
	"context"
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/history"
)

// holderEvent is what an observer saw.
const holderEvent = "holder"

const (
	observeTimeout = time.Second
	maxPending     = 64 // observations that wait; more than that add nothing
)

// observer asks the service itself who holds a lock, after an answer that leaves it
// open: an acquire or a release of unknown outcome, or an acquire that was refused
// though nobody is known to hold. What it sees is evidence for the checker.
type observer struct {
	backends.Observer
	rec   *history.Recorder
	space string      // before the names of locks where they are asked for
	asked chan string // keys
	quit  chan struct{}
	done  chan struct{}
}

// startObserver does nothing for a backend without an observer, or with an
// external client, whose locks the backend's observer may not understand.
func (r *run) startObserver(ctx context.Context, endpoints []backends.Endpoint) error {
	if r.Backend.Observe == nil || len(r.Client) > 0 {
		return nil
	}
	source, err := r.Backend.Observe(ctx, backends.Config{Process: history.Observer, Servers: endpoints, TTL: r.ttl})
	if err != nil {
		return fmt.Errorf("observer: %w", err)
	}
	o := &observer{
		Observer: source,
		rec:      r.rec,
		space:    r.space,
		asked:    make(chan string, maxPending),
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	r.observer = o
	go o.work()
	var t tracker
	r.rec.Watch(func(e history.Event) {
		t.observe(e)
		if o.open(&t, e) {
			select {
			case o.asked <- e.Key:
			default:
			}
		}
	})
	return nil
}

// open reports whether an answer leaves open who holds the lock.
func (o *observer) open(t *tracker, e history.Event) bool {
	switch {
	case e.Type == history.Info:
		return e.F == history.Acquire || e.F == history.Release
	case e.Type == history.Fail && e.F == history.Acquire:
		return !t.held(e.Key)
	}
	return false
}

func (o *observer) work() {
	defer close(o.done)
	for {
		select {
		case key := <-o.asked:
			o.look(context.Background(), key)
		case <-o.quit:
			o.finish()
			return
		}
	}
}

// finish looks at what was asked before the end, if that does not take long.
func (o *observer) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), observeTimeout)
	defer cancel()
	for ctx.Err() == nil {
		select {
		case key := <-o.asked:
			o.look(ctx, key)
		default:
			return
		}
	}
}

// look records who holds a lock. That the service cannot be asked, as when it is
// down, is recorded too.
func (o *observer) look(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	since := o.rec.Len() // what is recorded from here on may be newer than what is seen
	e := history.Event{Process: history.Observer, Type: history.Info, F: holderEvent, Key: key}
	if holder, err := o.Holder(ctx, o.space+key); err != nil {
		e.Error = err.Error()
	} else {
		e.Value = encode(struct {
			backends.Holder
			Since int64 `json:"since"`
		}{holder, since})
	}
	o.rec.Record(e)
}

// stop ends the observer. Nil is fine.
func (o *observer) stop() error {
	if o == nil {
		return nil
	}
	close(o.quit)
	<-o.done
	return o.Close()
}
