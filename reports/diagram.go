package reports

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// Diagram draws events as a sequence diagram in text: time on the left, then a
// column each for the first client, the lock service, the other clients and
// the resource. With a violation in rep it shows the clients of its witness;
// of a long history only the witness and its surroundings. Events must be in
// order; rep may be nil.
//
// What the picture says is what the history says, in its order. Three things are
// added: the end of a lease during which somebody else was granted the lock, at
// the earliest time at which it can be (invocation of the acquire or renewal,
// plus TTL); and the departure of a request that was
// queued while its client was frozen, directly before its effect, without a time;
// and the client's thaw before that, likewise, where the history records the
// healing only after what the client did then.
func Diagram(w io.Writer, events []history.Event, rep *checker.Report, o Options) error {
	out := bufio.NewWriter(w)
	tell(events, rep, o).draw(out)
	return out.Flush()
}

// tell turns events into the rows of a picture, whatever draws it.
func tell(events []history.Event, rep *checker.Report, o Options) *diagram {
	if rep == nil {
		rep = &checker.Report{}
	}
	d := newDiagram(events, rep, o)
	for _, e := range events {
		d.event(e)
	}
	d.leasesUntil(d.last)
	d.rows = slices.DeleteFunc(d.rows, func(r row) bool { return r.lease > 0 && !d.outlived[r.lease] })
	return d
}

// Limits of what is drawn.
const (
	mostRows = 64 // rows of a history that is shown whole
	ends     = 24 // rows shown of either end of a longer one without a witness
	around   = 2  // rows shown around each row of a witness
	buffer   = 4096
)

// life is what a client's lifeline shows.
type life byte

const (
	idle   life = iota
	holds       // it believes that it holds
	frozen      // it cannot run
)

// client is what is known of a client at a point of the history.
type client struct {
	name   string
	lane   int
	holds  bool
	faults []string // faults in effect on it
	open   *operation
	grant  int // number of its present grant, counted over all clients; 0 for none
	token  *int64
	ttl    int64 // lease of its present grant
	expiry int64 // earliest end of it, 0 for none or after its mark
	until  int64 // its own deadline, 0 for none
}

// operation is an invocation that may not have completed yet.
type operation struct {
	history.Event
	client  *client
	grant   int
	token   *int64
	queued  bool // invoked while the client was frozen
	applied bool // the resource has recorded it
	ok      bool // the client was told that it happened
}

// row is one line of the picture.
type row struct {
	time   int64 // -1 for none
	index  int64 // of the event
	before int   // operations invoked before it
	after  int   // the same, with its own
	lives  []life
	both   bool // more than one client believes that it holds
	lease  int  // grant whose lease ends here, 0 for none
	key    bool // part of the witness, or needed to understand it
	marks  []mark
}

// mark is something drawn on a row: an arrow if from and to differ, else a
// note at a lane. Of the labels the first, longest, that fits is written.
type mark struct {
	from, to int
	labels   []string
	style    style
	unknown  bool // outcome unknown: the arrow is dotted
	lost     bool // the arrow ends on the way, and the label is the note behind
	sign     rune // drawn on the lifeline, 0 for none
	wide     bool // the note may run over other lifelines
}

type diagram struct {
	o       Options
	rep     *checker.Report
	glyphs  glyphs
	key     string         // of the lock that is shown
	witness map[int64]bool // events of the witnesses
	clients map[string]*client
	lanes   []string // titles; lane 1 is the lock service
	res     int      // lane of the resource, -1 for none
	others  map[string]bool

	rows     []row
	ops      int
	grants   int
	outlived map[int]bool         // grants during which another client was granted the lock
	newest   int                  // newest grant from which the resource accepted a write
	writes   map[int64]*operation // shown writes not yet applied, by index
	records  bool                 // the resource records what it applies
	last     int64
}

