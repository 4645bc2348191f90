package checker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// searchLimit is the number of operations of one key up to which porcupine
	// is asked.
	searchLimit = 200_000
	// searchMemory bounds what one search may keep, in bytes. Porcupine's own
	// time limit does not bound its memory.
	searchMemory = 512 << 20
)

// search asks porcupine, within a time and a memory in bytes. It returns
// porcupine.Unknown and the reason if it could not decide.
//
// Each step that the model allows makes porcupine keep a set of operations and
// a state. Once their number is used up the model refuses every step, which
// ends the search; its answer then means nothing and is dropped.
func search(model porcupine.Model, ops []porcupine.Operation, limit time.Duration, memory int64) (porcupine.CheckResult, string) {
	if len(ops) > searchLimit {
		return porcupine.Unknown, fmt.Sprintf("%d operations are more than the %d that a search is tried on", len(ops), searchLimit)
	}
	budget := memory / int64(len(ops)/8+200)
	var steps atomic.Int64
	step := model.Step
	model.Step = func(state, in, out any) (bool, any) {
		if steps.Load() > budget {
			return false, state
		}
		ok, next := step(state, in, out)
		if ok {
			steps.Add(1)
		}
		return ok, next
	}
	result := porcupine.CheckOperationsTimeout(model, ops, limit)
	if steps.Load() > budget && result != porcupine.Ok {
		return porcupine.Unknown, fmt.Sprintf("a search of %d operations did not end within %d MB", len(ops), memory>>20)
	}
	if result == porcupine.Unknown {
		return result, fmt.Sprintf("a search of %d operations did not end within %v", len(ops), limit.Round(time.Millisecond))
	}
	return result, ""
}

// searchTime is the time for all searches of one property together.
type searchTime struct{ until time.Time }

// left is what is left of o.Timeout since the first call, and not nothing.
func (s *searchTime) left(o Options) time.Duration {
	if s.until.IsZero() {
		s.until = time.Now().Add(o.timeout())
	}
	return max(time.Until(s.until), time.Millisecond)
}
