package main

import (
	"math"
	"testing"
)

// The bounds for n from tables of Clopper and Pearson, one-sided at 95 %; those for no
// occurrence are 1 - 0.05^(1/n).
func TestUpperBound(t *testing.T) {
	for _, c := range []struct {
		k, n int
		want float64
	}{
		{0, 1, 0.95}, {0, 2, 0.77639}, {0, 10, 0.25887}, {0, 59, 0.04951}, {0, 100, 0.029513}, {0, 298, 0.010002}, {0, 1000000, 2.9957e-6},
		{1, 10, 0.39416}, {2, 10, 0.50690}, {5, 10, 0.77756}, {9, 10, 0.99488}, {10, 10, 1}, {1, 100, 0.04656},
		{0, 0, 1},
	} {
		if got := upperBound(c.k, c.n); math.Abs(got-c.want) > 1e-4*math.Max(c.want, 1e-2) {
			t.Errorf("%d in %d: below %.6g, want %.6g", c.k, c.n, got, c.want)
		}
	}
}

// What is told is a bound: it is never rounded down.
func TestBoundsAreRoundedUp(t *testing.T) {
	for p, want := range map[float64]string{
		1: "100 %", 0.95: "95 %", 0.2588: "26 %", 0.25: "25 %", 0.0951: "9.6 %", 0.05: "5.0 %", 0.0295: "3.0 %", 0.009951: "1.00 %", 0.0029957: "0.30 %", 2.9957e-6: "0.00030 %",
	} {
		if got := percent(p); got != want {
			t.Errorf("%v is told as %s, want %s", p, got, want)
		}
	}
}
