package harness

import (
	"errors"

	"github.com/lockcheck/lockcheck/history"
)

// lostUpdates is the part of the acknowledged updates, in percent, that are not in
// what was there in the end. An update is a write after a read by the same client: it
// stands for the value that was read with something added to it, as an element of a
// set. So what is there in the end is the last write, and all that it builds on.
func lostUpdates(h *history.History) (float64, int, error) {
	acknowledged := map[int32]bool{} // by the index of the invocation
	for _, op := range h.Ops {
		if op.Kind == history.KindWrite && op.Outcome == history.Done {
			acknowledged[op.Index] = true
		}
	}
	type id struct{ key, client int32 }
	type update struct {
		on    int // the one that it builds on, -1 for none
		acked bool
	}
	var updates []update
	last := map[int32]int{}       // by key: the last that was applied
	byValue := map[id]int{}       // by key and value, which is written once
	read := map[id]int{}          // what a client has read, and not yet written on
	for _, a := range h.Applied { // in the order in which the resource applied them
		k := id{a.Key, a.Client}
		switch {
		case a.Kind == history.KindRead:
			read[k] = -1
			if at, ok := byValue[id{a.Key, a.Value}]; ok {
				read[k] = at
			}
		case a.Kind == history.KindWrite && a.Accepted:
			on, ok := read[k]
			if !ok {
				continue // a write of another kind
			}
			delete(read, k)
			last[a.Key], byValue[id{a.Key, a.Value}] = len(updates), len(updates)
			updates = append(updates, update{on, acknowledged[a.Op]})
		}
	}
	kept := make([]bool, len(updates))
	for _, at := range last {
		for ; at >= 0 && !kept[at]; at = updates[at].on {
			kept[at] = true
		}
	}
	acked, lost := 0, 0
	for i, u := range updates {
		if u.acked {
			acked++
			if !kept[i] {
				lost++
			}
		}
	}
	if acked == 0 {
		return 0, 0, errors.New("nothing was read and then written")
	}
	return 100 * float64(lost) / float64(acked), acked, nil
}

// lostGrants is the part of the grants, in percent, that the service forgot, of those
// of which it can be told: another client asked for the same lock while the lease
// of the grant stood, which had not been released.
func lostGrants(h *history.History) (float64, int, error) {
	asked, lost := 0, 0
	for _, g := range h.Grants() {
		end := g.Ret + h.Terms[g.Term].TTL
		if h.Terms[g.Term].TTL == 0 {
			continue // it is not known for how long it holds
		}
		for _, op := range h.Ops {
			if op.Kind == history.KindRelease && op.Key == g.Key && op.Process == g.Process && op.Call > g.Ret {
				end = min(end, op.Call)
			}
		}
		others, granted := false, false
		for _, op := range h.Ops {
			if op.Kind == history.KindAcquire && op.Key == g.Key && op.Process != g.Process && op.Call > g.Ret && op.Ret < end {
				others = true
				granted = granted || op.Outcome == history.Done
			}
		}
		if others {
			asked++
		}
		if granted {
			lost++
		}
	}
	if asked == 0 {
		return 0, 0, errors.New("nobody asked for a lock that another had")
	}
	return 100 * float64(lost) / float64(asked), asked, nil
}
