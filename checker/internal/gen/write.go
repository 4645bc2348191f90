package gen

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/lockcheck/lockcheck/history"
)

var names = map[history.Kind]string{
	history.KindAcquire: history.Acquire,
	history.KindRenew:   history.Renew,
	history.KindRelease: history.Release,
	history.KindCheck:   history.Check,
	history.KindWrite:   history.Write,
	history.KindRead:    history.Read,
	history.KindAdd:     "add",
	history.KindAppend:  "append",
	history.KindCAS:     "cas",
}

// Write writes a simulated history as JSON Lines, as a run would have recorded
// it.
func Write(w io.Writer, h *history.History) error {
	events := make([]history.Event, h.Events)
	for i := range h.Ops {
		op := &h.Ops[i]
		call := history.Event{Time: op.Call, Process: h.Processes[op.Process], Type: history.Invoke, F: names[op.Kind], Key: h.Keys[op.Key]}
		ret := call
		ret.Time, ret.Type = op.Ret, history.OK
		if op.HasToken {
			e := &ret
			if op.Kind == history.KindWrite {
				e = &call
			}
			e.Token = &op.Token
		}
		if op.Value >= 0 {
			e := &call
			if op.Kind == history.KindRead {
				e = &ret
			}
			e.Value = json.RawMessage(h.Values[op.Value])
		}
		switch op.Outcome {
		case history.Unknown:
			ret.Type, ret.Error = history.Info, "timeout"
		case history.Failed:
			ret.Type, ret.Error = history.Fail, h.Errors[op.Error]
		}
		ret.TTL, ret.Until = h.Terms[op.Term].TTL, h.Terms[op.Term].Until
		events[op.Index] = call
		if op.RetIndex >= 0 {
			events[op.RetIndex] = ret
		}
	}
	for i := range h.Applied {
		a := &h.Applied[i]
		op := int64(a.Op)
		e := history.Event{Time: a.Time, Process: history.Resource, Type: history.OK, F: names[a.Kind], Key: h.Keys[a.Key], Client: h.Processes[a.Client], Op: &op}
		if a.HasToken {
			e.Token = &a.Token
		}
		if !a.Accepted {
			e.Type = history.Fail
		}
		events[a.Index] = e
	}
	b := bufio.NewWriterSize(w, 1<<16)
	for i := range events {
		events[i].Index = int64(i)
		if events[i].Type == history.Info { // an operation does not keep the time
			events[i].Time = events[i-1].Time + 1
		}
		if _, err := b.WriteString(events[i].String() + "\n"); err != nil {
			return err
		}
	}
	return b.Flush()
}
