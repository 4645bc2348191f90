package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// tally sums up rounds.
type tally struct {
	took     *hdrhistogram.Histogram
	sections int64
	elapsed  time.Duration
}

// Latencies are counted in units of a tenth of a microsecond, up to a minute, to be
// told from others to a hundredth.
const (
	unit        = 100 * time.Nanosecond
	mostLatency = int64(time.Minute / unit)
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, mostLatency, 2) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d/unit), 1), mostLatency)) // within its bounds
}

// at is a quantile, in microseconds.
func at(h *hdrhistogram.Histogram, percent float64) float64 {
	return float64(h.ValueAtQuantile(percent)) * unit.Seconds() * 1e6
}

func newTally() *tally { return &tally{took: newHistogram()} }

func (t *tally) rate() float64 { return float64(t.sections) / t.elapsed.Seconds() }

func (t *tally) measure(subject string, clients int) Measure {
	return Measure{
		Subject: subject, Clients: clients, Sections: t.sections, PerSecond: t.rate(), P50: at(t.took, 50), P99: at(t.took, 99),
	}
}
