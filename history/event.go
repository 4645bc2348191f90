// Package history holds what happened in a run: the events in the order in
// which the harness saw them, on one monotonic clock.
//
// The words are Jepsen's. A process invokes an operation and later completes it
// with ok (it happened), fail (it certainly did not) or info (unknown). A
// history is written as JSON Lines, one event a line, while the run goes on, so
// that a run which was killed can still be checked.
package history

import "encoding/json"

// Type says which end of an operation an event is, and how it came out.
type Type string

const (
	Invoke Type = "invoke" // the operation was requested
	OK     Type = "ok"     // it happened
	Fail   Type = "fail"   // it certainly did not happen
	Info   Type = "info"   // unknown outcome, or an event that is not an operation
)

// Names of operations, the values of Event.F. Others may occur: faults use
// their own names.
const (
	Acquire = "acquire"
	Renew   = "renew"
	Release = "release"
	Check   = "check" // does the client still believe that it holds?
	Write   = "write"
	Read    = "read"
	Lost    = "lost"  // loss notice delivered to the client: an info event, no invocation
	Run     = "run"   // the header: the first event, describing the run
	Heal    = "heal"  // of the nemesis, an info event: the healing of the fault named in Value begins
	Close   = "close" // of the harness: the clients named in Value are about to be ended, and claim nothing any more
	Keep    = "keep"  // of the harness: the clients named in Value renew their grants by themselves, which nobody records
	Skip    = "skip"  // a step that the harness left out, with the reason in Error
)

// Processes that are not lock clients.
const (
	Harness  = "harness"  // the harness itself: header and remarks
	Nemesis  = "nemesis"  // faults: invoke when injection starts, ok with the proof in Value, info when it is over
	Observer = "observer" // who holds a lock by the service's own account: info events "holder", with {"holder": client or "token": n, "since": index} as Value
	Resource = "resource" // what the protected resource applied, in the order in which it applied it
)

// Event is one line of a history.
type Event struct {
	// Index counts from 0 and rises by one from event to event.
	Index int64 `json:"index"`
	// Time is in nanoseconds since the start of the run, on the harness's
	// monotonic clock. It rises strictly from event to event.
	Time int64 `json:"time"`
	// Process is a client ("A", "0"), or Harness, Nemesis or Resource. A
	// client has at most one operation open at a time.
	Process string `json:"process"`
	Type    Type   `json:"type"`
	F       string `json:"f"`
	// Key names the lock, and the object that the lock protects.
	Key string `json:"key,omitempty"`
	// Value is the written or read value, or a fault's description and proof.
	Value json.RawMessage `json:"value,omitempty"`
	// Token is the fencing token of a grant (acquire ok, renew ok) or of a
	// write; nil where there is none.
	Token *int64 `json:"token,omitempty"`
	// TTL is, of an acquire or renewal that was answered ok, for how many
	// nanoseconds from then on its lease certainly stands; 0 where the lock has
	// no lease. A checker that counts from an earlier time errs on the safe side.
	TTL int64 `json:"ttl,omitempty"`
	// Until is the time (as Time) at which the client itself stops to believe
	// that it holds; 0 where it keeps no deadline.
	Until int64 `json:"until,omitempty"`
	// Client is, in a resource event, the process whose request was applied.
	Client string `json:"client,omitempty"`
	// Op is, in a resource event, the Index of the client's invocation that
	// caused it; nil where the request did not say.
	Op *int64 `json:"op,omitempty"`
	// Error says why an operation failed or is unknown.
	Error string `json:"error,omitempty"`
}

// String returns the event as a line of history, for messages.
func (e Event) String() string {
	line, _ := appendEvent(nil, &e) // a value that is not JSON is left out
	return string(line[:len(line)-1])
}

// Targets returns the names of what a fault acts on: the field "on" of its
// event's value, a name or a list of names. It is nil for other values, such as
// those of another kind of history.
func (e *Event) Targets() []string {
	var v struct {
		On json.RawMessage `json:"on"`
	}
	if json.Unmarshal(e.Value, &v) != nil || len(v.On) == 0 {
		return nil
	}
	var one string
	if json.Unmarshal(v.On, &one) == nil {
		return []string{one}
	}
	var many []string
	if json.Unmarshal(v.On, &many) != nil {
		return nil
	}
	return many
}
