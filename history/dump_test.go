package history

import (
	"fmt"
	"strings"
)

var kindNames = [...]string{"other", "acquire", "renew", "release", "check", "write", "read", "cas", "append", "add"}
var outcomeNames = [...]string{"unknown", "done", "failed"}

// dump writes a history for people and for comparing.
func dump(h *History) string {
	var b strings.Builder
	text := func(names []string, i int32) string {
		if i < 0 {
			return "-"
		}
		return names[i]
	}
	token := func(has bool, t int64) string {
		if !has {
			return ""
		}
		return fmt.Sprintf(" token %d", t)
	}
	fmt.Fprintf(&b, "%s, %d events, truncated %v, timeless %v\n", h.Format, h.Events, h.Truncated, h.Timeless)
	for _, o := range h.Ops {
		ret := fmt.Sprint(o.Ret)
		if o.Ret == Never {
			ret = "never"
		}
		fmt.Fprintf(&b, "op %d-%d [%d, %s] process %s %s %s: %s value %s%s", o.Index, o.RetIndex, o.Call, ret,
			h.Processes[o.Process], kindNames[o.Kind], h.Keys[o.Key], outcomeNames[o.Outcome],
			text(h.Values, o.Value), token(o.HasToken, o.Token))
		if t := h.Terms[o.Term]; o.Term != 0 {
			fmt.Fprintf(&b, " ttl %d until %d", t.TTL, t.Until)
		}
		if o.Error != 0 {
			fmt.Fprintf(&b, " (%s)", h.Errors[o.Error])
		}
		b.WriteByte('\n')
	}
	for _, a := range h.Applied {
		fmt.Fprintf(&b, "applied %d [%d] for %s, op %d: %s %s accepted %v value %s%s\n", a.Index, a.Time,
			h.Processes[a.Client], a.Op, kindNames[a.Kind], h.Keys[a.Key], a.Accepted, text(h.Values, a.Value), token(a.HasToken, a.Token))
	}
	for _, n := range h.Notices {
		fmt.Fprintf(&b, "notice %d [%d] to %s: %s lost\n", n.Index, n.Time, h.Processes[n.Process], h.Keys[n.Key])
	}
	for _, e := range h.Other {
		fmt.Fprintf(&b, "other %s\n", e)
	}
	for _, a := range h.Assumptions {
		fmt.Fprintf(&b, "assumption %s, timing only %v\n", a, a.TimingOnly)
	}
	return b.String()
}
