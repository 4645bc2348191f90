package resource

import (
	"context"
	"sync"

	"github.com/lockcheck/lockcheck/history"
)

func init() {
	register(Kind{
		Name:    "unfenced",
		Summary: "accepts every write, as an append-only store or a third party does",
		open:    func(_ context.Context, o Options) (store, error) { return newLocal(o.Recorder, false), nil },
	})
	register(Kind{
		Name:    "fenced",
		Summary: "keeps the highest token and rejects writes with a lower one",
		open:    func(_ context.Context, o Options) (store, error) { return newLocal(o.Recorder, true), nil },
	})
}

// local keeps objects in the harness's memory.
type local struct {
	rec    *history.Recorder
	fenced bool

	mu      sync.Mutex // held while a request is applied and recorded
	objects map[string]*object
}

type object struct {
	value   string
	highest *int64 // token accepted, nil before the first
}

func newLocal(rec *history.Recorder, fenced bool) *local {
	return &local{rec: rec, fenced: fenced, objects: map[string]*object{}}
}

func (l *local) write(_ context.Context, r request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.object(r.key)
	e := r.event(history.Write)
	e.Value = text(r.value)
	if l.fenced {
		switch {
		case r.token == nil:
			e.Error = noToken
		case o.highest != nil && *r.token < *o.highest:
			err := errStale{*r.token, *o.highest}
			e.Type, e.Error = history.Fail, err.Error()
			l.rec.Record(e)
			return err
		default:
			o.highest = r.token
		}
	}
	o.value = r.value
	l.rec.Record(e)
	return nil
}

func (l *local) read(_ context.Context, r request) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.object(r.key)
	e := r.event(history.Read)
	e.Value = text(o.value)
	l.rec.Record(e)
	return o.value, nil
}

func (l *local) object(key string) *object {
	o := l.objects[key]
	if o == nil {
		o = &object{}
		l.objects[key] = o
	}
	return o
}

func (l *local) sync(context.Context) error { return nil } // recorded when applied

func (l *local) close() error { return nil }
