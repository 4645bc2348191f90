package checker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// classLostUpdate is the class of a violation of a protected object: two
// updates began from one value.
const classLostUpdate = "lost update"

// checkState decides the property State: the object that the lock protects
// behaves as if the sections under the lock were one at a time.
//
// The object is o.Model if that names one; otherwise what its operations say:
// appends make a list, adds a counter or a set, reads and writes a register.
//
// Within a section of a register, a read and the write that follows it are one
// update. An update is lost if another one began from the same value: each
// value is the base of at most as many updates as it was written (once more if
// it is the initial value). Where all writes are updates of unique values, the
// order of everything is forced and the verdict is exact; otherwise reads and
// writes are judged as those of a plain register besides.
//
// Writes with an unknown outcome are resolved by the resource's own log, where
// it states which requests it applied.
func checkState(h *history.History, o Options) Property {
	p, _ := stateOf(h, o, countKinds(h))
	return p
}

func stateOf(h *history.History, o Options, seen *census) (Property, string) {
	if op := seen.backward; op != nil {
		return undecided(State, returnsEarly(op)), ""
	}
	m, err := ParseModel(o.Model)
	named := err == nil && !m.Lock()
	if !named {
		m = seen.object(h)
	}
	if seen.unread() {
		// Whatever was written, nobody saw any of it.
		n, wanted := 0, operatesOn(m)
		for k := range seen.of {
			if wanted(history.Kind(k)) {
				n += seen.of[k]
			}
		}
		return (&objectCase{h: h, o: o, m: m}).property(State, n)
	}
	h = resolve(h)
	c := &objectCase{h: h, o: o, m: m}
	n := 0
	wanted := operatesOn(m)
	for _, all := range keyed(h, func(k history.Kind) bool { return wanted(k) || lockOperation(k) }) {
		ops := make([]int32, 0, len(all))
		locked := false
		for _, i := range all {
			op := &h.Ops[i]
			if wanted(op.Kind) {
				ops = append(ops, i)
			}
			locked = locked || op.Kind == history.KindAcquire && op.Outcome == history.Done
		}
		switch {
		case len(ops) == 0:
		case m.Name == modelRegister && locked:
			c.protected(all, ops)
		default:
			c.key(ops)
		}
		n += len(ops)
	}
	return c.property(State, n)
}

// census is what there is in a history.
type census struct {
	of       [16]int     // operations by their kind
	backward *history.Op // one that returns before its call, nil if there is none
}

func (n *census) add(op *history.Op) {
	n.of[op.Kind&15]++
	if op.Ret < op.Call && n.backward == nil {
		n.backward = op
	}
}

func countKinds(h *history.History) *census {
	var n census
	for i := range h.Ops {
		n.add(&h.Ops[i])
	}
	return &n
}

// unread says that nothing tells what an object held.
func (n *census) unread() bool { return n.of[history.KindRead]+n.of[history.KindCAS] == 0 }

// object guesses the object from the operations on it.
func (n *census) object(h *history.History) Model {
	list := false
	for i := range h.Ops {
		if n.of[history.KindRead] == 0 || n.of[history.KindAppend]+n.of[history.KindAdd] == 0 {
			break
		}
		o := &h.Ops[i]
		if o.Kind == history.KindRead && o.Outcome == history.Done && o.Value >= 0 && strings.HasPrefix(h.Values[o.Value], "[") {
			list = true
			break
		}
	}
	switch {
	case n.of[history.KindAppend] > 0 && list:
		return Model{Name: modelList}
	case n.of[history.KindAppend] > 0:
		return Model{Name: modelKV}
	case n.of[history.KindAdd] > 0 && list:
		return Model{Name: modelSet}
	case n.of[history.KindAdd] > 0:
		return Model{Name: modelCounter}
	case n.of[history.KindCAS] > 0:
		return Model{Name: modelCAS}
	}
	return Model{Name: modelRegister}
}

// resolve settles unknown writes by the resource's log: one that it accepted
// happened by then, one that it rejected did not. One that it does not list
// did not happen, if every line of the log says which request it is of.
func resolve(h *history.History) *history.History {
	if len(h.Applied) == 0 {
		return h
	}
	logged := make(map[int32]*history.Applied, len(h.Applied))
	whole := make([]bool, len(h.Keys))
	for i := range h.Applied {
		whole[h.Applied[i].Key] = true
	}
	for i := range h.Applied {
		a := &h.Applied[i]
		if a.Op < 0 {
			whole[a.Key] = false
			continue
		}
		if old := logged[a.Op]; old == nil || a.Accepted {
			logged[a.Op] = a
		}
	}
	var out *history.History
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.Outcome != history.Unknown || op.Kind != history.KindWrite && op.Kind != history.KindAdd && op.Kind != history.KindAppend {
			continue
		}
		a := logged[op.Index]
		if a == nil && !whole[op.Key] {
			continue
		}
		if out == nil {
			c := *h
			c.Ops = append([]history.Op(nil), h.Ops...)
			out = &c
		}
		op = &out.Ops[i]
		if a != nil && a.Accepted {
			op.Outcome, op.Ret = history.Done, max(a.Time, op.Call)
		} else {
			op.Outcome = history.Failed
		}
	}
	if out == nil {
		return h
	}
	return out
}

