// Package checker decides which promises of a lock a history keeps and which
// it breaks. It knows nothing of servers or of how the history came about.
package checker

import (
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// Verdict is what is known about a property of one history.
type Verdict string

const (
	Held          Verdict = "held"
	Violated      Verdict = "violated"
	Unknown       Verdict = "unknown"        // could not be decided; Why says why
	NotApplicable Verdict = "not applicable" // the history cannot speak to it; Why says why
)

// Names of properties.
const (
	Mutex    = "mutex"    // at most one client believes that it holds
	Lease    = "lease"    // no second grant while an unexpired, unreleased lease stands
	Token    = "token"    // tokens rise in grant order and never repeat
	Fence    = "fence"    // the resource never accepts an older grant's write after a newer one's
	State    = "state"    // the protected object behaves as if operations were one at a time
	Release  = "release"  // only the holder's release frees the lock, and one after loss says so
	Liveness = "liveness" // the lock is granted again in bounded time
)

// Report is the outcome of checking one history.
type Report struct {
	Properties  []Property `json:"properties"`            // in the order of the constants above
	Findings    []Finding  `json:"findings,omitempty"`    // facts that are not violations of a property
	Assumptions []Finding  `json:"assumptions,omitempty"` // what the history broke of what checking assumes
	Operations  int        `json:"operations"`
	Grants      int        `json:"grants"`
}

// Property returns the named property, or nil if it was not checked.
func (r *Report) Property(name string) *Property {
	for i := range r.Properties {
		if r.Properties[i].Name == name {
			return &r.Properties[i]
		}
	}
	return nil
}

// Property is the verdict on one property.
type Property struct {
	Name       string  `json:"name"`
	Verdict    Verdict `json:"verdict"`
	Why        string  `json:"why"`                  // one plain sentence with times
	Convention string  `json:"convention,omitempty"` // how unknown outcomes were read, e.g. "mutex/1"; see docs/verdicts.md
	// Count is the number of violations; the rest describes them together.
	Count   int           `json:"count,omitempty"`
	Overlap time.Duration `json:"overlap_ns,omitempty"` // total time during which two held
	First   int64         `json:"first_ns,omitempty"`   // time of the first violation
	Witness *Witness      `json:"witness,omitempty"`
	Second  *Opinion      `json:"second_opinion,omitempty"`
}

// Witness is the smallest part of a history that proves a violation.
type Witness struct {
	Why    string  `json:"why"`
	Key    string  `json:"key"`
	Events []int64 `json:"events"` // indexes of the events, ascending
	Holds  []Hold  `json:"holds,omitempty"`
}

// Hold is one client's claim to a lock: a part of a witness.
type Hold struct {
	Process string `json:"process"`
	Token   *int64 `json:"token,omitempty"`
	Acquire int64  `json:"acquire"` // index of the acquire's invocation
	From    int64  `json:"from_ns"` // acquire returned
	To      int64  `json:"to_ns"`   // the claim's end; history.Never if open
	End     string `json:"end"`     // why it ended: "release", "loss notice", "deadline", "end of history"
	// Expiry is the earliest time at which the lease could end, 0 without a lease.
	Expiry int64 `json:"expiry_ns,omitempty"`
}

// Opinion is what porcupine said of the same property.
type Opinion struct {
	Outcome string `json:"outcome"` // "agrees", "disagrees", "not decided"
	Detail  string `json:"detail,omitempty"`
}

// Finding is a fact worth knowing.
type Finding struct {
	Code   string  `json:"code"` // "late", "ghost", "stuck", "false answer", "workload", ...
	Why    string  `json:"why"`
	Events []int64 `json:"events,omitempty"`
}

// Options say what the history is held against.
type Options struct {
	// Model is the kind of lock or object: "mutex" (the default), see Models.
	Model string
	// TTL is the lease in nanoseconds for grants that state none; 0 for none.
	TTL int64
	// Drift is the part of a lease, in [0, 1), that clock drift may take.
	Drift float64
	// Grace is added to a lease before a claim counts as late.
	Grace time.Duration
	// Timeout bounds porcupine's second opinion; 0 means 10 s.
	Timeout time.Duration
	// NoSecondOpinion leaves porcupine out.
	NoSecondOpinion bool
}

// check is the signature that Check has: it never fails, since a history that
// was read can always be judged, if only as unknown.
var _ func(*history.History, Options) *Report = Check
