package harness

import (
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// tracker knows from a history who holds, who waits, and what has happened.
type tracker struct {
	holds     []held            // in the order of the grants
	waiting   map[string]string // clients with an open acquire, and of which lock
	contended bool              // an acquire was refused, or wanted a lock that another held or was granted
	faulted   bool              // a fault has taken effect
	granted   bool              // a lock was granted since
}

// held is a lock that a client was granted, has not released, and has not been
// told to have lost.
type held struct{ client, key string }

// observe takes the next event.
func (t *tracker) observe(e history.Event) {
	switch e.Process {
	case history.Nemesis:
		t.faulted = t.faulted || e.Type == history.OK
		return
	case history.Harness, history.Resource, history.Observer:
		return
	}
	if t.waiting == nil {
		t.waiting = map[string]string{}
	}
	switch {
	case e.F == history.Acquire && e.Type == history.Invoke:
		t.waiting[e.Process] = e.Key
		t.contended = t.contended || slices.ContainsFunc(t.holds, func(h held) bool { return h.key == e.Key && h.client != e.Process })
	case e.F == history.Acquire:
		delete(t.waiting, e.Process)
		if e.Type == history.Fail {
			t.contended = true
		}
		if e.Type == history.OK {
			t.granted = t.granted || t.faulted
			for _, key := range t.waiting {
				t.contended = t.contended || key == e.Key
			}
			t.drop(e)
			t.holds = append(t.holds, held{e.Process, e.Key})
		}
	case e.F == history.Release && e.Type == history.Invoke, e.F == history.Lost:
		t.drop(e)
	}
}

func (t *tracker) drop(e history.Event) {
	t.holds = slices.DeleteFunc(t.holds, func(h held) bool { return h == held{e.Process, e.Key} })
}

// held reports whether a client is known to hold the lock.
func (t *tracker) held(key string) bool {
	return slices.ContainsFunc(t.holds, func(h held) bool { return h.key == key })
}

// holder returns the client that was granted a lock last and still holds it:
// the preferred one if it holds any, "" if none does.
func (t *tracker) holder(preferred string) string {
	last := ""
	for _, h := range t.holds {
		if h.client == preferred {
			return preferred
		}
		last = h.client
	}
	return last
}
