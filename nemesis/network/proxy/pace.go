package proxy

import (
	"math"
	"math/rand/v2"
	"time"
)

// Pace makes one direction of a link slow. Zero fields do nothing.
type Pace struct {
	// Delay is how long everything travels; it varies by up to Jitter, more and
	// less, at random (and not from a seed: packets are not replayed).
	Delay, Jitter time.Duration
	// Rate is bytes a second, at most.
	Rate int
	// Slice is how many bytes travel in one piece, at most, and Pause the time
	// between two pieces.
	Slice int
	Pause time.Duration
}

// rateStep is the time that a piece takes at most through a narrow link.
const rateStep = 10 * time.Millisecond

// piece returns how many bytes go at once.
func (p Pace) piece() int {
	n := math.MaxInt
	if p.Slice > 0 {
		n = p.Slice
	}
	if p.Rate > 0 {
		n = min(n, max(1, int(int64(p.Rate)*int64(rateStep)/int64(time.Second))))
	}
	return n
}

// due returns when n bytes that came at a time arrive, if the ones before them
// are through at free.
func (p Pace) due(came, free time.Time, n int) time.Time {
	t := came.Add(p.Delay)
	if p.Jitter > 0 {
		t = t.Add(rand.N(2*p.Jitter) - p.Jitter)
	}
	if t.Before(free) {
		t = free
	}
	if p.Rate > 0 {
		t = t.Add(time.Duration(n) * time.Second / time.Duration(p.Rate))
	}
	return t
}

// and returns the pace of a link that is slow in two ways at once.
func (p Pace) and(q Pace) Pace {
	p.Delay += q.Delay
	p.Jitter += q.Jitter
	p.Pause += q.Pause
	p.Rate = lower(p.Rate, q.Rate)
	p.Slice = lower(p.Slice, q.Slice)
	return p
}

// lower returns the lower one of two limits, zero being none.
func lower(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