// update is a read and the write that followed it within a section.
type update struct {
	base        int32 // index of the value read; -1 for nothing
	read, write int32 // positions in Ops; read may be an earlier write of the same section
}

// updates pairs reads with writes within the sections of one key: from an
// acquire that succeeded to the invocation of the release. all are the key's
// operations, those on the lock included.
func updates(h *history.History, all []int32) []update {
	last := map[int32]int32{} // by process in a section: the read or write that says what the object holds, or -1
	var out []update
	for _, i := range all {
		o := &h.Ops[i]
		switch o.Kind {
		case history.KindAcquire:
			delete(last, o.Process)
			if o.Outcome == history.Done {
				last[o.Process] = -1
			}
		case history.KindRelease:
			delete(last, o.Process)
		case history.KindRead:
			if _, open := last[o.Process]; open && o.Outcome == history.Done {
				last[o.Process] = i
			}
		case history.KindWrite:
			base, open := last[o.Process]
			if !open || o.Outcome == history.Failed {
				continue
			}
			if base >= 0 {
				out = append(out, update{base: h.Ops[base].Value, read: base, write: i})
			}
			last[o.Process] = -1
			if o.Outcome == history.Done {
				last[o.Process] = i
			}
		}
	}
	return out
}

// valueUse is what happened with one value of a protected register.
type valueUse struct {
	epoch    int32
	written  int32 // how often it was written; once more if it is the initial value
	used     int32 // updates that began from it
	last     int32 // 1 + number of the last of them
	firstGet int32 // 1 + number, in the key's operations, of its first read
	lastGet  int32
	read     int64 // least return of its reads
	called   int64 // least call of its writes
}

// usage is the values of one key. It is reused from key to key.
type usage struct {
	values []valueUse // by 1 + index of the value: 0 is nothing
	epoch  int32
	seen   []int32 // values of the key
	get    []int32 // by number of an operation: 1 + that of the next read of the same value
}

func (u *usage) at(v int32) *valueUse {
	x := &u.values[v+1]
	if x.epoch != u.epoch {
		*x = valueUse{epoch: u.epoch, read: history.Never, called: history.Never}
		u.seen = append(u.seen, v)
	}
	return x
}

// protected judges a register under a lock. all are the key's operations, ops
// the reads and writes among them.
func (c *objectCase) protected(all, ops []int32) {
	h := c.h
	before, unsure := c.breaches, c.unsure
	us := updates(h, all)
	if c.uses == nil {
		c.uses = &usage{values: make([]valueUse, len(h.Values)+1)}
	}
	u := c.uses
	u.epoch++
	u.seen = u.seen[:0]
	u.get = slices.Grow(u.get[:0], len(ops))[:len(ops)]
	writes, unique, reads := 0, true, 0
	for n, i := range ops {
		o := &h.Ops[i]
		switch {
		case o.Kind == history.KindWrite && o.Outcome != history.Failed:
			x := u.at(o.Value)
			writes++
			x.written++
			x.called = min(x.called, o.Call)
			unique = unique && x.written == 1
		case o.Kind == history.KindRead && o.Outcome == history.Done:
			x := u.at(o.Value)
			reads++
			x.read = min(x.read, o.Ret)
			u.get[n] = 0
			if x.lastGet > 0 {
				u.get[x.lastGet-1] = int32(n + 1)
			} else {
				x.firstGet = int32(n + 1)
			}
			x.lastGet = int32(n + 1)
		}
	}
	initial, known := u.initial(h)
	if known {
		x := u.at(initial)
		x.written++
		unique = unique && x.written == 1
	}
	// happened says whether an update certainly had its effect.
	happened := func(w *history.Op) bool {
		return w.Outcome == history.Done || unique && u.at(w.Value).firstGet > 0
	}
	c.lostUpdates(us, happened)
	if c.breaches > before {
		c.reads += reads
		return
	}
	if unique && known && len(us) == writes && c.chain(ops, us, initial, happened) {
		c.reads += reads
		return
	}
	zones := c.checkRegister(ops)
	if !zones {
		c.reads += reads
	}
	if c.breaches > before || c.unsure != unsure {
		return
	}
	switch result, why := c.searchUpdates(ops, us, initial); {
	case result == porcupine.Illegal:
		b := c.narrow(ops, func(c *objectCase, ops []int32) bool {
			r, _ := c.searchUpdates(ops, us, initial)
			return r == porcupine.Illegal
		})
		b.why = fmt.Sprintf("no order of the reads and writes of %s, which fits their times, lets each section's write follow its read", object(h, b.key))
		c.found(b)
	case result == porcupine.Ok:
	case zones:
		c.note = "; no two updates began from one value, but whether others came between a section's read and its write was not decided: " + why
	default:
		c.doubt("no two updates began from one value, but whether reads and writes fit one register is not decided: " + why)
	}
}

// updateState is a register under a lock: its value, and the operations which
// found or left it so and on which an update is based.
type updateState struct {
	value int32
	bases string // positions in Ops, ascending, four bytes each
}

