package page

// Export for the tests of this package, which are outside of it.
var (
	HoldsOf     = holdsOf
	OverlapsOf  = overlapsOf
	StaleWrites = staleWrites
)

// Length is how long an overlap lasts in nanoseconds.
func (o overlap) Length() int64 { return o.to - o.from }
