package checker

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// Unreleased is the code of a finding: a release without an answer, or one that
// was answered ok, had not freed the lock.
const Unreleased = "unreleased"

// observation is what an observer saw: who holds a lock, by the account of the
// service itself.
type observation struct {
	Holder string `json:"holder"` // client, "" if the service does not know it by name
	Token  *int64 `json:"token"`
	// Since is the index of the first event that may be newer than what was
	// seen; nil means that of the observation itself.
	Since *int64 `json:"since"`
}

// observed resolves what the answers leave open, or state wrongly, by what the
// service itself said afterwards. Only positive evidence counts: that somebody
// does not hold a lock now says nothing of a request which is still under way.
func observed(h *history.History) []Finding {
	f := &found{count: map[string]int{}}
	told := map[int32]bool{} // operations, by the index of their invocation
	for i := range h.Other {
		e := &h.Other[i]
		if e.Process != history.Observer {
			continue
		}
		var seen observation
		key := int32(slices.Index(h.Keys, e.Key))
		if key < 0 || json.Unmarshal(e.Value, &seen) != nil {
			continue
		}
		since := e.Index
		if seen.Since != nil {
			since = *seen.Since
		}
		op := lastBy(h, key, int32(slices.Index(h.Processes, seen.Holder)), e.Index)
		if seen.Holder == "" {
			op = untold(h, key, seen.Token, e.Index)
		}
		if op == nil || op.RetIndex < 0 || int64(op.RetIndex) >= since {
			continue // none, or what was seen may have been before its end
		}
		if told[op.Index] {
			continue
		}
		told[op.Index] = true
		events := append(operationEvents(op), e.Index)
		who, lock := h.Processes[op.Process], fmt.Sprintf("%q", e.Key)
		switch {
		case op.Kind == history.KindAcquire && op.Outcome == history.Unknown:
			f.add(Ghost, events, func() string {
				return fmt.Sprintf("%s got no answer to its acquire of %s at %s, yet the service had granted it: it showed %s as the holder at %s", who, lock, at(op.Call), who, at(e.Time))
			})
		case op.Kind == history.KindAcquire && op.Outcome == history.Failed:
			f.add(False, events, func() string {
				return fmt.Sprintf("%s was told that it did not get %s at %s, though the service showed it as the holder at %s", who, lock, at(op.Call), at(e.Time))
			})
		case op.Kind == history.KindRelease && op.Outcome == history.Unknown:
			f.add(Unreleased, events, func() string {
				return fmt.Sprintf("%s got no answer to its release of %s at %s, and the service still showed it as the holder at %s", who, lock, at(op.Call), at(e.Time))
			})
		case op.Kind == history.KindRelease && op.Outcome == history.Done:
			f.add(False, events, func() string {
				return fmt.Sprintf("a release of %s by %s at %s was answered ok, though the service still showed it as the holder at %s", lock, who, at(op.Call), at(e.Time))
			})
		}
	}
	return f.findings
}

// lastBy returns the last acquire or release of a lock by a process that was
// invoked before an event, nil if there is none.
func lastBy(h *history.History, key, process int32, before int64) *history.Op {
	var last *history.Op
	for i := range h.Ops {
		op := &h.Ops[i]
		if int64(op.Index) > before {
			break
		}
		if op.Key == key && op.Process == process && (op.Kind == history.KindAcquire || op.Kind == history.KindRelease) {
			last = op
		}
	}
	return last
}

// untold returns the acquire that a holder known only by its token must have made:
// the only one whose outcome was not told, if no client was told the token.
func untold(h *history.History, key int32, token *int64, before int64) *history.Op {
	var candidate *history.Op
	for i := range h.Ops {
		op := &h.Ops[i]
		if int64(op.Index) > before {
			break
		}
		if op.Key != key || op.Kind != history.KindAcquire {
			continue
		}
		switch {
		case token == nil, op.HasToken && op.Token == *token:
			return nil
		case op.Outcome == history.Unknown && candidate != nil:
			return nil
		case op.Outcome == history.Unknown:
			candidate = op
		}
	}
	return candidate
}
