package checker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// objectInput is an operation as the porcupine models of objects see it.
type objectInput struct {
	kind    history.Kind
	outcome history.Outcome
	arg     string // value written, added or expected; of a read, the value returned
	to      string // of a compare and set, the new value
	n       int64  // of a counter
}

// objectModel is the sequential specification of an object whose operations
// are objectInputs. States are strings, or numbers for a counter.
//
// An unknown operation may take effect after all others, where it changes
// nothing that was observed; so none needs to be left out.
func objectModel(m Model, initial string) porcupine.Model {
	pm := porcupine.Model{
		Init: func() any { return initial },
		DescribeOperation: func(in, _ any) string {
			op := in.(*objectInput)
			return fmt.Sprintf("%d %s %s", op.kind, op.arg, op.to)
		},
	}
	switch m.Name {
	case modelCounter:
		pm.Init = func() any { return int64(0) }
		pm.Step = func(state, in, _ any) (bool, any) {
			op := in.(*objectInput)
			if op.kind == history.KindRead {
				return op.n == state.(int64), state
			}
			return true, state.(int64) + op.n
		}
	case modelSet:
		pm.Step = func(state, in, _ any) (bool, any) {
			op, s := in.(*objectInput), state.(string)
			if op.kind == history.KindRead {
				return op.arg == s, state
			}
			return true, addSorted(s, op.arg)
		}
	case modelList:
		pm.Step = func(state, in, _ any) (bool, any) {
			op, s := in.(*objectInput), state.(string)
			if op.kind == history.KindRead {
				return op.arg == s, state
			}
			return true, s + op.arg + "\n"
		}
	default:
		pm.Step = func(state, in, _ any) (bool, any) {
			op, s := in.(*objectInput), state.(string)
			switch op.kind {
			case history.KindRead:
				return op.arg == s, state
			case history.KindWrite:
				return true, op.arg
			case history.KindAppend:
				return true, s + op.arg
			default: // compare and set
				switch {
				case op.outcome == history.Unknown && op.arg != s:
					return true, state
				case op.outcome == history.Failed:
					return op.arg != s, state
				}
				return op.arg == s, op.to
			}
		}
	}
	return pm
}

// addSorted adds an element to a set written as sorted lines.
func addSorted(set, e string) string {
	es := strings.Split(strings.TrimSuffix(set, "\n"), "\n")
	if set == "" {
		es = nil
	}
	i, had := slices.BinarySearch(es, e)
	if had {
		return set
	}
	return strings.Join(slices.Insert(es, i, e), "\n") + "\n"
}

// searchKey asks porcupine about one key. An empty result means that the
// operations could not be translated, with the reason.
func (c *objectCase) searchKey(ops []int32, limit time.Duration) (porcupine.CheckResult, string) {
	in, initial, why := c.translate(ops)
	if why != "" {
		return "", why
	}
	return search(objectModel(c.m, initial), in, limit, searchMemory)
}

// decideBySearch decides a key for which there is no exact checker.
func (c *objectCase) decideBySearch(ops []int32) {
	for _, i := range ops {
		o := &c.h.Ops[i]
		if o.Kind == history.KindRead && o.Outcome == history.Done || o.Kind == history.KindCAS && o.Outcome != history.Unknown {
			c.reads++
		}
	}
	result, why := c.searchKey(ops, c.limit.left(c.o))
	switch result {
	case porcupine.Ok:
	case porcupine.Illegal:
		c.found(c.narrow(ops, illegalKey))
	default:
		c.doubt("not decided: " + why)
	}
}

// maxNarrowed bounds how many keys of one history get a narrowed witness.
const maxNarrowed = 4

