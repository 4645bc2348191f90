// Package checker decides which promises of a lock a history keeps and which
// it breaks. It knows nothing of servers or of how the history came about.
//
// docs/verdicts.md says what each property means, how outcomes that are
// unknown are read, and why.
package checker

import (
	"time"
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
	// FollowsFrom names the property whose violation is the cause of all of
	// this one's: where a service breaks its lease, two clients believe that
	// they hold, so that mutex follows from lease.
	FollowsFrom string `json:"follows_from,omitempty"`
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
	End     string `json:"end"`     // why it ended: "release", "loss notice", "deadline", "end of history", ...
	// Expiry is the earliest time at which the lease could end, 0 without a lease.
	Expiry int64 `json:"expiry_ns,omitempty"`
}

// What porcupine's answer means beside the exact one.
const (
	Agrees     = "agrees"
	Disagrees  = "disagrees"   // one of the two is wrong: the verdict cannot be relied on
	NotDecided = "not decided" // within its budget; the exact verdict stands
)

// Opinion is what porcupine said of the same property.
type Opinion struct {
	Outcome string `json:"outcome"` // Agrees, Disagrees or NotDecided
	Detail  string `json:"detail,omitempty"`
}

// Codes of findings.
const (
	Late     = "late"          // a claim outlived its lease and the grace, with no notice
	Ghost    = "ghost"         // the server granted, the caller was told otherwise or nothing
	Stuck    = "stuck"         // not obtainable for longer than the bound, with no live claimant
	False    = "false answer"  // an answer contradicts what the service did
	Lost     = "lost"          // a client lost the lock before it released it
	Again    = "granted again" // to a client that held, without a release
	Rejected = "rejected"      // the resource rejected a write though no newer one had been accepted
	Workload = "workload"      // work outside of a claim: the workload's fault, not the lock's
)

// Finding is a fact worth knowing.
type Finding struct {
	Code   string  `json:"code"`
	Why    string  `json:"why"`
	Events []int64 `json:"events,omitempty"`
	// Count is how many facts of this code there are, where only the first
	// ones are listed; 0 for 1.
	Count int `json:"count,omitempty"`
}
