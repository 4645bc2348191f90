package history

import (
	"fmt"
	"math"
)

// role is what a process is, told by its name.
type role uint8

const (
	clientRole role = iota
	remarkRole      // Harness, Nemesis
	resourceRole
)

func roleOf(process string) role {
	switch process {
	case Harness, Nemesis, Observer:
		return remarkRole
	case Resource:
		return resourceRole
	}
	return clientRole
}

// kindOf returns the kind of an operation by its name, in our words and in
// those of the tools whose histories we read.
func kindOf(f []byte) Kind {
	switch string(f) {
	case Acquire, "lock":
		return KindAcquire
	case Renew:
		return KindRenew
	case Release, "unlock":
		return KindRelease
	case Check:
		return KindCheck
	case Write, "put":
		return KindWrite
	case Read, "get":
		return KindRead
	case "cas":
		return KindCAS
	case "append":
		return KindAppend
	case "add":
		return KindAdd
	}
	return KindOther
}

// pairing builds a History from records: it pairs invocations with completions
// and puts names in the place of texts.
type pairing struct {
	h         *History
	order     order
	size      int64 // of the input in bytes, 0 if not known
	offset    func() int64
	processes *table
	keys      *table
	values    *table
	errors    *table
	clients   []client // by number of process
	leases    map[int64]int32
}

// client is what is known about a process at one point of the history.
type client struct {
	role   role
	open   int32 // index into Ops, -1 if nothing is open
	called int64 // stated time of the call that is open
}

func newPairing(format Format, size int64, offset func() int64) *pairing {
	p := &pairing{
		h:         &History{Format: format, Terms: []Term{{}}},
		size:      size,
		offset:    offset,
		processes: newTable(),
		keys:      newTable(),
		values:    newTable(),
		errors:    newTable(""),
		leases:    map[int64]int32{},
	}
	p.order = newOrder(format == FormatJSONL, p.report)
	return p
}

// finish returns the history after the last record.
func (p *pairing) finish(truncated bool) *History {
	p.h.Processes = p.processes.names
	p.h.Keys = p.keys.names
	p.h.Values = p.values.names
	p.h.Errors = p.errors.names
	p.h.Truncated = truncated
	p.h.Timeless = p.order.timed == 0
	return p.h
}

// report is a reporter. It formats only what it lists: a hostile history can
// have a remark for every line.
func (p *pairing) report(a Assumption, format string, args ...any) {
	if p.h.Broken == nil {
		p.h.Broken = map[Code]int64{}
	}
	if p.h.Broken[a.Code]++; p.h.Broken[a.Code] <= MaxAssumptions {
		a.Why = fmt.Sprintf(format, args...)
		p.h.Assumptions = append(p.h.Assumptions, a)
	}
}

func (p *pairing) broken(r *record, index int64, code Code, format string, args ...any) {
	p.report(Assumption{Code: code, Line: r.line, Index: index}, format, args...)
}

// process returns the number of the process with this name.
func (p *pairing) process(name []byte) int32 {
	id := p.processes.id(name)
	if int(id) == len(p.clients) {
		p.clients = push(p.clients, client{role: roleOf(string(name)), open: -1})
	}
	return id
}

// add takes in one record. An error says that the record cannot be read.
func (p *pairing) add(r *record) error {
	if uint64(r.ttl) > maxTime || uint64(r.until) > maxTime {
		return fmt.Errorf("ttl %d, until %d: want 0 to %d ns", r.ttl, r.until, int64(maxTime))
	}
	id := p.process(r.process)
	typ := Type(r.typ)
	called := int64(math.MinInt64)
	if c := &p.clients[id]; c.open >= 0 && typ != Invoke && !remark(typ, r.f) {
		called = c.called
	}
	index, time, duplicate, err := p.order.place(r, called)
	if err != nil {
		return err
	}
	if duplicate {
		return nil
	}
	p.h.Events++
	if r.unterminated {
		p.broken(r, index, Unterminated, "the line has no end, so it may have been longer")
	}
	switch p.clients[id].role {
	case remarkRole:
		p.h.Other = append(p.h.Other, r.event(index, time))
		return nil
	case resourceRole:
		return p.resource(r, index, time)
	}
	switch typ {
	case Invoke:
		p.invoke(r, id, index, time)
	case OK, Fail, Info:
		p.complete(r, id, index, time)
	default:
		p.broken(r, index, UnknownType, "type %s", quoted(r.typ))
	}
	return nil
}

// remark reports whether an event of a client stands for itself and does not
// complete what is open.
func remark(typ Type, f []byte) bool {
	return typ == Info && (string(f) == Lost || string(f) == Skip)
}