func newDiagram(events []history.Event, rep *checker.Report, o Options) *diagram {
	d := &diagram{
		o: o, rep: rep, glyphs: unicodeGlyphs, res: -1,
		witness: map[int64]bool{}, clients: map[string]*client{}, others: map[string]bool{}, writes: map[int64]*operation{},
		outlived: map[int]bool{},
	}
	if o.ASCII {
		d.glyphs = asciiGlyphs
	}
	names := d.fromWitnesses()
	hasResource := false
	seen := map[string]bool{}
	var inOrder []string
	for _, e := range events {
		switch {
		case e.Process == history.Resource:
			d.records, hasResource = true, true
		case isClient(e.Process):
			hasResource = hasResource || onObject(e.F)
			if d.key == "" {
				d.key = e.Key
			}
			if !seen[e.Process] {
				seen[e.Process] = true
				inOrder = append(inOrder, e.Process)
			}
		}
	}
	for _, name := range inOrder {
		if len(names) < 2 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	// In the order in which they entered the history.
	sort.SliceStable(names, func(i, j int) bool { return slices.Index(inOrder, names[i]) < slices.Index(inOrder, names[j]) })
	if len(names) == 0 {
		d.lanes = append(d.lanes, "no client") // of a run that ended before one did anything
	}
	for i, name := range names {
		if i == 1 {
			d.lanes = append(d.lanes, "lock service")
		}
		d.clients[name] = &client{name: name, lane: len(d.lanes)}
		d.lanes = append(d.lanes, "client "+o.clean(name))
	}
	if len(names) < 2 {
		d.lanes = append(d.lanes, "lock service")
	}
	if hasResource {
		d.res = len(d.lanes)
		d.lanes = append(d.lanes, "resource")
	}
	for name := range seen {
		if d.clients[name] == nil {
			d.others[name] = true
		}
	}
	return d
}

// fromWitnesses takes up the events of the first violation's witness and of
// those that concern the same clients, and returns the clients.
func (d *diagram) fromWitnesses() []string {
	var names []string
	for _, p := range d.rep.Properties {
		if p.Verdict != checker.Violated || p.Witness == nil || d.key != "" && p.Witness.Key != d.key {
			continue
		}
		var its []string
		for _, h := range p.Witness.Holds {
			if !slices.Contains(its, h.Process) {
				its = append(its, h.Process)
			}
		}
		if names == nil {
			names = its
			d.key = p.Witness.Key
		}
		for _, name := range its {
			if !slices.Contains(names, name) && len(names) < 4 {
				names = append(names, name)
			}
		}
		for _, index := range p.Witness.Events {
			d.witness[index] = true
		}
	}
	return names
}

func isClient(process string) bool {
	return process != history.Harness && process != history.Nemesis && process != history.Resource && process != history.Observer
}

const (
	service = 1       // lane of the lock service
	freeze  = "pause" // the fault under which a client cannot run
)

func (d *diagram) event(e history.Event) {
	d.leasesUntil(e.Time)
	d.last = max(d.last, e.Time)
	switch {
	case e.Process == history.Nemesis:
		d.fault(e)
	case e.Process == history.Resource:
		d.resource(e)
	case isClient(e.Process):
		// A check is drawn, and so counted, when it completes.
		if e.Type == history.Invoke && (e.F != history.Check || d.clients[e.Process] == nil) {
			d.ops++
		}
		if c := d.clients[e.Process]; c != nil && (e.Key == "" || e.Key == d.key) {
			d.client(c, e)
		}
	}
}

// add appends a row for the event with the state as it is now.
func (d *diagram) add(e history.Event, time int64, marks ...mark) {
	r := row{time: time, index: e.Index, before: d.ops, after: d.ops, key: d.witness[e.Index], marks: marks}
	if isClient(e.Process) && (e.Type == history.Invoke) != (e.F == history.Check) {
		r.before--
	}
	r.lives = make([]life, len(d.lanes))
	believe := 0
	for _, c := range d.clients {
		switch {
		case slices.Contains(c.faults, freeze):
			r.lives[c.lane] = frozen
		case c.holds:
			r.lives[c.lane] = holds
		}
		if c.holds {
			believe++
		}
	}
	r.both = believe > 1
	d.rows = append(d.rows, r)
	if len(d.rows) >= buffer {
		d.thin()
	}
}

// thin drops rows that will not be drawn, so that memory does not grow with
// the history: rows far from the witness, or without one, of the middle.
func (d *diagram) thin() {
	half := len(d.rows) / 2
	near := make([]bool, len(d.rows))
	for i, r := range d.rows {
		near[i] = near[i] || i < ends || i >= half
		for j := max(0, i-around); r.key && j <= min(i+around, len(d.rows)-1); j++ {
			near[j] = true
		}
	}
	kept := d.rows[:0]
	for i, r := range d.rows {
		if near[i] {
			kept = append(kept, r)
		}
	}
	clear(d.rows[len(kept):])
	d.rows = kept
}

func (d *diagram) client(c *client, e history.Event) {
	if e.Type == history.Invoke {
		d.invoke(c, e)
		return
	}
	if e.F == history.Lost {
		c.holds, c.expiry = false, 0
		d.add(e, e.Time, mark{from: c.lane, to: c.lane, labels: []string{"told: lock lost", "lost"}, style: bad})
		return
	}
	op := c.open
	if op == nil || op.F != e.F {
		return // a remark, or the end of something that began out of sight
	}
	c.open = nil
	d.complete(op, e)
	if e.Type == history.Fail || !d.records {
		delete(d.writes, op.Index) // nothing more will be seen of it
	}
}

func (d *diagram) invoke(c *client, e history.Event) {
	op := &operation{Event: e, client: c, grant: c.grant, token: c.token, queued: slices.Contains(c.faults, freeze)}
	c.open = op
	if e.Token != nil {
		op.token = e.Token
	}
	if e.F == history.Write {
		d.writes[e.Index] = op
	}
	if e.F == history.Release && !op.queued {
		c.release()
	}
	switch {
	case op.queued && e.F != history.Check:
		d.add(e, e.Time, mark{from: c.lane, to: c.lane, labels: []string{e.F + " is queued", e.F + " queued", "queued"}, style: cold})
	case e.F == history.Check: // asked of the client itself
	default:
		d.request(op, e, e.Time)
	}
}

// release ends the client's claim: it no longer believes that it holds.
func (c *client) release() { c.holds, c.expiry, c.until = false, 0, 0 }

// onObject reports whether an operation is on what the lock protects, and not on
// the lock.
func onObject(f string) bool {
	switch f {
	case history.Acquire, history.Renew, history.Release, history.Check, history.Lost:
		return false
	}
	return true
}

// request draws the arrow of an invocation.
func (d *diagram) request(op *operation, e history.Event, time int64) {
	f := d.o.clean(op.F)
	m := mark{from: op.client.lane, to: service, labels: []string{f}}
	if onObject(op.F) {
		m.to = d.res
	}
	if op.F == history.Write {
		v := d.value(op.Value)
		if op.token != nil {
			t := fmt.Sprint(*op.token)
			m.labels = []string{f + " " + v + ", token " + t, f + ", token " + t, f + " #" + t, f}
		} else {
			m.labels = []string{f + " " + v, f}
		}
	}
	d.add(e, time, m)
}

// value shows a written or read value.
func (d *diagram) value(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "nothing"
	}
	return d.o.cut(d.o.clean(string(raw)), 28)
}

