package checker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// at formats a time of a history, as the diagrams do: in milliseconds.
func at(t int64) string { return dur(t) }

// dur formats a length of time in milliseconds: with one decimal, and where that
// says nothing, with microseconds or nanoseconds behind the point.
func dur(d int64) string {
	digits := 1
	switch size := max(d, -d); {
	case size == 0:
	case size < 1_000:
		digits = 6
	case size < 1_000_000:
		digits = 3
	}
	return strconv.FormatFloat(float64(d)/1e6, 'f', digits, 64) + " ms"
}

func (cs *claims) process(i int32) string { return cs.h.Processes[i] }

func (cs *claims) lock(k *key) string { return fmt.Sprintf("%q", cs.h.Keys[k.id]) }

// describe is a hold as part of a witness. x is the earliest time of its grant.
func (cs *claims) describe(h *hold, x int64) Hold {
	d := Hold{
		Process: cs.process(h.process),
		Acquire: int64(cs.h.Ops[h.grant].Index),
		From:    h.b,
		To:      h.u,
		End:     reasons[h.end],
	}
	switch h.early {
	case byDeadline:
		d.End = "deadline"
	case byDeath:
		d.End = "killed"
	}
	if h.hasToken {
		t := h.token
		d.Token = &t
	}
	if h.ttl > 0 {
		d.Expiry = h.expiry(x)
	}
	return d
}

// events are the indexes of the events that prove that a hold was granted and
// how long it stood.
func (cs *claims) events(h *hold) []int64 {
	op := &cs.h.Ops[h.grant]
	es := cs.opEvents(op)
	if h.event >= 0 {
		es = append(es, int64(h.event))
	}
	return es
}

func (cs *claims) opEvents(op *history.Op) []int64 { return operationEvents(op) }

func operationEvents(op *history.Op) []int64 {
	es := []int64{int64(op.Index)}
	if op.RetIndex >= 0 {
		es = append(es, int64(op.RetIndex))
	}
	return es
}

// witness puts a proof together.
func (cs *claims) witness(k *key, why string, holds []Hold, events ...[]int64) *Witness {
	all := slices.Concat(events...)
	slices.Sort(all)
	return &Witness{Why: why, Key: cs.h.Keys[k.id], Events: slices.Compact(all), Holds: holds}
}

// until says how long a client went on believing.
func (cs *claims) until(h *hold) string {
	switch {
	case h.u >= never:
		return "to the end of the history"
	case h.early == byDeadline:
		return "until its own deadline at " + at(h.u)
	case h.early == byDeath:
		return "until it was killed at " + at(h.u)
	}
	how := map[reason]string{
		byRelease:       "until it released it at ",
		byFailedRelease: "until it tried to release it at ",
		byNotice:        "until it was told of the loss at ",
		byFailedRenewal: "until a renewal failed at ",
		byCheck:         "until it checked at ",
		byAgain:         "until it asked for it again at ",
		byRenewal:       "until it renewed it at ",
	}
	return how[h.end] + at(h.u)
}

// list joins names with commas and a final "and".
func list(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
