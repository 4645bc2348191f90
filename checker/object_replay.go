package checker

import (
	"fmt"

	"github.com/lockcheck/lockcheck/history"
)

// replay decides whether operations can have happened in a given order.
//
// The order is one of groups, free within a group. Each operation is placed at
// the earliest instant that its call and what comes before it allow; these
// instants are the least solution of the constraints, so the order is possible
// if and only if none of them lies after a return.
type replay struct {
	h     *history.History
	now   int64 // earliest instant of the next group
	by    int32 // the operation whose call set now, -1
	found func(breach)
	what  string // class of violation
	say   func(before, after *history.Op) string
}

func newReplay(h *history.History, class string, found func(breach), say func(before, after *history.Op) string) *replay {
	return &replay{h: h, now: -history.Never, by: -1, found: found, what: class, say: say}
}

// group places the next operations, which may come in any order.
func (r *replay) group(ops ...int32) {
	next, by := r.now, r.by
	for _, i := range ops {
		o := &r.h.Ops[i]
		if r.now > o.Ret {
			b := &r.h.Ops[r.by]
			r.found(breach{class: r.what, key: o.Key, at: b.Call, ops: []int32{r.by, i}, why: r.say(b, o)})
			continue
		}
		if o.Call > next {
			next, by = o.Call, i
		}
	}
	r.now, r.by = next, by
}

// opText names an operation in a sentence.
func opText(h *history.History, o *history.Op) string {
	verb := map[history.Kind]string{
		history.KindRead: "read", history.KindWrite: "write", history.KindAppend: "append", history.KindAdd: "add", history.KindCAS: "compare and set",
	}[o.Kind]
	v := ""
	if o.Value >= 0 {
		v = " of " + shorten(h.Values[o.Value])
	}
	return fmt.Sprintf("the %s%s by process %s (%s to %s)", verb, v, h.Processes[o.Process], when(h, o.Call), when(h, o.Ret))
}