func (d *diagram) complete(op *operation, e history.Event) {
	c := op.client
	if e.F == history.Check {
		d.check(op, e)
		return
	}
	if op.queued {
		d.thaw(c, e)
	}
	if op.queued && !op.applied {
		if e.Type != history.OK && onObject(e.F) {
			// Nobody else saw it: where it got lost is not known.
			d.add(e, e.Time, mark{from: c.lane, to: c.lane, lost: true, style: d.outcome(e.Type),
				labels: []string{op.F, d.told(e)}, unknown: e.Type == history.Info})
			return
		}
		d.request(op, e, -1)
	}
	if e.F == history.Release {
		c.release()
	}
	if e.Type == history.OK && (e.F == history.Acquire || e.F == history.Renew) {
		d.granted(op, e)
	}
	reply := mark{from: service, to: c.lane, style: d.outcome(e.Type), unknown: e.Type == history.Info}
	switch {
	case e.F == history.Write && op.applied:
		if e.Type == history.OK || e.Type == history.Fail {
			op.ok = e.Type == history.OK
			return // the resource's own record has drawn the answer
		}
		d.add(e, e.Time, mark{from: c.lane, to: c.lane, labels: []string{d.told(e)}, style: bad, wide: true})
		return
	case onObject(e.F):
		reply.from = d.res
	}
	switch {
	case e.Type != history.OK:
		reply.labels = []string{d.told(e), word(e)}
	case e.F == history.Acquire && e.Token != nil:
		t := fmt.Sprint(*e.Token)
		reply.labels = []string{"granted, token " + t, "ok, token " + t, "ok #" + t, "ok"}
	case e.F == history.Acquire:
		reply.labels = []string{"granted", "ok"}
	case e.F == history.Renew:
		reply.labels = []string{"renewed", "ok"}
	case e.F == history.Release:
		reply.labels = []string{"released", "ok"}
	case e.F == history.Read:
		reply.labels = []string{d.value(e.Value), "ok"}
	case e.F == history.Write && d.records:
		op.ok = true
		reply.labels = []string{"ok, not applied yet", "ok, not applied", "ok"}
	default:
		reply.labels = []string{"ok"}
	}
	d.add(e, e.Time, reply)
}

