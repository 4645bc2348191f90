package checker

import (
	"fmt"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// tenure is a certain hold. Whatever the order in which the lock server did
// things, the process held during the core [ar, rc].
type tenure struct {
	ac, ar   int64 // acquire called, returned
	rc, rr   int64 // release called, returned; Never where it did not
	token    int64
	acq, rel int32 // positions in History.Ops; rel is -1 without a release
	process  int32
	shared   bool // a reader of a read-write lock
	hasToken bool
}

// visit is a hold that happened at an unknown time: its acquire has an
// unknown outcome, its release succeeded. It asks for one instant within the
// release's interval at which the lock could be had.
type visit struct {
	ac, rc, rr int64
	acq, rel   int32
	shared     bool
}

// holdings is what the operations of one key say about who held.
type holdings struct {
	tenures []tenure
	visits  []visit
	maybe   []visit // visits whose release is unknown too
	open    []int32 // unknown acquires that no release followed
	refused []int32 // failed acquires
	orphans []int32 // releases that succeeded while their process held nothing
	stray   bool    // an unknown release by a process that held nothing
	ended   int     // releases that failed and were read as the end of the hold
	firstEd int32   // the first of them
}

// seat is what is known of one process (in one mode) on the way.
type seat struct {
	epoch   int32
	open    []int32 // tenures without a release
	loose   []int32 // tenures whose release may turn out not to have happened
	unknown []int32 // unknown acquires that may yet be released
}

// keyed groups the positions of the lock operations by key, in call order.
func keyed(h *history.History, want func(history.Kind) bool) [][]int32 {
	counts := make([]int32, len(h.Keys))
	for i := range h.Ops {
		if want(h.Ops[i].Kind) {
			counts[h.Ops[i].Key]++
		}
	}
	groups := make([][]int32, len(h.Keys))
	for k, n := range counts {
		groups[k] = make([]int32, 0, n)
	}
	for i := range h.Ops {
		if want(h.Ops[i].Kind) {
			k := h.Ops[i].Key
			groups[k] = append(groups[k], int32(i))
		}
	}
	return groups
}

func lockOperation(k history.Kind) bool {
	return k == history.KindAcquire || k == history.KindRelease
}

// sequential returns what contradicts the assumption that a process has one
// operation open at a time and that returns follow calls, or "".
func sequential(h *history.History) string {
	last := make([]int64, len(h.Processes))
	for i := range last {
		last[i] = -history.Never
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Ret < o.Call {
			return fmt.Sprintf("operation at index %d returns before its call", o.Index)
		}
		if o.Call < last[o.Process] {
			return fmt.Sprintf("process %s calls at index %d while an earlier operation of it is open", h.Processes[o.Process], o.Index)
		}
		last[o.Process] = o.Call
		if o.Outcome != history.Unknown {
			last[o.Process] = o.Ret
		}
	}
	return ""
}

// collect pairs acquires with releases, process by process. seats has two
// entries a process and is reused from key to key, told apart by epoch.
//
// An unknown release counts as done at its call and an unknown acquire as not
// done, which is the reading that claims least, unless a later release that
// succeeded proves otherwise: then the latest unknown release did not happen,
// or an unknown acquire did (a visit).
func collect(h *history.History, ops []int32, seats []seat, epoch int32, modes, strict bool) (holdings, string) {
	var g holdings
	var touched []int32
	at := func(process int32, shared bool) *seat {
		i := 2 * process
		if shared {
			i++
		}
		s := &seats[i]
		if s.epoch != epoch {
			touched = append(touched, i)
			*s = seat{epoch: epoch, open: s.open[:0], loose: s.loose[:0], unknown: s.unknown[:0]}
		}
		return s
	}
	for _, i := range ops {
		o := &h.Ops[i]
		shared := false
		if modes {
			var err string
			if shared, err = mode(h, o, at); err != "" {
				return g, err
			}
		}
		s := at(o.Process, shared)
		if o.Kind == history.KindAcquire {
			switch o.Outcome {
			case history.Done:
				s.open = append(s.open, int32(len(g.tenures)))
				g.tenures = append(g.tenures, tenure{ac: o.Call, ar: o.Ret, rc: history.Never, rr: history.Never,
					token: o.Token, hasToken: o.HasToken, acq: i, rel: -1, process: o.Process, shared: shared})
			case history.Unknown:
				s.unknown = append(s.unknown, i)
			case history.Failed:
				g.refused = append(g.refused, i)
			}
			continue
		}
		end := func(t int32) {
			g.tenures[t].rc, g.tenures[t].rr, g.tenures[t].rel = o.Call, o.Ret, i
		}
		switch o.Outcome {
		case history.Done:
			switch {
			case len(s.open) > 0:
				end(pop(&s.open))
			case len(s.unknown) > 0 && len(s.loose) > 0:
				return g, fmt.Sprintf("the release at index %d follows both an unknown acquire and an unknown release of process %s: use a new process after an unknown outcome",
					o.Index, h.Processes[o.Process])
			case len(s.unknown) > 0:
				first := h.Ops[s.unknown[0]].Call // any of them may be the one
				a := pop(&s.unknown)
				g.visits = append(g.visits, visit{ac: first, rc: o.Call, rr: o.Ret, acq: a, rel: i, shared: shared})
			case len(s.loose) > 0:
				end(pop(&s.loose))
			default:
				g.orphans = append(g.orphans, i)
			}
		case history.Unknown:
			switch {
			case len(s.open) > 0:
				t := pop(&s.open)
				end(t)
				g.tenures[t].rr = history.Never
				s.loose = append(s.loose, t)
			case len(s.unknown) > 0:
				a := s.unknown[len(s.unknown)-1]
				g.maybe = append(g.maybe, visit{ac: h.Ops[s.unknown[0]].Call, rc: o.Call, rr: history.Never, acq: a, rel: i, shared: shared})
			default:
				g.stray = true
			}
		case history.Failed:
			if strict {
				continue
			}
			switch {
			case len(s.open) > 0:
				t := pop(&s.open)
				end(t)
				s.loose = append(s.loose, t)
				if g.ended == 0 {
					g.firstEd = i
				}
				g.ended++
			case len(s.loose) > 0:
				// Not held at some instant until now: the hold is over.
				t := &g.tenures[s.loose[len(s.loose)-1]]
				t.rr = min(t.rr, o.Ret)
			}
		}
	}
	for _, i := range touched {
		g.open = append(g.open, seats[i].unknown...)
	}
	return g, ""
}

// mode says whether an operation on a read-write lock is a reader's. A release
// that does not say belongs to the mode in which its process holds.
func mode(h *history.History, o *history.Op, at func(int32, bool) *seat) (bool, string) {
	if o.Value >= 0 {
		switch h.Values[o.Value] {
		case `"read"`:
			return true, ""
		case `"write"`:
			return false, ""
		case "null":
		default:
			return false, fmt.Sprintf("operation at index %d has the value %s; a read-write lock's is \"read\" or \"write\"", o.Index, h.Values[o.Value])
		}
	}
	if o.Kind == history.KindAcquire {
		return false, ""
	}
	r, w := at(o.Process, true), at(o.Process, false)
	reader := len(r.open) > 0 || len(w.open) == 0 && len(r.unknown)+len(r.loose) > 0
	writer := len(w.open) > 0 || len(r.open) == 0 && len(w.unknown)+len(w.loose) > 0
	if reader && writer {
		return false, fmt.Sprintf("the release at index %d could be of a reader's or of a writer's hold: let its value say which", o.Index)
	}
	return reader, ""
}

// outermost joins the nested tenures of each process (T9): what excludes
// others is the time from the first acquire to the last release.
func outermost(ts []tenure) []tenure {
	byProcess(ts)
	out := ts[:0]
	for _, t := range ts {
		if n := len(out); n > 0 && out[n-1].process == t.process && t.ar <= out[n-1].rc {
			o := &out[n-1]
			if !o.hasToken {
				o.token, o.hasToken = t.token, t.hasToken
			}
			if t.rc > o.rc {
				o.rc, o.rr, o.rel = t.rc, t.rr, t.rel
			}
			continue
		}
		out = append(out, t)
	}
	return out
}

func byProcess(ts []tenure) {
	slices.SortFunc(ts, func(a, b tenure) int {
		if a.process != b.process {
			return int(a.process) - int(b.process)
		}
		return compare64(a.ar, b.ar)
	})
}

// repeats says whether a process, some of whose operations may or may not have
// had their effect, was granted two sections in a row with one token: a sign
// that they were one, which only a search can tell. It sorts ts by process.
func repeats(h *history.History, ops []int32, ts []tenure) bool {
	byProcess(ts)
	vague := map[int32]bool{}
	for _, i := range ops {
		o := &h.Ops[i]
		if o.Outcome == history.Unknown || o.Outcome == history.Failed && o.Kind == history.KindRelease {
			vague[o.Process] = true
		}
	}
	for i := 1; i < len(ts); i++ {
		a, b := &ts[i-1], &ts[i]
		if a.process == b.process && vague[a.process] && a.hasToken && b.hasToken && a.token == b.token {
			return true
		}
	}
	return false
}

func pop(s *[]int32) int32 {
	x := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return x
}

func compare64(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// when writes a time of the history for people. Where the history states no
// times, it is the number of the event.
func when(h *history.History, t int64) string {
	switch {
	case t >= history.Never:
		return "the end"
	case t <= -history.Never:
		return "the start"
	case h.Timeless:
		return fmt.Sprintf("event %d", t)
	}
	return at(t)
}

// object names a key in a sentence.
func object(h *history.History, key int32) string {
	if h.Keys[key] == "" {
		return "the object"
	}
	return fmt.Sprintf("%q", h.Keys[key])
}
