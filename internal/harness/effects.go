package harness

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// Effects knows from the events of a history, in their order, which faults are in
// effect. The zero value is that of a run's beginning.
type Effects struct {
	Took int // how many have taken effect so far

	now []string // in effect, in the order in which they took effect
}

// Observe takes the next event.
func (x *Effects) Observe(e history.Event) {
	if e.Process != history.Nemesis {
		return
	}
	switch {
	case e.Type == history.OK:
		x.Took++
		x.now = append(x.now, effect(e.F, e.Value))
	case e.F == history.Heal:
		if at := slices.Index(x.now, effect("", e.Value)); at >= 0 {
			x.now = slices.Delete(x.now, at, at+1)
		}
	}
}

// Now are the faults that are in effect, as "pause on A".
func (x *Effects) Now() []string { return slices.Clone(x.now) }

// effect says which fault an event is about: that its value names, or kind.
func effect(kind string, value json.RawMessage) string {
	var v struct {
		Fault string   `json:"fault"`
		On    []string `json:"on"`
	}
	if json.Unmarshal(value, &v) == nil && v.Fault != "" {
		kind = v.Fault
	}
	return kind + " on " + strings.Join(v.On, ",")
}

// tally counts the faults of a history that took effect, and the grants that were
// confirmed while at least one was.
func tally(h *history.History) (faults, granted int) {
	type span struct{ from, to int64 }
	var spans []span // in which any fault is in effect; apart, and in order
	var x Effects
	for _, e := range h.Other {
		before := len(x.now)
		x.Observe(e)
		switch after := len(x.now); {
		case before == 0 && after > 0:
			spans = append(spans, span{e.Time, history.Never})
		case before > 0 && after == 0:
			spans[len(spans)-1].to = e.Time
		}
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Kind != history.KindAcquire || op.Outcome != history.Done {
			continue
		}
		// The last span that began before the answer.
		at, found := slices.BinarySearchFunc(spans, op.Ret, func(s span, t int64) int {
			switch {
			case s.from < t:
				return -1
			case s.from > t:
				return 1
			}
			return 0
		})
		if !found {
			at--
		}
		if at >= 0 && op.Ret < spans[at].to {
			granted++
		}
	}
	return x.Took, granted
}