// narrow makes a breach of a key that no order explains. The witness is the
// shortest prefix of the key's operations that illegal holds of, found by
// halves: a longer prefix of an illegal history is illegal too. Operations that
// were open at the cut count as unknown.
func (c *objectCase) narrow(ops []int32, illegal func(c *objectCase, ops []int32) bool) breach {
	key := c.h.Ops[ops[0]].Key
	returns := make([]int64, 0, len(ops))
	for _, i := range ops {
		if o := &c.h.Ops[i]; o.Outcome != history.Unknown {
			returns = append(returns, o.Ret)
		}
	}
	slices.Sort(returns)
	lo, hi := 0, len(returns)-1 // the answer is in [lo, hi]
	deadline := time.Now().Add(c.o.timeout())
	for lo < hi && c.breaches < maxNarrowed && time.Now().Before(deadline) {
		mid := (lo + hi) / 2
		if illegal(c.prefix(ops, returns[mid])) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo < hi {
		hi = len(returns) - 1
	}
	at := returns[hi]
	_, prefix := c.prefix(ops, at)
	return breach{class: classSearch, key: key, at: at, ops: prefix,
		why: fmt.Sprintf("no order of the operations on %s until %s, which fits their times, is one of a %s", object(c.h, key), when(c.h, at), c.m)}
}

func illegalKey(c *objectCase, ops []int32) bool {
	r, _ := c.searchKey(ops, c.o.timeout())
	return r == porcupine.Illegal
}

// prefix cuts a key at time t: what was called until then, with what returned
// later left open. Reads and failures that had not returned are left out.
func (c *objectCase) prefix(ops []int32, t int64) (*objectCase, []int32) {
	h := *c.h
	h.Ops = slices.Clone(c.h.Ops)
	var kept []int32
	for _, i := range ops {
		o := &h.Ops[i]
		if o.Call > t {
			break
		}
		if o.Ret > t {
			if o.Kind == history.KindRead || o.Outcome == history.Failed {
				continue
			}
			o.Ret, o.Outcome = history.Never, history.Unknown
		}
		kept = append(kept, i)
	}
	return &objectCase{h: &h, o: c.o, m: c.m}, kept
}

// translate makes porcupine's operations of one key, and finds the initial
// value: null, or else what was read before anybody can have written it.
func (c *objectCase) translate(ops []int32) ([]porcupine.Operation, string, string) {
	h := c.h
	out := make([]porcupine.Operation, 0, len(ops))
	initial := "null"
	if c.m.Name == modelKV || c.m.Name == modelSet || c.m.Name == modelList {
		initial = ""
	}
	for _, i := range ops {
		o := &h.Ops[i]
		if o.Kind == history.KindRead && o.Outcome != history.Done || o.Outcome == history.Failed && o.Kind != history.KindCAS {
			continue
		}
		text := "null"
		if o.Value >= 0 {
			text = h.Values[o.Value]
		}
		in := &objectInput{kind: o.Kind, outcome: o.Outcome, arg: text}
		bad := func() ([]porcupine.Operation, string, string) {
			return nil, "", fmt.Sprintf("%s has a value that a %s cannot have", opText(h, o), c.m)
		}
		switch c.m.Name {
		case modelCounter:
			n, err := strconv.ParseInt(text, 10, 64)
			if o.Kind == history.KindAdd && text == "null" {
				n, err = 1, nil
			}
			if err != nil {
				return bad()
			}
			in.n = n
		case modelSet, modelList:
			if o.Kind != history.KindRead {
				break
			}
			var raw []json.RawMessage
			if json.Unmarshal([]byte(text), &raw) != nil {
				return bad()
			}
			in.arg = ""
			for _, e := range raw {
				if c.m.Name == modelSet {
					if next := addSorted(in.arg, string(e)); next != in.arg {
						in.arg = next
						continue
					}
				}
				in.arg += string(e) + "\n"
			}
		case modelKV:
			var s *string
			if json.Unmarshal([]byte(text), &s) == nil {
				in.arg = ""
				if s != nil {
					in.arg = *s
				}
			} else if o.Kind == history.KindAppend {
				return bad()
			}
		case modelCAS:
			if o.Kind == history.KindCAS {
				var pair []json.RawMessage
				if json.Unmarshal([]byte(text), &pair) != nil || len(pair) != 2 {
					return nil, "", fmt.Sprintf("%s needs the value [old, new]", opText(h, o))
				}
				in.arg, in.to = string(pair[0]), string(pair[1])
			}
		}
		out = append(out, porcupine.Operation{ClientId: int(o.Process), Input: in, Call: o.Call, Return: o.Ret})
	}
	if c.m.Name == modelRegister || c.m.Name == modelCAS {
		initial = firstValue(out)
	}
	return out, initial, ""
}

// firstValue is the initial value of a register: one that was read before
// anybody can have written it. If there are several, null, or else the one whose
// read returned first; if there is none, it was not seen and null will do.
func firstValue(ops []porcupine.Operation) string {
	writes, reads := map[string]int64{}, map[string]int64{}
	lower := func(m map[string]int64, v string, t int64) {
		if old, ok := m[v]; !ok || t < old {
			m[v] = t
		}
	}
	for i := range ops {
		switch in := ops[i].Input.(*objectInput); {
		case in.kind == history.KindRead:
			lower(reads, in.arg, ops[i].Return)
		case in.kind == history.KindWrite:
			lower(writes, in.arg, ops[i].Call)
		case in.outcome != history.Failed:
			lower(writes, in.to, ops[i].Call)
		}
	}
	best, at := "null", int64(history.Never)
	for v, t := range reads {
		if w, ok := writes[v]; ok && w <= t {
			continue
		}
		if v == "null" {
			return v
		}
		if t < at {
			best, at = v, t
		}
	}
	return best
}

func agreement(result porcupine.CheckResult, violated bool) string {
	switch {
	case result == porcupine.Unknown:
		return NotDecided
	case (result == porcupine.Illegal) == violated:
		return Agrees
	default:
		return Disagrees
	}
}
