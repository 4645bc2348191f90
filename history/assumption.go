package history

import "fmt"

// Code names an assumption of checking that a history breaks. Each has one
// recovery, so that the rest of the history can still be judged.
type Code string

const (
	// IndexGap: an index is missing. Indexes are kept as stated, since that
	// is how people find an event; the order is that of the lines.
	IndexGap Code = "index-gap"
	// IndexOrder: an event stands after one with a higher index. The order of
	// the lines is taken.
	IndexOrder Code = "index-order"
	// IndexMissing: an event states no index, though others do. It gets the
	// next one.
	IndexMissing Code = "index-missing"
	// DuplicateEvent: an index occurs again. The later event is left out.
	DuplicateEvent Code = "duplicate-event"
	// TimeOrder: a time is before its predecessor's, or, in a native history,
	// equal to it. The order of the lines is taken and the time raised to one
	// nanosecond after the predecessor.
	TimeOrder Code = "time-order"
	// TimeMissing: an event states no time, though others do. It gets one
	// nanosecond after its predecessor.
	TimeMissing Code = "time-missing"
	// NegativeTime: a time is before the start of the run. It is raised like
	// one that breaks TimeOrder.
	NegativeTime Code = "negative-time"
	// ReturnBeforeCall: an operation ended before it began. The time of its
	// end is raised like one that breaks TimeOrder.
	ReturnBeforeCall Code = "return-before-call"
	// NoInvocation: a completion whose process has nothing open. It is left out.
	NoInvocation Code = "completion-without-invocation"
	// StillOpen: a process invokes while its last operation is open. The
	// outcome of the last one is unknown from then on.
	StillOpen Code = "invocation-while-open"
	// Mismatch: a completion names another operation or key than what its
	// process has open. The outcome of the open operation is unknown, and the
	// completion is left out.
	Mismatch Code = "completion-of-another-operation"
	// UnknownType: a type that is none of invoke, ok, fail and info. The
	// event is left out.
	UnknownType Code = "unknown-type"
	// UnknownF: a client's operation that no model knows. It becomes an
	// operation of KindOther.
	UnknownF Code = "unknown-operation"
	// Unterminated: the last line of a log has no end, and a log line that
	// was cut off can look whole. It is taken as it stands.
	Unterminated Code = "unterminated-last-line"
)

// MaxAssumptions is how many assumptions of one code are listed in a history.
const MaxAssumptions = 10

// Assumption is one place where a history breaks an assumption of checking.
type Assumption struct {
	Code  Code
	Line  int   // line of the input, from 1
	Index int64 // Event.Index of the event
	Why   string
	// TimingOnly says that the order of events is not in doubt, only how long
	// things took: it matters to properties that measure time, like lease.
	TimingOnly bool
}

func (a Assumption) String() string {
	return fmt.Sprintf("line %d (event %d): %s: %s", a.Line, a.Index, a.Code, a.Why)
}
