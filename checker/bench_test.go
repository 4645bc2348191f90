package checker

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/checker/internal/gen"
	"github.com/lockcheck/lockcheck/history"
)

// allocated is the number of bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// best is the shortest of some runs.
func best(runs int, f func()) time.Duration {
	d := time.Duration(1 << 62)
	for range runs {
		start := time.Now()
		f()
		d = min(d, time.Since(start))
	}
	return d
}

func BenchmarkCheck(b *testing.B) {
	kinds := []struct {
		name   string
		config gen.Config
	}{
		{"mutex", gen.Config{}},
		{"fenced", gen.Config{Tokens: true}},
		{"lease", gen.Config{TTL: gen.Lease, Renew: true, Tokens: true}},
		{"lease,deadline", gen.Config{TTL: gen.Lease, Renew: true, Tokens: true, Deadline: true}},
		{"fence", gen.Config{Tokens: true, Writes: true}},
	}
	for _, k := range kinds {
		for _, n := range []int{1_000_000} {
			for _, keys := range []int{1, 100} {
				for _, unknown := range []float64{0, 0.01, 0.1} {
					for _, plant := range []bool{false, true} {
						c := k.config
						c.Ops, c.Keys, c.Unknown, c.Plant, c.Clients = n, keys, unknown, plant, 50
						b.Run(fmt.Sprintf("%s/%d/keys=%d/unknown=%v/planted=%v", k.name, n, keys, unknown, plant), func(b *testing.B) {
							h := gen.History(c)
							b.ReportAllocs()
							b.ResetTimer()
							for b.Loop() {
								Check(h, Options{NoSecondOpinion: true})
							}
							b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(h.Ops)), "ns/operation")
							b.ReportMetric(float64(len(h.Ops))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mop/s")
						})
					}
				}
			}
		}
	}
}

var (
	_ = porcupine.Ok
	_ = history.Never
)
