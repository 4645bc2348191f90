// Package scenarios holds scenario and suite files: their types, the strict
// parser that names file and line in every error, the JSON Schema, and the
// files that come with lockcheck.
//
// A directed scenario is a script of steps of named clients. Steps run one
// after the other; each ends when what it asked for was observed, not after a
// time. A workload scenario has clients that contend, each by itself, and a
// nemesis that disturbs them. docs/writing-a-scenario.md is the manual.
package scenarios

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scenario is one scenario file, with the defaults filled in.
type Scenario struct {
	Name    string
	Summary string // one line
	Why     string // why the scenario exists
	Claims  []string
	Clients []string // names of the clients, as in the history
	Key     string   // the lock, and the object that it protects
	// TTL is the lease to ask for; it is always absolute.
	TTL      Duration
	Backends []string // backends it makes sense for; empty means all
	// Resources are what the lock protects, one run each, where the user names
	// none; empty means the backend's default.
	Resources []string
	// As has clients use another backend than the run's, on the run's servers.
	As map[string]string
	// Settings are of the backend's servers, over those that it gives them.
	Settings map[string]string
	// Figures are what a run measures beside its verdicts, see [Figures].
	Figures []string
	// Violates is the property whose violation `reproduce` asserts; empty for
	// controls.
	Violates string
	// A scenario has steps, or a workload, which a nemesis may disturb.
	Steps    []Step
	Workload *Workload
	Nemesis  []Injection
	Expect   []Expectation
	// Bound is in what time the lock must be granted again, where grants state no
	// lease; zero is none.
	Bound Duration
	// Excuse names properties that do not count where a correct lock may break
	// them.
	Excuse []Excuse

	File     string         // where it came from, for messages
	Embedded bool           // it comes with lockcheck, and File is no file on disk
	Source   []byte         // the file's text
	lines    map[string]int // of the fields, in the file
}

// Step is one step: exactly one of Do, Fault, Heal and Await is set.
type Step struct {
	Client string // who does Do
	Do     string // one of Operations
	Value  string // of a write
	Key    string // the lock, and the object that it protects; the scenario's if empty
	// Within is, of an acquire, how long to wait for the lock (0 is a single
	// try); of the others, the time by which the answer must have come.
	// DefaultWithin is filled in where the file says nothing.
	Within Duration
	// Queue sends the request and goes on without the answer, because the
	// client is under a fault; a later Await collects the answer.
	Queue bool
	// MayFail says that a failure of the step is a possible outcome, and not a
	// reason to call the run inconclusive.
	MayFail bool
	// Refused says that the acquire or the write must not succeed: if it does, the
	// run is inconclusive, since the story is not the one to be told.
	Refused bool

	Fault string            // kind of fault to inject
	On    []string          // its targets: names of clients or servers
	With  map[string]string // its parameters

	Heal string // kind of fault to end, on all its targets
	// Await is the client whose queued operation is waited for, the kind of fault
	// that entries of the nemesis are waited for to inject, or NewLeader.
	Await string

	Line int // in the file
}

// Expectation says what must come out on some backends with some resources.
type Expectation struct {
	Backends  []string // empty means any
	Resources []string // empty means any
	// Locks are names that client programs state of what they test, such as
	// "redsync"; empty means any, the backend's own included.
	Locks []string
	// Since and Before limit the versions of server software, by its name: "3.5" or
	// later, before "3.5".
	Since, Before map[string]string
	Properties    map[string]string // property to one of Verdicts
	Figures       map[string]string // figure to a Range
	Findings      map[string]string // code of a finding to "found" or "none"
	Status        string            // "pass", "violation", "inconclusive", or empty
	Why           string

	Line int
}

// Excuse says that a run is no violation because of some properties, if its clients
// have none of some capabilities.
type Excuse struct {
	Properties []string
	Without    []string // capabilities; empty means that it always holds
	Why        string

	Line int
}

// Excused returns the properties whose violation does not count, and why, for
// clients that have the capabilities.
func (s *Scenario) Excused(can []string) map[string]string {
	excused := map[string]string{}
	for _, e := range s.Excuse {
		if slices.ContainsFunc(e.Without, func(c string) bool { return slices.Contains(can, c) }) {
			continue
		}
		for _, p := range e.Properties {
			excused[p] = e.Why
		}
	}
	return excused
}

// Defaults of what a file leaves out.
const (
	DefaultKey    = "k"
	DefaultTTL    = time.Second
	DefaultWithin = 10 * time.Second
)

// NewLeader is what Step.Await says to wait until a server leads that did not before
// the last fault of a step.
const NewLeader = "leader"

// Words that files may use. They are functions so that nobody changes them.

