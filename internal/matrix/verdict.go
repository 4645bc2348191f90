package matrix

import (
	"fmt"
	"slices"

	"github.com/lockcheck/lockcheck/checker"
)

// Verdict is what a lock is fit for, as far as the runs show.
type Verdict string

const (
	NotFit       Verdict = "not-fit"       // it breaks without a fault
	NotShown     Verdict = "not-shown"     // the runs do not decide
	Efficiency   Verdict = "efficiency"    // late writes get through: it saves work, and protects nothing
	Fenced       Verdict = "fenced"        // a resource that compares its tokens is safe
	SameDatabase Verdict = "same-database" // the lock, or what stands in for it, ends with the write
)

// Words is the verdict as it is told.
func (v Verdict) Words() string {
	switch v {
	case NotFit:
		return "not fit: it breaks without a fault"
	case Efficiency:
		return "fit for efficiency only"
	case Fenced:
		return "fit for correctness if the resource is fenced"
	case SameDatabase:
		return "fit for correctness when the data lives in the same database"
	}
	return "not shown"
}

// rank orders verdicts by how much they allow. The two of correctness allow
// different things, and neither more.
func (v Verdict) rank() int {
	switch v {
	case Efficiency:
		return 1
	case Fenced, SameDatabase:
		return 2
	}
	return 0
}

// The columns whose runs decide a verdict. A row is broken by a run of any of
// breaking, and is fit for correctness only if each of needed has been tried. That
// two clients believe that they hold, and when a dead holder's lock is free, is told
// and decides nothing: data that is protected bears both.
var (
	breaking = []string{fencing, timing, partition, failover}
	needed   = []string{fencing, partition, failover}
)

// judge gives the row its verdict. The rule, of which the first that applies counts:
//
//  1. Anything is violated in a run without a fault, and it is not just that a client
//     outlived its lease while the service kept its promise: not fit.
//  2. No run without a fault held everything: not shown.
//  3. In a run with a fault a late write was accepted, or tokens repeated or fell,
//     although the resource was the one that protects best: fit for efficiency only.
//  4. Each of the columns fencing, partition and failover has a conclusive run, and in
//     one of fencing a late write was rejected, or the lock was granted to nobody
//     else. Then it is fit for correctness: when the data lives in the same
//     database, if that is what the runs protected; if the resource is fenced, if
//     every run in which tokens could be judged had tokens that rise.
//  5. Else: not shown.
func (r *Row) judge() {
	r.Because, r.Decided = nil, nil
	r.Verdict = r.rule()
	r.Words = r.Verdict.Words()
}

func (r *Row) rule() Verdict {
	conclusive := false
	for _, column := range []string{control, throughput} {
		for _, t := range r.Cell(column).Trials {
			if t.count(Run.unprovoked) > 0 {
				r.because(t, AnyViolation)
				return NotFit
			}
			conclusive = conclusive || column == control && t.Conclusive() > t.count(Run.outlived)
		}
	}
	if !conclusive {
		why := "no run without a fault held everything"
		for _, t := range r.Cell(control).Trials {
			if len(t.Runs) > 0 && len(t.Runs[0].Reasons) > 0 {
				why += ": " + t.Runs[0].Reasons[0]
				break
			}
		}
		r.say("", why)
		return NotShown
	}
	broken := false
	for _, t := range r.of(breaking) {
		switch {
		case t.count(func(run Run) bool { return run.Stale == Accepted }) > 0:
			r.because(t, LateWrite)
			broken = true
		case t.count(func(run Run) bool { return run.violated(checker.Token) }) > 0:
			r.because(t, Tokens)
			broken = true
		}
	}
	if broken {
		return Efficiency
	}
	return r.correct()
}

// correct decides between the verdicts of correctness and none, for a row that no
// run broke.
func (r *Row) correct() Verdict {
	for _, column := range needed {
		tried := slices.ContainsFunc(r.Cell(column).Trials, func(t *Trial) bool { return t.Conclusive() > 0 })
		if !tried {
			r.say("", "no conclusive run for "+column)
		}
	}
	protected := func(run Run) bool { return run.Stale == Rejected || run.Stale == NoneOther }
	if !slices.ContainsFunc(r.Cell(fencing).Trials, func(t *Trial) bool { return t.count(protected) > 0 }) {
		r.say("", "nothing shows what becomes of a late write: none was sent")
	}
	if len(r.Because) > 0 {
		return NotShown
	}
	verdict := Fenced
	if r.Resource == sameDatabase {
		verdict = SameDatabase
	} else if !r.tokens() {
		r.say("", "no run broke it, and there is no token that would say why")
		return NotShown
	}
	for _, t := range r.of(needed) {
		for _, q := range t.Asks {
			if t.Conclusive() > 0 && (q == LateWrite || q == Tokens && verdict == Fenced) {
				r.because(t, q)
			}
		}
	}
	return verdict
}

// sameDatabase is the resource whose writes are part of what the lock is in.
const sameDatabase = "postgres"

// tokens reports whether late writes were rejected because of tokens.
func (r *Row) tokens() bool {
	return slices.ContainsFunc(r.Cell(fencing).Trials, func(t *Trial) bool {
		return t.count(func(run Run) bool { return run.Stale == Rejected && run.Properties[checker.Token] == checker.Held }) > 0
	})
}

// of are the trials of the columns that were made with the row's own resource.
func (r *Row) of(columns []string) []*Trial {
	var all []*Trial
	for _, column := range columns {
		for _, t := range r.Cell(column).Trials {
			if t.Resource == r.Resource {
				all = append(all, t)
			}
		}
	}
	return all
}

// because notes what a trial says to a question as a reason.
func (r *Row) because(t *Trial, q Question) {
	var a Answer
	t.answer(q, &a)
	r.say(t.Scenario, fmt.Sprintf("%s: %s", t.Scenario, a.Text))
}

func (r *Row) say(scenario, why string) {
	if !slices.Contains(r.Because, why) {
		r.Because = append(r.Because, why)
	}
	if scenario != "" && !slices.Contains(r.Decided, scenario) {
		r.Decided = append(r.Decided, scenario)
	}
}
