package scenarios

import (
	"fmt"
	"slices"
	"strconv"
)

// Workload is what the clients of a scenario without steps do, each by itself,
// again and again: acquire, check, write, work, release, think.
type Workload struct {
	Clients int // their names are "c1", "c2", ...
	Keys    int // how many locks they contend for, chosen at random each time
	// Wait is how long an acquire waits for the lock; 0 is a single try.
	Wait Duration
	// Work is the length of the section under the lock, Think the pause after
	// it; both vary at random, by Vary percent and by a half.
	Work, Think Duration
	Vary        int
	// Renew is the time from one renewal to the next while a client works; 0
	// for none.
	Renew Duration
	// Check has clients ask themselves whether they still hold before each
	// write, and give up if not.
	Check bool
	// Body is what is done to the protected object: one of Bodies.
	Body string
	// The workload ends after For, or when its clients have made so many
	// acquires, whichever comes first; 0 for no such end.
	For        Duration
	Operations int

	Line int
}

// Bodies returns the values that Workload.Body may have: "write" writes when the
// work begins and when it ends; "rmw" reads when it begins, and writes when it
// ends.
func Bodies() []string { return []string{"write", "rmw"} }

// Injection is an entry of a scenario's nemesis: a fault, the moment at which it
// begins, and the one at which it ends.
type Injection struct {
	Fault string
	// On are the fault's targets: names of clients or servers, or Roles, which
	// are resolved at the moment of injection.
	On   []string
	With map[string]string // parameters; "1.5 ttl" is a time here too

	// It begins at At since the start of the workload or of the steps; or, if When is
	// set, After the Nth event of that kind (of client By, if that is set), counted
	// from 1; or, if Answers is set too, when so many servers have answered that
	// acquire.
	At      Duration
	When    string // one of Moments
	Nth     int
	By      string
	Answers int
	After   Duration

	// It ends after For; or, with Until, as soon as one of Ends comes of a client that
	// is no target, and after For at the latest. Without either it ends with
	// the workload or the steps.
	For   Duration
	Until string

	Line int
}

// Moments returns the events on which a fault may begin. What was answered
// (grant, check) has the client wait with its next step until the fault is in
// effect, and so does what is about to be asked for (before-...); what was asked
// for (acquire, renew, write, release, or any operation) is on its way meanwhile.
// "lost" is a client's notice of its loss, "leader" the change of a cluster's
// leader.
func Moments() []string {
	return []string{
		"grant", "acquire", "renew", "check", "write", "release", "operation", "lost", "leader",
		"before-acquire", "before-renew", "before-check", "before-read", "before-write", "before-release",
	}
}

// Ends returns the events on which a fault may end: a lock was granted, a renewal,
// a write or a release succeeded, or the leader changed.
func Ends() []string { return []string{"grant", "renew", "write", "release", "leader"} }

// Roles returns the names by which Injection.On may mean targets that are only
// known at the moment of injection.
func Roles() []string {
	return []string{"holder", "waiter", "random", "all", "clients", "servers", "leader", "primary", "followers", "majority", "minority"}
}

// Limits of a workload.
const (
	maxClients    = 500
	maxKeys       = 10_000
	maxOperations = 10_000_000
	maxVary       = 100
	defaultVary   = 20
)

// clientName returns the name of the i-th client of a workload, from 1.
func clientName(i int) string { return "c" + strconv.Itoa(i) }

func workloadFields(w *Workload) []field {
	w.Wait, w.Vary = Duration{TTLs: 2}, defaultVary
	return []field{
		{"clients", "number of clients, named c1, c2, ...", true, number(&w.Clients)},
		{"keys", "number of locks that they contend for; 1 if left out", false, number(&w.Keys)},
		{"wait", "how long an acquire waits for the lock, 0s for a single try; 2 ttl if left out", false, duration(&w.Wait)},
		{"work", "length of the section under the lock; none if left out", false, duration(&w.Work)},
		{"vary", "by how many percent the work is longer or shorter at random; 20 if left out", false, number(&w.Vary)},
		{"think", "pause after a release; none if left out", false, duration(&w.Think)},
		{"renew", "from one renewal to the next while a client works; no renewals if left out", false, duration(&w.Renew)},
		{"check", "ask the client whether it still holds before each write, and give up if not", false, boolean(&w.Check)},
		{"body", "write: when the work begins and when it ends (the default); rmw: read when it begins, write when it ends", false, word(&w.Body, Bodies())},
		{"for", "how long the workload goes on", false, duration(&w.For)},
		{"operations", "how many acquires the clients make at most, together", false, number(&w.Operations)},
	}
}

