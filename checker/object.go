package checker

import (
	"fmt"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// objectCase judges the keys of one history under one model of an object.
type objectCase struct {
	h *history.History
	o Options
	m Model

	breaches int
	first    *breach
	unsure   string
	reads    int    // that returned something
	note     string // what a verdict of held does not cover
	second   *Opinion
	zones    *registerZones
	uses     *usage
	limit    searchTime // for deciding
	opinions searchTime // for second opinions
}

func (c *objectCase) doubt(why string) {
	if c.unsure == "" {
		c.unsure = why
	}
}

func (c *objectCase) found(b breach) {
	c.breaches++
	if c.first == nil || b.at < c.first.at {
		c.first = &b
	}
}

// operatesOn returns which kinds of operations concern a model of an object.
func operatesOn(m Model) func(history.Kind) bool {
	var kinds [16]bool
	kinds[history.KindRead] = true
	switch m.Name {
	case modelRegister:
		kinds[history.KindWrite] = true
	case modelCAS:
		kinds[history.KindWrite], kinds[history.KindCAS] = true, true
	case modelKV:
		kinds[history.KindWrite], kinds[history.KindAppend] = true, true
	case modelCounter, modelSet:
		kinds[history.KindAdd] = true
	case modelList:
		kinds[history.KindAppend] = true
	}
	return func(k history.Kind) bool { return int(k) < len(kinds) && kinds[k] }
}

// checkObject decides linearizability of each key under a model of an object.
func checkObject(h *history.History, o Options, m Model) (Property, string) {
	c := &objectCase{h: h, o: o, m: m}
	if why := returnsFollowCalls(h); why != "" {
		return undecided(Linearizable, why), ""
	}
	n := 0
	for _, ops := range keyed(h, operatesOn(m)) {
		if len(ops) > 0 {
			n += len(ops)
			c.key(ops)
		}
	}
	return c.property(Linearizable, n)
}

func returnsFollowCalls(h *history.History) string {
	for i := range h.Ops {
		if h.Ops[i].Ret < h.Ops[i].Call {
			return returnsEarly(&h.Ops[i])
		}
	}
	return ""
}

func returnsEarly(op *history.Op) string {
	return fmt.Sprintf("operation at index %d returns before its call", op.Index)
}

// key judges one key, which has operations.
func (c *objectCase) key(ops []int32) {
	before, unsure := c.breaches, c.unsure
	switch c.m.Name {
	case modelSet:
		c.checkSet(ops)
	case modelList:
		c.checkList(ops)
	case modelCounter:
		c.checkCounter(ops)
	case modelRegister:
		if c.checkRegister(ops) {
			break
		}
		c.decideBySearch(ops)
		return
	default:
		c.decideBySearch(ops)
		return
	}
	if c.unsure == unsure {
		c.audit(ops, c.breaches > before)
	}
}

// checkRegister decides a register with unique values; false if they are not.
func (c *objectCase) checkRegister(ops []int32) bool {
	if c.zones == nil {
		c.zones = newRegisterZones(c.h)
	}
	if !c.zones.check(ops, c.found) {
		return false
	}
	for _, i := range ops {
		if c.h.Ops[i].Kind == history.KindRead && c.h.Ops[i].Outcome == history.Done {
			c.reads++
		}
	}
	return true
}

func (c *objectCase) property(name string, ops int) (Property, string) {
	p := Property{Name: name, Convention: c.m.Name + "/1", Second: c.second}
	switch {
	case c.first != nil:
		b := c.first
		p.Verdict, p.Why, p.Count, p.First = Violated, b.why, c.breaches, b.at
		if c.breaches > 1 {
			p.Why += fmt.Sprintf(" (the first of %d violations)", c.breaches)
		}
		p.Witness = &Witness{Why: b.why, Key: c.h.Keys[b.key], Events: opEvents(c.h, b.ops)}
		return p, b.class
	case c.unsure != "":
		p.Verdict, p.Why = Unknown, c.unsure
	case ops == 0:
		p.Verdict, p.Why = NotApplicable, "the history has no operations of a "+c.m.String()
	case c.reads == 0:
		p.Verdict, p.Why = NotApplicable, "no read or comparison says what a "+c.m.String()+" held"
	default:
		p.Verdict, p.Why = Held, fmt.Sprintf("%s, %s, fit one %s%s", plural(ops, "operation", "operations"), plural(c.reads, "of them a read", "of them reads"), c.m, c.note)
	}
	return p, ""
}

// audit asks porcupine about one small key.
func (c *objectCase) audit(ops []int32, violated bool) {
	if c.o.NoSecondOpinion || len(ops) > auditLimit || c.second != nil && c.second.Outcome == Disagrees {
		return
	}
	start := time.Now()
	result, why := c.searchKey(ops, min(c.opinions.left(c.o), 2*time.Second))
	switch agreed := agreement(result, violated); {
	case result == "":
	case agreed == NotDecided:
		c.second = &Opinion{Outcome: agreed, Detail: why}
	case agreed == Disagrees:
		c.second = &Opinion{Outcome: agreed, Detail: fmt.Sprintf("porcupine says %s after %v, the exact checker violated=%v", result, time.Since(start).Round(time.Millisecond), violated)}
	case c.second == nil:
		c.second = &Opinion{Outcome: agreed}
	}
}