// Operations returns the values that Step.Do may have.
func Operations() []string {
	return []string{"acquire", "renew", "release", "check", "write", "read"}
}

// Properties returns the names of the properties that can be expected.
func Properties() []string {
	return []string{"mutex", "lease", "token", "fence", "state", "release", "liveness"}
}

// Verdicts returns what may be expected of a property. "any" withdraws what an
// earlier entry expected.
func Verdicts() []string { return []string{"held", "violated", "not applicable", Any} }

// Any is the verdict that every outcome meets.
const Any = "any"

// Findings returns the codes of findings that can be expected.
func Findings() []string {
	return []string{"lost", "late", "ghost", "stuck", "false answer", "unreleased", "granted again", "rejected", "workload"}
}

// Found and None are what may be expected of a finding.
const (
	Found = "found"
	None  = "none"
)

// Statuses returns what may be expected of a run as a whole.
func Statuses() []string { return []string{"pass", "violation", "inconclusive"} }

// Subject is what expectations are about.
type Subject struct {
	Backend, Resource string
	// Versions are those of the servers, by software. Nil means that they are not
	// known: entries about some versions only are then about it too.
	Versions map[string]string
	Locks    []string // what client programs say that they test
}

// Expected returns what the scenario expects of a subject: property to verdict.
// Later entries override earlier ones; properties of which nothing, or "any", is
// expected are left out.
func (s *Scenario) Expected(of Subject) map[string]string {
	want := map[string]string{}
	for _, e := range s.Expect {
		if !e.matches(of) {
			continue
		}
		for property, verdict := range e.Properties {
			if verdict == Any {
				delete(want, property)
			} else {
				want[property] = verdict
			}
		}
	}
	return want
}

// ExpectedFindings returns which findings the scenario expects of a subject, and
// which it rules out: code to Found or None.
func (s *Scenario) ExpectedFindings(of Subject) map[string]string {
	want := map[string]string{}
	for _, e := range s.Expect {
		if e.matches(of) {
			maps.Copy(want, e.Findings)
		}
	}
	return want
}

// ExpectedStatus returns the status that the scenario expects of a subject, or ""
// if it states none.
func (s *Scenario) ExpectedStatus(of Subject) string {
	status := ""
	for _, e := range s.Expect {
		if e.Status != "" && e.matches(of) {
			status = e.Status
		}
	}
	return status
}

func (e Expectation) matches(of Subject) bool {
	return (len(e.Backends) == 0 || slices.Contains(e.Backends, of.Backend)) &&
		(len(e.Resources) == 0 || slices.Contains(e.Resources, of.Resource)) &&
		(len(e.Locks) == 0 || slices.ContainsFunc(e.Locks, func(l string) bool { return slices.Contains(of.Locks, l) })) &&
		limited(of.Versions, e.Since, false) && limited(of.Versions, e.Before, true)
}

// limited reports whether versions are before those of the limits, or else not.
// Software that does not run is of no version.
func limited(versions, limits map[string]string, before bool) bool {
	for software, limit := range limits {
		if versions == nil {
			continue
		}
		v, ok := versions[software]
		if !ok || (compareVersions(v, limit) < 0) != before {
			return false
		}
	}
	return true
}

// compareVersions compares the numbers that versions begin with: "3.4.23" is less
// than "3.5", and "3.7.3 (embedded)" is not less than "3.7".
func compareVersions(a, b string) int {
	for a != "" || b != "" {
		var x, y int
		x, a = leading(a)
		y, b = leading(b)
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
	}
	return 0
}

// leading cuts the number off with which a version begins; 0 if there is none.
func leading(v string) (n int, rest string) {
	digits := v[:len(v)-len(strings.TrimLeft(v, "0123456789"))]
	if digits == "" {
		return 0, ""
	}
	n, _ = strconv.Atoi(digits) // one that is too large is the largest
	rest, _ = strings.CutPrefix(v[len(digits):], ".")
	return n, rest
}

// Supports reports whether the scenario is meant for the backend.
func (s *Scenario) Supports(backend string) bool {
	return len(s.Backends) == 0 || slices.Contains(s.Backends, backend)
}

// Suite is a named list of scenarios.
type Suite struct {
	Name      string
	Summary   string
	Scenarios []string // names, or files relative to the suite's own

	File  string
	lines []int // of Scenarios, in the file
}

// Error is one fault found in a file.
type Error struct {
	File string
	Line int // 0 if the fault is not at a line
	Msg  string
}

func (e Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Msg
	}
	return e.File + ":" + strconv.Itoa(e.Line) + ": " + e.Msg
}

// Errors are all the faults found in a file, by line; there is at least one.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives access to the single errors.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}
