package starve

// CPUs are numbers of processors, in order.
type CPUs []int
