package scenarios

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time, absolute or as a multiple of the TTL.
type Duration struct {
	Time time.Duration // absolute part
	TTLs float64       // part in units of the TTL
}

// maxDuration bounds what a file may ask for, so that no sum overflows.
const maxDuration = 24 * time.Hour

// ParseDuration reads "200ms", "1m30s" or "1.2 ttl". Negative durations, and
// those above 24 h or 10,000 TTLs, are errors.
func ParseDuration(s string) (Duration, error) {
	if n, ok := strings.CutSuffix(strings.TrimSpace(s), "ttl"); ok {
		f, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
		if err != nil || math.IsNaN(f) || f < 0 || f > 1e4 {
			return Duration{}, fmt.Errorf("%q is no multiple of the TTL: write a number from 0 to 10000 before it, as in \"1.2 ttl\"", s)
		}
		return Duration{TTLs: f}, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return Duration{}, fmt.Errorf("%q is no duration: write it with a unit (\"200ms\", \"1.5s\") or as a multiple of the TTL (\"1.2 ttl\")", s)
	case d < 0:
		return Duration{}, fmt.Errorf("%q is negative", s)
	case d > maxDuration:
		return Duration{}, fmt.Errorf("%q is longer than 24h", s)
	}
	return Duration{Time: d}, nil
}

// Of returns the duration for a run whose TTL is ttl, rounded to nanoseconds.
func (d Duration) Of(ttl time.Duration) time.Duration {
	return d.Time + time.Duration(math.Round(d.TTLs*float64(ttl)))
}

// IsZero reports whether the duration is 0 whatever the TTL.
func (d Duration) IsZero() bool { return d == Duration{} }

// String returns the duration as it may be written in a file.
func (d Duration) String() string {
	if d.TTLs != 0 {
		return strconv.FormatFloat(d.TTLs, 'g', -1, 64) + " ttl"
	}
	return d.Time.String()
}
