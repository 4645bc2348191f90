package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
)

// Question is what is asked of the runs of a trial.
type Question string

const (
	AnyViolation   Question = "any-violation"   // is anything violated?
	LateWrite      Question = "late-write"      // is a write accepted that comes after one of a newer grant?
	Tokens         Question = "tokens"          // do grants carry tokens that rise?
	TwoHolders     Question = "two-holders"     // do two clients believe that they hold?
	GrantedEarly   Question = "granted-early"   // is the lock granted while an unexpired lease stands?
	FreedAfter     Question = "freed-after"     // from the fault to the next grant
	RegrantedAfter Question = "regranted-after" // from one grant to the next client's
	NeverFreed     Question = "never-freed"     // is the lock of a dead client granted to nobody?
	Rate           Question = "rate"            // sections a second
)

// figure is the figure by which a question is answered, if it is one.
func (q Question) figure() string {
	switch q {
	case FreedAfter, NeverFreed:
		return "freed-after"
	case RegrantedAfter:
		return "regranted-after"
	case Rate:
		return "grants-per-second"
	}
	return ""
}

// Sense is how an answer is to be read.
type Sense string

const (
	Good    Sense = "good"
	Bad     Sense = "bad"
	Neutral Sense = "neutral" // a time, a rate
	Open    Sense = "open"    // nothing was proved
)

// Answer is what the runs of a trial say to one question.
type Answer struct {
	Scenario string
	Text     string // with its counts: "late write accepted 3 of 3"
	Sense    Sense
	Values   []float64 // the figure in each run, if it is one
	Run      Run       // one that shows it; the zero Run if there is none
}

// Answers are what the trial says to its questions.
func (t *Trial) Answers() []Answer {
	var all []Answer
	for _, q := range t.Asks {
		a := Answer{Scenario: t.Scenario}
		if n := t.Conclusive(); n == 0 {
			a.Text, a.Sense = "not run", Open
			if n := len(t.Runs); n > 0 {
				word := "inconclusive"
				if t.failed() {
					word = "failed"
				}
				a.Text, a.Run = fmt.Sprintf("%s %d of %d", word, n, n), t.Runs[0]
			}
			return append(all, a)
		}
		t.answer(q, &a)
		all = append(all, a)
	}
	return all
}

// answer fills in the answer to a question by the runs, of which some are
// conclusive.
func (t *Trial) answer(q Question, a *Answer) {
	n := t.Conclusive()
	// told takes how many runs show something, and words for that and its contrary.
	told := func(bad func(Run) bool, yes, no string) {
		if k := t.count(bad); k > 0 {
			a.Text, a.Sense, a.Run = fmt.Sprintf("%s %d of %d", yes, k, n), Bad, t.first(bad)
			return
		}
		a.Text, a.Sense, a.Run = fmt.Sprintf("%s %d of %d", no, n, n), Good, t.first(always)
	}
	switch q {
	case AnyViolation:
		if k := t.count(Run.outlived); k > 0 && t.count(Run.unprovoked) == 0 {
			a.Text, a.Sense, a.Run = fmt.Sprintf("nothing violated %d of %d, client outlived its lease %d of %d", n-k, n, k, n), Neutral, t.first(Run.outlived)
			return
		}
		told(Run.unprovoked, "violated ("+strings.Join(t.broken(), ", ")+")", "nothing violated")
	case LateWrite:
		t.answerLate(a)
	case Tokens:
		none := func(r Run) bool { return r.Properties[checker.Token] == "" }
		if t.count(none) == n {
			a.Text, a.Sense, a.Run = "no token", Neutral, t.first(always)
			return
		}
		told(func(r Run) bool { return r.violated(checker.Token) }, "tokens repeat or fall", "tokens rise")
	case TwoHolders:
		told(func(r Run) bool { return r.violated(checker.Mutex) }, "two believe that they hold", "one believes that it holds")
	case GrantedEarly:
		told(func(r Run) bool { return r.violated(checker.Lease) }, "granted twice within a lease", "granted once")
	case NeverFreed:
		freed := func(r Run) bool { _, ok := r.Values[q.figure()]; return ok }
		told(func(r Run) bool { return !freed(r) }, "never freed", "freed")
	case FreedAfter, RegrantedAfter:
		a.Values, a.Sense, a.Run = t.Values(q.figure()), Neutral, t.first(always)
		word := "free"
		if q == RegrantedAfter {
			word = "granted again"
		}
		if len(a.Values) == 0 {
			a.Text = fmt.Sprintf("not granted again %d of %d", n, n)
			return
		}
		median, worst := Median(a.Values)
		a.Text = fmt.Sprintf("%s after %s", word, millis(median))
		if len(a.Values) > 1 {
			a.Text += fmt.Sprintf(" (worst %s, %d of %d)", millis(worst), len(a.Values), n)
		}
	case Rate:
		a.Values, a.Sense, a.Run = t.Values(q.figure()), Neutral, t.first(always)
		median, _ := Median(a.Values)
		a.Text = number(median)
		if len(a.Values) > 1 {
			a.Text += fmt.Sprintf(" (least %s, of %d)", number(slices.Min(a.Values)), len(a.Values))
		}
	}
}

// answerLate says what became of late writes.
func (t *Trial) answerLate(a *Answer) {
	n := t.Conclusive()
	for _, s := range []struct {
		stale Stale
		word  string
		sense Sense
	}{
		{Accepted, "late write accepted", Bad},
		{Rejected, "late write rejected", Good},
		{NoneOther, "nobody else was granted it", Good},
		{NotSent, "no late write was sent", Open},
	} {
		is := func(r Run) bool { return r.Stale == s.stale }
		if k := t.count(is); k > 0 {
			a.Text, a.Sense, a.Run = fmt.Sprintf("%s %d of %d", s.word, k, n), s.sense, t.first(is)
			return
		}
	}
	a.Text, a.Sense = "nothing was written", Open
}

func always(Run) bool { return true }

// failed reports whether no run could be carried out.
func (t *Trial) failed() bool {
	return !slices.ContainsFunc(t.Runs, func(r Run) bool { return r.Status != reports.Error })
}

// first returns the first conclusive run of which is is true.
func (t *Trial) first(is func(Run) bool) Run {
	for _, r := range t.Runs {
		if r.Conclusive() && is(r) {
			return r
		}
	}
	return Run{}
}

// outlived reports whether all that is wrong with the run is that a client outlived its
// lease, and the service kept its promise: the machine was too slow for the lease.
func (r Run) outlived() bool {
	return r.violated(checker.Mutex) && r.Properties[checker.Lease] == checker.Held &&
		!r.violated(checker.Token) && !r.violated(checker.Release) && !r.violated(checker.Liveness)
}

// unprovoked reports whether a run without a fault shows that the lock is broken.
func (r Run) unprovoked() bool { return len(r.broken()) > 0 && !r.outlived() }

// broken are the properties that the run violated.
func (r Run) broken() []string {
	var all []string
	for _, p := range []string{checker.Mutex, checker.Lease, checker.Token, checker.Fence, checker.State, checker.Release, checker.Liveness} {
		if r.violated(p) {
			all = append(all, p)
		}
	}
	return all
}

// broken are the properties that any conclusive run violated, but for those in which a
// client outlived its lease.
func (t *Trial) broken() []string {
	var all []string
	for _, r := range t.Runs {
		for _, p := range r.broken() {
			if r.Conclusive() && !r.outlived() && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// millis writes a time in milliseconds as people read it.
func millis(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

// number writes a rate.
func number(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f/s", v)
	}
	return fmt.Sprintf("%.0f/s", v)
}