func (p *pairing) resource(r *record, index, time int64) error {
	typ := Type(r.typ)
	if typ != OK && typ != Fail {
		p.h.Other = append(p.h.Other, r.event(index, time))
		return nil
	}
	a := Applied{
		Time:     time,
		Token:    r.token,
		HasToken: r.hasToken,
		Client:   p.process(r.client),
		Key:      p.keys.id(r.key),
		Op:       -1,
		Index:    int32(index),
		Value:    p.value(r.value),
		Kind:     kindOf(r.f),
		Accepted: typ == OK,
	}
	if r.hasOp {
		if r.op < 0 || r.op >= math.MaxInt32 {
			return fmt.Errorf("op %d is not the index of an event", r.op)
		}
		a.Op = int32(r.op)
	}
	p.h.Applied = push(p.h.Applied, a)
	return nil
}

func (p *pairing) value(b []byte) int32 {
	if b == nil {
		return -1
	}
	return p.values.id(b)
}

func (p *pairing) invoke(r *record, id int32, index, time int64) {
	c := &p.clients[id]
	if c.open >= 0 {
		p.broken(r, index, StillOpen, "process %s has event %d open; its outcome is unknown",
			quoted(r.process), p.h.Ops[c.open].Index)
	}
	op := Op{
		Call:     time,
		Ret:      Never,
		Token:    r.token,
		HasToken: r.hasToken,
		Process:  id,
		Key:      p.keys.id(r.key),
		Index:    int32(index),
		RetIndex: -1,
		Value:    -1,
		Kind:     kindOf(r.f),
	}
	if op.Kind == KindOther {
		p.broken(r, index, UnknownF, "operation %s", quoted(r.f))
	}
	if op.Kind != KindRead { // what a read returns is known when it returns
		op.Value = p.value(r.value)
	}
	c.open, c.called = int32(len(p.h.Ops)), r.time
	if !r.hasTime {
		c.called = math.MinInt64
	}
	if len(p.h.Ops) == cap(p.h.Ops) {
		p.grow()
	}
	p.h.Ops = append(p.h.Ops, op)
}

func (p *pairing) complete(r *record, id int32, index, time int64) {
	if remark(Type(r.typ), r.f) {
		if string(r.f) == Lost {
			p.h.Notices = append(p.h.Notices, Notice{
				Time: time, Process: id, Key: p.keys.id(r.key), Index: int32(index),
			})
		} else {
			p.h.Other = append(p.h.Other, r.event(index, time))
		}
		return
	}
	c := &p.clients[id]
	if c.open < 0 {
		p.broken(r, index, NoInvocation, "process %s has nothing open", quoted(r.process))
		return
	}
	op := &p.h.Ops[c.open]
	c.open = -1
	if key := p.keys.names[op.Key]; len(r.key) > 0 && key != string(r.key) {
		if key != "" {
			p.broken(r, index, Mismatch, "key %s, but event %d of process %s has key %s",
				quoted(r.key), op.Index, quoted(r.process), quoted(key))
			return
		}
		op.Key = p.keys.id(r.key)
	}
	if kindOf(r.f) != op.Kind {
		p.broken(r, index, Mismatch, "operation %s does not complete event %d of process %s",
			quoted(r.f), op.Index, quoted(r.process))
		return
	}
	op.RetIndex = int32(index)
	if r.hasToken {
		op.Token, op.HasToken = r.token, true
	}
	if len(r.error) > 0 {
		op.Error = p.errors.id(r.error)
	}
	switch Type(r.typ) {
	case OK:
		op.Ret, op.Outcome = time, Done
		if r.value != nil {
			op.Value = p.values.id(r.value)
		}
		op.Term = p.term(r)
	case Fail:
		op.Ret, op.Outcome = time, Failed
	}
}

// term returns the number of what a grant promised. Deadlines are hardly ever
// equal, so only terms without one are looked up.
func (p *pairing) term(r *record) int32 {
	t := Term{TTL: r.ttl, Until: r.until}
	if t == (Term{}) {
		return 0
	}
	if t.Until == 0 {
		if n, found := p.leases[t.TTL]; found {
			return n
		}
	}
	p.h.Terms = push(p.h.Terms, t)
	n := int32(len(p.h.Terms) - 1)
	if t.Until == 0 {
		p.leases[t.TTL] = n
	}
	return n
}

// grow makes room for operations: for as many as the input will hold if it
// goes on as it began, where its size is known, so that a large history is
// neither copied nor held twice. Otherwise room is doubled; the part that is
// never used never becomes real memory.
func (p *pairing) grow() {
	n := len(p.h.Ops)
	more := max(1<<10, n)
	if done := p.offset(); n > 0 && p.size > done && done > 0 {
		rest := float64(n) * float64(p.size-done) / float64(done)
		more = max(1<<10, int(rest*1.02))
	}
	ops := make([]Op, n, n+more)
	copy(ops, p.h.Ops)
	p.h.Ops = ops
}
