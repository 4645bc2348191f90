package main

import "math"

// confidence is that of the bounds which are reported.
const confidence = 0.95

// upperBound is the rate below which the probability of an event lies, at the
// confidence, if it occurred in k of n independent runs: the exact one-sided bound
// of Clopper and Pearson (Biometrika 26, 1934), the rate at which k or fewer
// occurrences have the probability 1 - confidence. For k = 0 that is
// 1 - (1-confidence)^(1/n). Where runs of several kinds are counted together, it
// bounds the mean of their rates: k or fewer occurrences are the most probable
// if all rates are the same (Hoeffding, 1956).
func upperBound(k, n int) float64 {
	switch {
	case n <= 0 || k >= n:
		return 1
	case k <= 0:
		return -math.Expm1(math.Log1p(-confidence) / float64(n))
	}
	low, high := float64(k)/float64(n), 1.0
	for range 100 { // each halves the interval
		mid := (low + high) / 2
		if atMost(k, n, mid) > 1-confidence {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// atMost is the probability of k or fewer occurrences in n runs at the rate p, which
// is above 0 and below 1.
func atMost(k, n int, p float64) float64 {
	sum := 0.0
	for i := range k + 1 {
		sum += math.Exp(choose(n, i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

// choose is the logarithm of the number of ways to choose k of n.
func choose(n, k int) float64 {
	lg := func(x int) float64 { l, _ := math.Lgamma(float64(x) + 1); return l }
	return lg(n) - lg(k) - lg(n-k)
}

// ceil rounds up, but for what floating point added.
func ceil(x float64) float64 { return math.Ceil(x - 1e-9) }
