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
		open:    func(_ context.Context, o Options) (store, error) { return newLocal(o.Recorder, rule{}), nil },
	})
	register(Kind{
		Name:    "fenced",
		Summary: "keeps the highest token and rejects writes with a lower one",
		open: func(_ context.Context, o Options) (store, error) {
			return newLocal(o.Recorder, rule{writes: true}), nil
		},
	})
	register(Kind{
		Name:    "fenced-reads",
		Summary: "fenced, and a read counts as well: nobody writes on what an older holder has read before a newer one did",
		open: func(_ context.Context, o Options) (store, error) {
			return newLocal(o.Recorder, rule{writes: true, reads: true}), nil
		},
	})
}

// rule says which requests keep the highest token, and are rejected with a lower one.
// If writes alone do, an older holder's write is accepted between the read and the
// write of a newer one, which then overwrites it without having read it.
type rule struct{ writes, reads bool }

// local keeps objects in the harness's memory.
type local struct {
	rec  *history.Recorder
	rule rule

	mu      sync.Mutex // held while a request is applied and recorded
	objects map[string]*object
}

type object struct {
	value   string
	highest *int64 // token accepted, nil before the first
}

func newLocal(rec *history.Recorder, r rule) *local {
	return &local{rec: rec, rule: r, objects: map[string]*object{}}
}

func (l *local) write(_ context.Context, r request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.object(r.key)
	e := r.event(history.Write)
	e.Value = text(r.value)
	if l.rule.writes {
		if err := o.admit(r.token, &e); err != nil {
			l.rec.Record(e)
			return err
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
	if !l.rule.reads {
		r.token = nil // nobody looks at it
	}
	e := r.event(history.Read)
	if l.rule.reads {
		if err := o.admit(r.token, &e); err != nil {
			l.rec.Record(e)
			return "", err
		}
	}
	e.Value = text(o.value)
	l.rec.Record(e)
	return o.value, nil
}

// admit keeps the token if it is the highest, and rejects the request if it is lower,
// which its event then says.
func (o *object) admit(token *int64, e *history.Event) error {
	switch {
	case token == nil:
		e.Error = noToken
	case o.highest != nil && *token < *o.highest:
		err := errStale{*token, *o.highest}
		e.Type, e.Error = history.Fail, err.Error()
		return err
	default:
		o.highest = token
	}
	return nil
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
