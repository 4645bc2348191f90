package history

import (
	"math"
	"slices"
)

// Never is the return time of an operation whose outcome is unknown: it may
// take effect at any later time, or not at all.
const Never = math.MaxInt64 / 4

// Kind is the kind of an operation, Event.F in one byte.
type Kind uint8

const (
	KindOther Kind = iota
	KindAcquire
	KindRenew
	KindRelease
	KindCheck
	KindWrite
	KindRead
	KindCAS    // imported register histories only
	KindAppend // imported kv and list histories only
	KindAdd    // counters and sets
)

// Outcome is how an operation came out.
type Outcome uint8

const (
	Unknown Outcome = iota // info, or never completed
	Done                   // ok
	Failed                 // fail
)

// Op is an operation: an invocation paired with its completion. Times are
// those of the events; the interval [Call, Ret] is closed. It is kept small
// (56 bytes), since the checkers are bound by memory bandwidth.
type Op struct {
	Call, Ret int64 // Ret is Never if the outcome is unknown
	Token     int64 // if HasToken
	Process   int32 // index into History.Processes
	Key       int32 // index into History.Keys
	Index     int32 // Index of the invocation
	RetIndex  int32 // Index of the completion, -1 if there is none
	Value     int32 // index into History.Values, -1 if there is none
	Term      int32 // index into History.Terms: what the grant promised; 0 is "nothing stated"
	Error     int32 // index into History.Errors: why it failed or is unknown; 0 is "nothing stated"
	Kind      Kind
	Outcome   Outcome
	HasToken  bool
}

// Term is what a grant or a renewal promised.
type Term struct {
	TTL   int64 // lease in nanoseconds, 0 for none
	Until int64 // the client's own deadline, 0 for none
}

// Applied is one request that the protected resource applied or rejected.
type Applied struct {
	Time     int64
	Token    int64
	Client   int32 // index into History.Processes; the name "" if not stated
	Key      int32
	Op       int32 // Index of the client's invocation, -1 if not stated
	Index    int32 // Index of the event
	Value    int32
	Kind     Kind // KindWrite, KindRead, ...
	Accepted bool
	HasToken bool
}

// Notice is a loss notice delivered to a client.
type Notice struct {
	Time    int64
	Process int32
	Key     int32
	Index   int32
}

// History is a whole history, decoded for checking.
//
// Whatever the input stated, the times of its events rise strictly in the
// order of its lines, so every Ret is after its Call, no two stamps are equal
// and none is negative. Where the input said otherwise, Assumptions tells.
type History struct {
	Ops       []Op      // ordered by Call
	Applied   []Applied // in the order in which the resource applied them
	Notices   []Notice
	Other     []Event  // header, faults and remarks, whole
	Processes []string // names of processes
	Keys      []string // names of keys; "" where the input names no key
	Values    []string // JSON texts of values, without white space between tokens
	Errors    []string // Errors[0] is ""
	Terms     []Term   // Terms[0] is the zero Term; entries may repeat
	Events    int64    // number of events read
	Truncated bool     // the input ends in the middle of an event, which was left out

	// Format is the format in which the history was written.
	Format Format
	// Timeless says that no event stated a time. Times are then the ordinal
	// numbers of events: their order is meaningful, durations are not.
	Timeless bool
	// Assumptions are findings about the history itself: it could be read,
	// but what checking relies on is broken. Of each code the first
	// MaxAssumptions are listed, in the order of lines; Broken counts all.
	Assumptions []Assumption
	Broken      map[Code]int64 // nil if there are none

	places []place // where a Scanner can begin
}

// Grants are the acquires that were granted, in the order of their answers.
func (h *History) Grants() []Op {
	var all []Op
	for _, op := range h.Ops {
		if op.Kind == KindAcquire && op.Outcome == Done {
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b Op) int { return int(a.RetIndex - b.RetIndex) })
	return all
}
