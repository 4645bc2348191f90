package checker

import (
	"cmp"
	"time"
)

// Conventions for a release that failed.
const (
	// FailedEnds takes a failed release as the news that the hold had ended
	// before. It is the default, since that is what "not held" says.
	FailedEnds = "ended"
	// FailedIgnored takes it as something that did not happen, as a plain
	// mutex model does: the client goes on believing that it holds.
	FailedIgnored = "strict"
)

// Options say what the history is held against. The zero value is a plain lock
// with what the history itself states.
type Options struct {
	// Model is the kind of lock or object: "mutex" (the default), see Models.
	Model string
	// TTL is the lease in nanoseconds for grants that state none; 0 for none.
	TTL int64
	// Drift is the part of a lease, in [0, 1), that clock drift may take.
	Drift float64
	// Grace is added to a lease before a claim counts as late, or a lock as
	// stuck; 0 means 1 s.
	Grace time.Duration
	// Bound is how long a lock that nobody holds may be unobtainable; 0 means
	// the longest lease plus Grace, and no bound where there is no lease.
	Bound time.Duration
	// Convention reads failed releases: FailedEnds (the default) or
	// FailedIgnored.
	Convention string
	// Timeout bounds porcupine: its second opinion on each property (0 means
	// 1 s), and searches that decide (0 means 10 s).
	Timeout time.Duration
	// Budget is the number of grants on which porcupine is asked; 0 means
	// 20000. Beyond it, it sees a window around the witness.
	Budget int
	// NoSecondOpinion leaves porcupine out.
	NoSecondOpinion bool
}

func (o Options) grace() int64 { return int64(cmp.Or(o.Grace, time.Second)) }

func (o Options) strict() bool { return o.Convention == FailedIgnored }

func (o Options) timeout() time.Duration { return cmp.Or(o.Timeout, 10*time.Second) }

func (o Options) opinion() time.Duration { return cmp.Or(o.Timeout, time.Second) }

func (o Options) budget() int { return cmp.Or(o.Budget, 20000) }

// lease shortens a lease by the allowance for drift.
func (o Options) lease(ttl int64) int64 {
	if o.Drift <= 0 {
		return ttl
	}
	return int64(float64(ttl) * (1 - min(o.Drift, 1)))
}

// convention names the rule by which unknown outcomes were read.
func (o Options) convention(property, version string) string {
	name := property + "/" + version
	if o.strict() {
		name += " strict"
	}
	return name
}