// thaw draws that the client runs again, if that was not drawn yet: the event
// shows that it does.
func (d *diagram) thaw(c *client, e history.Event) {
	if !slices.Contains(c.faults, freeze) {
		return
	}
	c.faults = slices.DeleteFunc(c.faults, func(f string) bool { return f == freeze })
	d.add(e, -1, mark{from: c.lane, to: c.lane, labels: []string{"THAWED"}, style: cold})
}

// granted takes up what a grant or a renewal promised.
func (d *diagram) granted(op *operation, e history.Event) {
	c := op.client
	if e.F == history.Acquire {
		d.grants++
		for _, other := range d.clients {
			if other != c && other.holds {
				d.outlived[other.grant] = true
			}
		}
		c.grant, c.holds, c.token, c.ttl = d.grants, true, e.Token, 0
	}
	if e.Token != nil {
		c.token = e.Token
	}
	if e.TTL > 0 {
		c.ttl = e.TTL
	}
	if c.ttl > 0 {
		c.expiry = op.Time + c.ttl
	}
	c.until = e.Until
}

func (d *diagram) check(op *operation, e history.Event) {
	c := op.client
	label := "check: " + word(e)
	switch {
	case e.Type != history.OK:
	case string(e.Value) == "true":
		label = "check: I hold"
	case string(e.Value) == "false":
		label = "check: I do not hold"
	default:
		label = "check: " + d.value(e.Value)
	}
	d.ops++
	d.add(e, e.Time, mark{from: c.lane, to: c.lane, labels: []string{label, "check"}})
}

func (d *diagram) outcome(t history.Type) style {
	if t == history.OK {
		return plain
	}
	return cold
}

// word is how an operation that is not ok came out, in one word.
func word(e history.Event) string {
	switch {
	case e.Type == history.Info:
		return "unknown"
	case e.F == history.Acquire:
		return "refused"
	}
	return "failed"
}

// told is the same with the reason.
func (d *diagram) told(e history.Event) string {
	if e.Error == "" {
		return word(e)
	}
	return word(e) + ": " + d.o.clean(e.Error)
}

// resource draws what the resource applied or rejected.
func (d *diagram) resource(e history.Event) {
	if e.Key != "" && e.Key != d.key {
		return
	}
	op := d.cause(e)
	verdict := mark{from: d.res, to: d.res, labels: []string{"ACCEPTED"}, style: good}
	if e.Type == history.Fail {
		verdict.labels = []string{"REJECTED"}
	}
	if e.F == history.Write && op != nil {
		switch {
		case e.Type == history.Fail:
			if op.grant < d.newest {
				verdict.labels = []string{"REJECTED (stale)", "REJECTED"}
			}
		case op.grant < d.newest:
			// Whether that is a violation is the checker's to say.
			if p := d.rep.Property(checker.Fence); p != nil && p.Verdict == checker.Violated {
				verdict.labels, verdict.style = []string{"ACCEPTED (stale)", "STALE"}, bad
			}
		default:
			d.newest = op.grant
		}
	}
	if e.F == history.Read {
		return // its answer says as much
	}
	if op == nil {
		who := e.Client
		if who == "" {
			who = "an unknown client"
		}
		verdict.labels = []string{d.o.clean(who) + "'s " + d.o.clean(e.F) + " " + verdict.labels[0], verdict.labels[0]}
		if e.Client == "" || d.clients[e.Client] != nil {
			d.add(e, e.Time, verdict)
		}
		return
	}
	op.applied = true
	delete(d.writes, op.Index)
	if op.client.open != op {
		// The client had its answer before: as when a transaction commits.
		write := d.o.clean(op.client.name) + "'s " + d.o.clean(op.F)
		verdict.labels = []string{write + " " + d.value(op.Value) + " " + verdict.labels[0], write + " " + verdict.labels[0], verdict.labels[0]}
		d.add(e, e.Time, verdict)
		return
	}
	if op.queued {
		d.thaw(op.client, e)
		d.request(op, e, -1)
	}
	verdict.to = op.client.lane
	d.add(e, e.Time, verdict)
	d.rows[len(d.rows)-1].key = d.rows[len(d.rows)-1].key || d.witness[op.Index]
}

// cause returns the write of a shown client that the resource's event is about.
func (d *diagram) cause(e history.Event) *operation {
	if e.Op != nil {
		return d.writes[*e.Op]
	}
	if c := d.clients[e.Client]; c != nil && c.open != nil && c.open.F == e.F {
		return c.open
	}
	return nil
}

