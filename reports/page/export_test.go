package page

// Export for the tests of this package, which are outside of it.
var (
	HoldsOf     = holdsOf
	OverlapsOf  = overlapsOf
	StaleWrites = staleWrites
)

// Length is how long an overlap lasts in nanoseconds.
func (o overlap) Length() int64 { return o.to - o.from }

// Resumed says that a hold goes on after its lease could have ended.
func (h hold) Resumed() bool { return h.resumed }
