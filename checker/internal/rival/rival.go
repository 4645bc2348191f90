// Package rival is what the exact checkers are measured against: porcupine, as
// people use it for locks.
package rival

import (
	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// Operations gives porcupine every operation, with those of unknown outcome open
// to the end.
func Operations(h *history.History) []porcupine.Operation {
	ops := make([]porcupine.Operation, len(h.Ops))
	for i := range h.Ops {
		o := &h.Ops[i]
		ops[i] = porcupine.Operation{ClientId: int(o.Process), Input: o, Call: o.Call, Return: o.Ret}
	}
	return ops
}

// Mutex is the model of a plain lock.
var Mutex = porcupine.Model{
	Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int32][]porcupine.Operation{}
		for _, o := range ops {
			k := o.Input.(*history.Op).Key
			byKey[k] = append(byKey[k], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range byKey {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return int32(-1) },
	Step: func(state, input, _ any) (bool, any) {
		holder, op := state.(int32), input.(*history.Op)
		can := holder == -1
		next := op.Process
		if op.Kind == history.KindRelease {
			can, next = holder == op.Process, -1
		}
		switch {
		case can:
			return true, next
		case op.Outcome == history.Unknown:
			return true, state // it did not happen
		}
		return false, state
	},
}