func (d *diagram) fault(e history.Event) {
	fault := e.F
	if fault == history.Heal {
		fault = healed(e)
	}
	kind := d.o.clean(fault)
	label := map[history.Type]string{history.OK: kind + " begins", history.Info: kind + " ends"}[e.Type]
	if fault == freeze {
		label = map[history.Type]string{history.OK: "FROZEN", history.Info: "THAWED"}[e.Type]
	}
	switch e.Type {
	case history.Fail:
		d.add(e, e.Time, mark{from: service, to: service, labels: []string{kind + " failed: " + d.o.clean(e.Error), kind + " failed"}, style: bad, wide: true})
	case history.OK, history.Info:
		var marks []mark
		var servers []string
		for _, name := range e.Targets() {
			c := d.clients[name]
			switch {
			case c == nil && !d.others[name]:
				servers = append(servers, d.o.clean(name))
			case c == nil, slices.Contains(c.faults, fault) == (e.Type == history.OK):
				// Not shown, or nothing new.
			default:
				c.faults = slices.DeleteFunc(c.faults, func(f string) bool { return f == fault })
				if e.Type == history.OK {
					c.faults = append(c.faults, fault)
				}
				marks = append(marks, mark{from: c.lane, to: c.lane, labels: []string{label, kind}, style: cold})
			}
		}
		if len(servers) > 0 {
			marks = append(marks, mark{from: service, to: service, labels: []string{label + ": " + strings.Join(servers, ", "), label, kind}, style: cold})
		}
		if len(marks) == 0 {
			return
		}
		d.add(e, e.Time, marks...)
	default: // the injection begins: it is drawn when it is in effect
		return
	}
	d.rows[len(d.rows)-1].key = len(d.witness) > 0
}

// healed returns the fault that a heal event is about.
func healed(e history.Event) string {
	var v struct {
		Fault string `json:"fault"`
	}
	_ = json.Unmarshal(e.Value, &v) // what is no fault's name ends no fault
	return v.Fault
}

// leasesUntil draws the leases and deadlines that end before the time, in order.
func (d *diagram) leasesUntil(time int64) {
	for {
		var c *client
		at, lease := time, false
		for _, other := range d.clients {
			if other.expiry != 0 && (other.expiry < at || other.expiry == at && c != nil && other.lane < c.lane) {
				c, at, lease = other, other.expiry, true
			}
			if other.holds && other.until != 0 && other.until < at {
				c, at, lease = other, other.until, false
			}
		}
		if c == nil {
			return
		}
		e := history.Event{Index: -1, Time: at, Type: history.Info, Process: history.Harness}
		name := d.o.clean(c.name)
		if lease {
			c.expiry = 0
			d.add(e, at, mark{from: service, to: service, labels: []string{name + "'s lease ends", "lease ends"}, style: cold, sign: d.glyphs.expiry})
		} else {
			c.holds, c.until = false, 0
			d.add(e, at, mark{from: c.lane, to: c.lane, labels: []string{name + "'s own deadline", "deadline"}, style: cold, sign: d.glyphs.expiry})
		}
		r := &d.rows[len(d.rows)-1]
		r.key = len(d.witness) > 0
		if lease {
			r.lease = c.grant
		}
	}
}

// shown decides which rows are drawn; false stands for a row to leave out.
func (d *diagram) shown() []bool {
	keep := make([]bool, len(d.rows))
	n := len(d.rows)
	if n <= mostRows && (n == 0 || d.rows[0].before+d.ops-d.rows[n-1].after <= mostRows) {
		for i := range keep {
			keep[i] = true
		}
		return keep
	}
	first, last := -1, -1
	for i, r := range d.rows {
		if d.witness[r.index] {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		for i := range keep {
			keep[i] = i < ends || i >= n-ends
		}
		return keep
	}
	for i, r := range d.rows {
		if r.key && i >= first-4*around && i <= last+4*around {
			for j := max(0, i-around); j <= min(i+around, n-1); j++ {
				keep[j] = true
			}
		}
	}
	// Faults and lease ends are many in a long witness: its own events are not.
	if count(keep) > mostRows {
		for i, r := range d.rows {
			keep[i] = d.witness[r.index]
		}
	}
	return keep
}

func count(keep []bool) int {
	n := 0
	for _, k := range keep {
		if k {
			n++
		}
	}
	return n
}

func milliseconds(ns int64) string { return fmt.Sprintf("%.1f", float64(ns)/float64(time.Millisecond)) }