// with adds the base at position i.
func (s updateState) with(i int32) updateState {
	me := string([]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
	k := 0
	for k < len(s.bases) && s.bases[k:k+4] < me {
		k += 4
	}
	if k == len(s.bases) || s.bases[k:k+4] != me {
		s.bases = s.bases[:k] + me + s.bases[k:]
	}
	return s
}

// searchUpdates decides by search whether the operations of a key fit one
// register on which no write comes between the read and the write of an update.
func (c *objectCase) searchUpdates(ops []int32, us []update, initial int32) (porcupine.CheckResult, string) {
	h := c.h
	base := map[int32]int32{} // of the write of an update
	isBase := map[int32]bool{}
	for _, u := range us {
		base[u.write] = u.read
		isBase[u.read] = true
	}
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{updateState{value: initial}} },
		Step: func(state, in, _ any) []any {
			s, i := state.(updateState), in.(int32)
			o := &h.Ops[i]
			if o.Kind == history.KindRead {
				if o.Value != s.value {
					return nil
				}
				if isBase[i] {
					s = s.with(i)
				}
				return []any{s}
			}
			var next []any
			if b, ok := base[i]; !ok || s.with(b) == s {
				t := updateState{value: o.Value}
				if isBase[i] {
					t = t.with(i)
				}
				next = append(next, t)
			}
			if o.Outcome == history.Unknown {
				next = append(next, s)
			}
			return next
		},
	}
	var in []porcupine.Operation
	for _, i := range ops {
		o := &h.Ops[i]
		if o.Kind == history.KindWrite && o.Outcome != history.Failed || o.Kind == history.KindRead && o.Outcome == history.Done {
			in = append(in, porcupine.Operation{ClientId: int(o.Process), Input: i, Call: o.Call, Return: o.Ret})
		}
	}
	return search(nm.ToModel(), in, c.limit.left(c.o), searchMemory)
}

// initial is the value that the register held before the first write, by the
// rule of firstValue; false if it was not seen.
func (u *usage) initial(h *history.History) (int32, bool) {
	best, at := int32(-1), int64(history.Never)
	for _, v := range u.seen {
		x := u.at(v)
		if x.read == history.Never || x.called <= x.read {
			continue
		}
		if v < 0 || h.Values[v] == "null" {
			return v, true
		}
		if x.read < at {
			best, at = v, x.read
		}
	}
	return best, at < history.Never
}

// lostUpdates reports the updates that happened and began from a value more
// often than it was there to begin from.
func (c *objectCase) lostUpdates(us []update, happened func(*history.Op) bool) {
	h := c.h
	for n, u := range us {
		b := &h.Ops[u.write]
		if !happened(b) {
			continue
		}
		x := c.uses.at(u.base)
		if x.used++; x.written > 0 && x.used > x.written {
			v := us[x.last-1]
			a := &h.Ops[v.write]
			c.found(breach{class: classLostUpdate, key: b.Key, at: max(a.Call, b.Call), ops: []int32{v.read, v.write, u.read, u.write},
				why: fmt.Sprintf("an update of %s is lost: process %s wrote %s (invoked at %s) and process %s wrote %s (invoked at %s), both from %s, which they had read at %s and %s",
					object(h, b.Key), h.Processes[a.Process], c.valueText(a.Value), when(h, a.Call), h.Processes[b.Process], c.valueText(b.Value), when(h, b.Call),
					c.valueText(u.base), when(h, h.Ops[v.read].Ret), when(h, h.Ops[u.read].Ret))})
		}
		x.last = int32(n + 1)
	}
}

func (c *objectCase) valueText(v int32) string {
	if v < 0 {
		return "null"
	}
	return shorten(c.h.Values[v])
}

// chain decides a register all of whose writes are updates of unique values:
// from the initial value each leads to the next, and no two begin from one. It
// returns false if a value that was read is not on the chain, which is left to
// the zones to explain.
func (c *objectCase) chain(ops []int32, us []update, initial int32, happened func(*history.Op) bool) bool {
	h := c.h
	kept := 0
	for _, u := range us {
		if happened(&h.Ops[u.write]) {
			kept++
		}
	}
	read := 0 // values that were read
	for _, v := range c.uses.seen {
		if c.uses.at(v).firstGet > 0 {
			read++
		}
	}
	r := newReplay(h, classOrder, c.found, func(before, after *history.Op) string {
		return fmt.Sprintf("%s comes before %s by what each section read, but began after that had ended", opText(h, before), opText(h, after))
	})
	var same []int32
	readers := func(v int32) {
		same = same[:0]
		for n := c.uses.at(v).firstGet; n > 0; n = c.uses.get[n-1] {
			same = append(same, ops[n-1])
		}
		if len(same) > 0 {
			read--
		}
		r.group(same...)
	}
	v := initial
	readers(v)
	for n := c.uses.at(v).last; n > 0; n = c.uses.at(v).last {
		u := us[n-1]
		v = h.Ops[u.write].Value
		r.group(u.write)
		readers(v)
		if kept--; kept < 0 {
			break
		}
	}
	return kept == 0 && read == 0
}