func injectionFields(i *Injection) []field {
	return []field{
		{"fault", "kind of fault", true, text(&i.Fault)},
		{"on", "targets: clients, servers, resource, or roles: holder, waiter, random, all, clients, servers, leader, primary, followers, majority, minority", true, names(&i.On, nil)},
		{"with", "parameters of the fault; times may be multiples of the TTL", false, table(&i.With, nil, nil)},
		{"at", "begins at this time since the start of the workload or the steps", false, duration(&i.At)},
		{"when", "begins on this event", false, word(&i.When, Moments())},
		{"nth", "on the nth such event; 1 if left out", false, number(&i.Nth)},
		{"by", "only events of this client count", false, text(&i.By)},
		{"answers", "with when: acquire, when so many servers have answered it; the last of these answers, and further ones, are held until the fault is in effect", false, number(&i.Answers)},
		{"after", "so long after the event", false, duration(&i.After)},
		{"for", "ends after this time; with the workload if left out", false, duration(&i.For)},
		{"until", "ends when a client that is no target was granted a lock, has renewed, written or released, or the leader changed, \"for\" being the limit", false, word(&i.Until, Ends())},
	}
}

// workload checks the workload and the nemesis, and fills in defaults.
func (v *validator) workload() {
	s := v.scenario
	w := s.Workload
	w.Keys = max(w.Keys, 1)
	if w.Body == "" {
		w.Body = Bodies()[0]
	}
	for _, n := range []struct {
		name  string
		value int
		most  int
	}{{"clients", w.Clients, maxClients}, {"keys", w.Keys, maxKeys}, {"operations", w.Operations, maxOperations}, {"vary", w.Vary, maxVary}} {
		if n.value > n.most {
			v.errorf(w.Line, "%q is %d: at most %d", n.name, n.value, n.most)
		}
	}
	if w.Clients < 1 {
		v.errorf(w.Line, "\"clients\" is %d: a workload needs at least one", w.Clients)
	}
	if w.For.IsZero() && w.Operations == 0 {
		v.errorf(w.Line, "a workload needs an end: add \"for\" or \"operations\"")
	}
	s.Clients = nil
	for i := range min(w.Clients, maxClients) {
		s.Clients = append(s.Clients, clientName(i+1))
	}
}

func (v *validator) injection(i *Injection) {
	if len(i.On) == 0 {
		v.errorf(i.Line, "what does the fault %s act on? Add \"on\"", quote(i.Fault))
	}
	for _, t := range []struct {
		name  string
		given bool
	}{{"nth", i.Nth != 0}, {"by", i.By != ""}, {"after", !i.After.IsZero()}} {
		if t.given && i.When == "" {
			v.errorf(i.Line, "%q belongs to an entry with \"when\"", t.name)
		}
	}
	if i.When != "" && !i.At.IsZero() {
		v.errorf(i.Line, "an entry begins \"at\" a time or \"when\" something happens, not both")
	}
	if i.By != "" && !slices.Contains(v.scenario.Clients, i.By) {
		v.errorf(i.Line, "unknown client %s%s", quote(i.By), suggest(i.By, v.scenario.Clients))
	}
	if i.Answers != 0 && i.When != "acquire" {
		v.errorf(i.Line, "\"answers\" belongs to an entry with \"when: acquire\": they are those to an acquire")
	}
	if i.Answers != 0 && !i.After.IsZero() {
		v.errorf(i.Line, "an entry begins after so many \"answers\" or \"after\" a time, not both: answers are held until the fault is in effect")
	}
	if i.When != "" && i.Nth == 0 {
		i.Nth = 1
	}
}

// String is the entry in one line, as it may stand in a file.
func (i Injection) String() string {
	pairs := []string{"fault: " + i.Fault, "on: " + list(i.On)}
	if len(i.With) > 0 {
		pairs = append(pairs, "with: "+flow(i.With))
	}
	add := func(name string, d Duration) {
		if !d.IsZero() {
			pairs = append(pairs, name+": "+d.String())
		}
	}
	add("at", i.At)
	if i.When != "" {
		pairs = append(pairs, "when: "+i.When, fmt.Sprintf("nth: %d", max(i.Nth, 1)))
	}
	if i.By != "" {
		pairs = append(pairs, "by: "+i.By)
	}
	if i.Answers != 0 {
		pairs = append(pairs, fmt.Sprintf("answers: %d", i.Answers))
	}
	add("after", i.After)
	add("for", i.For)
	if i.Until != "" {
		pairs = append(pairs, "until: "+i.Until)
	}
	return join(pairs)
}
