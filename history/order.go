package history

import (
	"fmt"
	"math"
	"sort"
)

// maxTime bounds times, leases and deadlines: 36 years in nanoseconds. Sums of
// two, and raised times, stay below Never.
const maxTime = 1 << 60

// order gives events their final index and time: as stated where that is
// sound, otherwise by the rules of the codes in this package.
//
// The order of the lines is the order of events. Jepsen means it so too: its
// times may go back a little, or be equal, because clients take them before
// they come to write. A time is raised, never lowered, so that an interval may
// begin later or end later than stated, but is never moved before a line that
// stands above it.
type order struct {
	native bool // our own format, which promises more
	report reporter
	orderState
	gaps   []gap // in rising order
	filled map[int64]bool
}

// orderState is what the order of the events to come depends on, besides gaps.
type orderState struct {
	events  int64 // placed so far
	next    int64 // the index expected
	last    int64 // time given last
	stated  int64 // latest time stated
	timed   int64 // events that stated a time
	indexed bool  // the first event stated an index
	clocked bool  // the first event stated a time
}

// reporter takes an assumption that was found broken, and its Why to format.
type reporter func(a Assumption, format string, args ...any)

// gap is a range of indexes left out, [from, to).
type gap struct{ from, to int64 }

func newOrder(native bool, report reporter) order {
	return order{native: native, report: report, orderState: orderState{last: -1, stated: math.MinInt64}}
}

// place returns the index and the time of r. An event that is there already is
// a duplicate, to be left out. For a completion called is the stated time of
// its call, otherwise the smallest integer.
func (o *order) place(r *record, called int64) (index, time int64, duplicate bool, err error) {
	if o.events == 0 {
		o.indexed, o.clocked = r.hasIndex, r.hasTime
	}
	o.events++
	index = r.index
	if r.hasIndex && index == o.next && o.indexed && index < math.MaxInt32 {
		o.next++
	} else if index, duplicate, err = o.repairIndex(r); duplicate || err != nil {
		return index, r.time, duplicate, err
	}
	time = r.time
	if r.hasTime && time > o.last && time > o.stated && o.clocked && time <= maxTime {
		o.timed++
		o.stated = time
	} else if time, err = o.repairTime(r, index, called); err != nil {
		return 0, 0, false, err
	}
	o.last = time
	return index, time, false, nil
}

func (o *order) repairIndex(r *record) (index int64, duplicate bool, err error) {
	broken := func(code Code, format string, args ...any) {
		o.report(Assumption{Code: code, Line: r.line, Index: index}, format, args...)
	}
	index = r.index
	if !r.hasIndex || index < 0 {
		index = o.next
	}
	if index >= math.MaxInt32 {
		return 0, false, fmt.Errorf("index %d is more than a history may have (%d)", index, math.MaxInt32-1)
	}
	switch {
	case r.hasIndex != o.indexed && r.hasIndex:
		broken(IndexMissing, "states an index, though the first event does not")
	case r.hasIndex != o.indexed:
		broken(IndexMissing, "no index; it gets %d", index)
	case r.hasIndex && r.index < 0:
		broken(IndexOrder, "index %d is negative; it gets %d", r.index, index)
	}
	switch {
	case index == o.next:
		o.next++
	case index > o.next:
		broken(IndexGap, "index %d follows %d", index, o.next-1)
		o.gaps = append(o.gaps, gap{o.next, index})
		o.next = index + 1
	case o.missing(index):
		broken(IndexOrder, "index %d stands after %d", index, o.next-1)
		if o.filled == nil {
			o.filled = map[int64]bool{}
		}
		o.filled[index] = true
	default:
		broken(DuplicateEvent, "index %d occurs again; the event is left out", index)
		return index, true, nil
	}
	return index, false, nil
}

// missing reports whether index was left out until now.
func (o *order) missing(index int64) bool {
	i := sort.Search(len(o.gaps), func(i int) bool { return o.gaps[i].to > index })
	return i < len(o.gaps) && o.gaps[i].from <= index && !o.filled[index]
}

func (o *order) repairTime(r *record, index, called int64) (int64, error) {
	broken := func(code Code, timingOnly bool, format string, args ...any) {
		o.report(Assumption{Code: code, Line: r.line, Index: index, TimingOnly: timingOnly}, format, args...)
	}
	if r.hasTime && r.time > maxTime {
		return 0, fmt.Errorf("time %d is beyond what a run can last (%d ns)", r.time, int64(maxTime))
	}
	switch {
	case r.hasTime != o.clocked && r.hasTime:
		broken(TimeMissing, true, "states a time, though the first event does not")
	case r.hasTime != o.clocked:
		broken(TimeMissing, true, "no time")
	}
	if !r.hasTime {
		return o.last + 1, nil
	}
	o.timed++
	switch {
	case r.time < 0:
		broken(NegativeTime, false, "time %d", r.time)
	case r.time < called:
		broken(ReturnBeforeCall, false, "ends at %d, was called at %d", r.time, called)
	case r.time < o.stated:
		broken(TimeOrder, !o.native, "time %d after %d", r.time, o.stated)
	case r.time == o.stated && o.native:
		broken(TimeOrder, false, "time %d occurs again", r.time)
	}
	o.stated = max(o.stated, r.time)
	return max(o.last+1, r.time), nil
}
