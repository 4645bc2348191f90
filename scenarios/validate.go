package scenarios

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"
)

const namePattern = `^[a-z0-9]+(-[a-z0-9]+)*$`

var validName = regexp.MustCompile(namePattern)

// reserved are the processes of a history that are not clients.
var reserved = []string{"harness", "nemesis", "resource"}

// freezes is the fault under which a client answers nothing until it is healed.
const freezes = "pause"

// Validate checks what the form of a file cannot say, and fills in the
// defaults of key and TTL. The error, if any, is of type Errors.
func (s *Scenario) Validate() error {
	if s.Key == "" {
		s.Key = DefaultKey
	}
	if s.TTL.IsZero() {
		s.TTL = Duration{Time: DefaultTTL}
	}
	v := &validator{scenario: s}
	v.header()
	if s.Workload != nil {
		v.workload()
	} else {
		v.steps()
	}
	for i := range s.Nemesis {
		v.injection(&s.Nemesis[i])
	}
	for _, e := range s.Expect {
		if len(e.Properties) == 0 && len(e.Figures) == 0 && len(e.Findings) == 0 && e.Status == "" {
			v.errorf(e.Line, "an expectation needs \"properties\", \"figures\", \"findings\" or \"status\": this one expects nothing")
		}
	}
	v.figures()
	v.versions()
	for _, e := range s.Excuse {
		for _, p := range e.Properties {
			if !slices.Contains(Properties(), p) {
				v.errorf(e.Line, "an excuse names %s, which is no property: there are %s", quote(p), strings.Join(Properties(), ", "))
			}
		}
	}
	return v.err()
}

// versions checks the limits of expectations.
func (v *validator) versions() {
	for _, e := range v.scenario.Expect {
		for _, limits := range []map[string]string{e.Since, e.Before} {
			for _, software := range slices.Sorted(maps.Keys(limits)) {
				if limit := limits[software]; !validVersion.MatchString(limit) {
					v.errorf(e.Line, "%s of %s is no version: write numbers with dots between them, as in \"3.5\"", quote(limit), software)
				}
			}
		}
	}
}

var validVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*$`)

// validator walks the steps in the way in which a run would.
type validator struct {
	scenario *Scenario
	errs     Errors

	acquired map[string]bool  // clients that have tried to acquire
	queued   map[string]*Step // by client: the operation not yet awaited
	faults   map[string]*Step // by kind: the faults in effect
}

func (v *validator) errorf(line int, format string, args ...any) {
	v.errs = append(v.errs, Error{File: v.scenario.File, Line: line, Msg: fmt.Sprintf(format, args...)})
}

func (v *validator) err() error {
	if len(v.errs) == 0 {
		return nil
	}
	sort.SliceStable(v.errs, func(i, j int) bool { return v.errs[i].Line < v.errs[j].Line })
	return v.errs
}

// header checks the fields that stand by themselves.
func (v *validator) header() {
	s := v.scenario
	if !validName.MatchString(s.Name) {
		v.errorf(s.lines["name"], "name %s must be made of small letters, digits and dashes, as in \"gc-pause\"", quote(s.Name))
	}
	if s.TTL.TTLs != 0 {
		v.errorf(s.lines["ttl"], "\"ttl\" cannot be a multiple of itself: write it with a unit, as in \"1s\"")
	}
	if s.Workload == nil {
		v.directed()
	} else {
		for _, name := range []string{"clients", "steps"} {
			if line, given := s.lines[name]; given {
				v.errorf(line, "%q cannot go with \"workload\": a scenario has the one or the other", name)
			}
		}
	}
	for i, c := range s.Clients {
		if slices.Contains(reserved, c) {
			v.errorf(s.lines["clients"], "a client cannot be named %s: the history uses that name", quote(c))
		}
		if slices.Contains(s.Clients[:i], c) {
			v.errorf(s.lines["clients"], "\"clients\" names %s twice", quote(c))
		}
	}
}

// directed checks that there is a story.
func (v *validator) directed() {
	s := v.scenario
	if len(s.Clients) == 0 {
		v.errorf(s.lines["clients"], "\"clients\" is empty: a scenario needs at least one")
	}
	if len(s.Steps) == 0 {
		v.errorf(s.lines["steps"], "\"steps\" is empty: nothing would happen")
	}
}

func (v *validator) steps() {
	v.acquired = map[string]bool{}
	v.queued = map[string]*Step{}
	v.faults = map[string]*Step{}
	for i := range v.scenario.Steps {
		step := &v.scenario.Steps[i]
		if !v.form(step) {
			continue
		}
		switch {
		case step.Do != "":
			v.do(step)
		case step.Fault != "":
			v.fault(step)
		case step.Heal != "":
			v.heal(step)
		default:
			v.await(step)
		}
	}
	for _, client := range v.scenario.Clients {
		step := v.queued[client]
		if step == nil {
			continue
		}
		v.errorf(step.Line, "the queued %s of %s is never awaited: add {await: %s} after the fault is healed", step.Do, client, client)
	}
}

// form checks that the step is of exactly one kind, and has no fields of others.
func (v *validator) form(s *Step) bool {
	before := len(v.errs)
	var kinds []string
	for _, k := range []struct{ name, value string }{{"do", s.Do}, {"fault", s.Fault}, {"heal", s.Heal}, {"await", s.Await}} {
		if k.value != "" {
			kinds = append(kinds, k.name)
		}
	}
	switch len(kinds) {
	case 1:
	case 0:
		v.errorf(s.Line, "a step needs exactly one of \"do\", \"fault\", \"heal\" and \"await\": this one has none")
		return false
	default:
		v.errorf(s.Line, "a step needs exactly one of \"do\", \"fault\", \"heal\" and \"await\": this one has %s", strings.Join(kinds, " and "))
		return false
	}
	of := func(kind, name string, given bool) {
		if given && kinds[0] != kind {
			v.errorf(s.Line, "%q belongs to a step with %q, not to one with %q", name, kind, kinds[0])
		}
	}
	of("do", "client", s.Client != "")
	of("do", "value", s.Value != "")
	of("do", "queue", s.Queue)
	of("do", "key", s.Key != "")
	of("do", "refused", s.Refused)
	of("fault", "on", len(s.On) > 0)
	of("fault", "with", len(s.With) > 0)
	if s.Do != "" && s.Client == "" {
		v.errorf(s.Line, "who does the %s? Add \"client\"", s.Do)
	}
	if s.Fault != "" && len(s.On) == 0 {
		v.errorf(s.Line, "what does the fault %s act on? Add \"on\"", quote(s.Fault))
	}
	if s.Value != "" && s.Do != "write" && s.Do != "" {
		v.errorf(s.Line, "\"value\" belongs to a write, not to a step that does %s", s.Do)
	}
	if s.Refused && s.Do != "" && s.Do != "acquire" && s.Do != "write" {
		v.errorf(s.Line, "\"refused\" belongs to an acquire or a write, not to a step that does %s", s.Do)
	}
	if s.Refused && s.MayFail {
		v.errorf(s.Line, "a step that must be \"refused\" needs no \"may_fail\"")
	}
	for _, name := range []string{s.Client, s.Await} {
		if name != "" && !slices.Contains(v.scenario.Clients, name) && !(name == s.Await && v.comes(name)) {
			v.errorf(s.Line, "unknown client %s%s", quote(name), suggest(name, v.scenario.Clients))
		}
	}
	return len(v.errs) == before
}

func (v *validator) do(s *Step) {
	if q := v.queued[s.Client]; q != nil {
		v.errorf(s.Line, "%s still has its %s of line %d queued: {await: %s} must come first", s.Client, q.Do, q.Line, s.Client)
		return
	}
	switch f := v.frozen(s.Client); {
	case s.Queue && !v.faulty(s.Client):
		v.errorf(s.Line, "queue without a fault on %s: nothing would hold the request back; inject a fault on %s first, or leave \"queue\" out", s.Client, s.Client)
	case !s.Queue && f != nil:
		v.errorf(s.Line, "%s is frozen since line %d and cannot answer: add \"queue: true\", or heal first", s.Client, f.Line)
	}
	switch s.Do {
	case "acquire":
		v.acquired[s.Client] = true
	case "write", "renew", "release":
		if !v.acquired[s.Client] {
			v.errorf(s.Line, "%s does %s before it has acquired the lock", s.Client, s.Do)
		}
	}
	if s.Queue {
		v.queued[s.Client] = s
	}
}

func (v *validator) fault(s *Step) {
	if f := v.faults[s.Fault]; f != nil {
		v.errorf(s.Line, "fault %s is in effect since line %d: heal it first, or name all targets there", quote(s.Fault), f.Line)
		return
	}
	v.faults[s.Fault] = s
}

func (v *validator) heal(s *Step) {
	if v.faults[s.Heal] == nil {
		kinds := make([]string, 0, len(v.faults))
		for k := range v.faults {
			kinds = append(kinds, k)
		}
		sort.Strings(kinds)
		v.errorf(s.Line, "heal of %s, which is not in effect here%s", quote(s.Heal), suggest(s.Heal, kinds))
		return
	}
	delete(v.faults, s.Heal)
}

// comes reports whether a step that is about no client waits for something that is
// to come: a new leader, or a kind of fault that the nemesis is to inject.
func (v *validator) comes(kind string) bool {
	return kind == NewLeader || slices.ContainsFunc(v.scenario.Nemesis, func(i Injection) bool { return i.Fault == kind })
}

func (v *validator) await(s *Step) {
	if !slices.Contains(v.scenario.Clients, s.Await) {
		return // what comes
	}
	q := v.queued[s.Await]
	if q == nil {
		v.errorf(s.Line, "await of %s, which has nothing queued here", s.Await)
		return
	}
	if f := v.frozen(s.Await); f != nil {
		v.errorf(s.Line, "%s is still frozen since line %d and cannot answer its %s: heal first", s.Await, f.Line, q.Do)
	}
	delete(v.queued, s.Await)
}

// frozen returns the step that froze the client, or nil.
func (v *validator) frozen(client string) *Step {
	if f := v.faults[freezes]; f != nil && slices.Contains(f.On, client) {
		return f
	}
	return nil
}

func (v *validator) faulty(client string) bool {
	for _, f := range v.faults {
		if slices.Contains(f.On, client) {
			return true
		}
	}
	return slices.ContainsFunc(v.scenario.Nemesis, func(i Injection) bool { return slices.Contains(i.On, client) })
}

// Known are the names that exist in a program, for Check.
type Known struct {
	Backends, Resources, Faults []string
	Software                    []string // nil is any
	// Params says what is wrong with the parameters of a fault; nil does not
	// look at them.
	Params func(fault string, with map[string]string) error
}

// Check reports names of backends, resources and faults in the scenario that
// are not known, and wrong parameters of faults, which this package cannot tell by
// itself. The error, if any, is of type Errors.
func (s *Scenario) Check(known Known) error {
	v := &validator{scenario: s}
	check := func(line int, what, name string, all []string) {
		if !slices.Contains(all, name) {
			v.errorf(line, "unknown %s %s%s", what, quote(name), suggest(name, all))
		}
	}
	for _, b := range s.Backends {
		check(s.lines["backends"], "backend", b, known.Backends)
	}
	for _, r := range s.Resources {
		check(s.lines["resources"], "resource", r, known.Resources)
	}
	for _, client := range slices.Sorted(maps.Keys(s.As)) {
		check(s.lines["as"], "backend", s.As[client], known.Backends)
		if !slices.Contains(s.Clients, client) {
			v.errorf(s.lines["as"], "unknown client %s%s", quote(client), suggest(client, s.Clients))
		}
	}
	fault := func(line int, name string, with map[string]string) {
		check(line, "fault", name, known.Faults)
		if known.Params == nil || !slices.Contains(known.Faults, name) {
			return
		}
		if err := known.Params(name, with); err != nil {
			v.errorf(line, "%v", err)
		}
	}
	for _, step := range s.Steps {
		if step.Fault != "" {
			fault(step.Line, step.Fault, step.With)
		}
	}
	for _, i := range s.Nemesis {
		fault(i.Line, i.Fault, i.With)
	}
	for _, e := range s.Expect {
		for _, b := range e.Backends {
			check(e.Line, "backend", b, known.Backends)
		}
		for _, r := range e.Resources {
			check(e.Line, "resource", r, known.Resources)
		}
		for _, limits := range []map[string]string{e.Since, e.Before} {
			for _, software := range slices.Sorted(maps.Keys(limits)) {
				if known.Software == nil {
					continue
				}
				check(e.Line, "software", software, known.Software)
			}
		}
	}
	return v.err()
}

// Validate checks the suite's own fields; that its scenarios exist is only
// found out by loading them.
func (s *Suite) Validate() error {
	v := &validator{scenario: &Scenario{File: s.File}}
	if !validName.MatchString(s.Name) {
		v.errorf(1, "name %s must be made of small letters, digits and dashes, as in \"claims\"", quote(s.Name))
	}
	if len(s.Scenarios) == 0 {
		v.errorf(1, "\"scenarios\" is empty: the suite would run nothing")
	}
	return v.err()
}

// suggest ends a message about an unknown word with the one that was probably
// meant, or else with all that there are.
func suggest(word string, known []string) string {
	best, least := "", 1+len(word)/3
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d <= least {
			if best == "" || d < least {
				best, least = k, d
			}
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf(": did you mean %q?", best)
	case len(known) == 0:
		return ""
	}
	return ": there are " + strings.Join(known, ", ")
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment). Long words, which
// are no misspellings of ours, are told apart by their first 64 bytes.
func distance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
