package checker

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/checker/internal/gen"
	"github.com/lockcheck/lockcheck/checker/internal/rival"
	"github.com/lockcheck/lockcheck/history"
)

var large = flag.Bool("large", false, "benchmarks: also 10^7 operations, and porcupine on 10^5, which takes 8 GB")

// sink keeps the compiler from leaving out the raw scan.
var sink int64

// sizes of the histories of a benchmark.
func sizes() []int {
	ns := []int{1_000, 10_000, 100_000, 1_000_000}
	if *large {
		ns = append(ns, 10_000_000)
	}
	return ns
}

var benched = []struct {
	name   string
	config gen.Config
}{
	{"mutex", gen.Config{}},
	{"fenced", gen.Config{Tokens: true}},
	{"lease", gen.Config{TTL: gen.Lease, Renew: true, Tokens: true}},
	{"deadline", gen.Config{TTL: gen.Lease, Renew: true, Tokens: true, Deadline: true}},
	{"fence", gen.Config{Tokens: true, Writes: true}},
}

// eachHistory runs f as a benchmark on generated histories.
func eachHistory(b *testing.B, f func(b *testing.B, h *history.History)) {
	for _, k := range benched {
		for _, n := range sizes() {
			for _, clients := range []int{5, 50} {
				for _, keys := range []int{1, 100} {
					for _, unknown := range []float64{0, 0.01, 0.1} {
						for _, kind := range []string{"valid", "planted"} {
							c := k.config
							c.Ops, c.Clients, c.Keys, c.Unknown, c.Plant = n, clients, keys, unknown, kind == "planted"
							b.Run(fmt.Sprintf("%s/n=%d/clients=%d/keys=%d/unknown=%v/%s", k.name, n, clients, keys, unknown, kind), func(b *testing.B) {
								h := gen.History(c)
								b.ReportAllocs()
								b.ResetTimer()
								f(b, h)
								b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(h.Ops)), "ns/operation")
							})
						}
					}
				}
			}
		}
	}
}

// The exact checkers alone, on decoded histories, with all properties.
func BenchmarkCheck(b *testing.B) {
	eachHistory(b, func(b *testing.B, h *history.History) {
		for b.Loop() {
			Check(h, Options{NoSecondOpinion: true})
		}
	})
}

// Reading the operations and doing nothing with them: the limit.
func BenchmarkScan(b *testing.B) {
	eachHistory(b, func(b *testing.B, h *history.History) {
		for b.Loop() {
			for i := range h.Ops {
				sink += h.Ops[i].Call ^ h.Ops[i].Ret
			}
		}
	})
}

// BenchmarkPorcupine compares with porcupine on the same histories, in the same
// run: the metric "times" is how much longer it takes. It has 60 s each; what it
// does not decide by then counts as 60 s, with "undecided" 1.
func BenchmarkPorcupine(b *testing.B) {
	for _, n := range sizes() {
		for _, keys := range []int{1, 100} {
			if n/keys > 10_000 && !*large || n/keys > 100_000 {
				continue // out of memory
			}
			for _, unknown := range []float64{0, 0.01, 0.1} {
				for _, kind := range []string{"valid", "planted"} {
					if kind == "planted" && unknown > 0 && n/keys > 1000 && !*large {
						continue // out of memory
					}
					c := gen.Config{Ops: n, Clients: 20, Keys: keys, Unknown: unknown, Plant: kind == "planted"}
					b.Run(fmt.Sprintf("n=%d/keys=%d/unknown=%v/%s", n, keys, unknown, kind), func(b *testing.B) {
						h := gen.History(c)
						ops := rival.Operations(h)
						var ours, theirs time.Duration
						undecided := 0.0
						for b.Loop() {
							start := time.Now()
							r := Check(h, Options{NoSecondOpinion: true})
							ours += time.Since(start)
							start = time.Now()
							result := porcupine.CheckOperationsTimeout(rival.Mutex, ops, time.Minute)
							theirs += time.Since(start)
							switch {
							case result == porcupine.Unknown:
								undecided = 1
							case (result == porcupine.Ok) != (r.Property(Mutex).Verdict == Held):
								b.Fatalf("porcupine: %s, mutex is %s", result, r.Property(Mutex).Verdict)
							}
						}
						b.ReportMetric(float64(theirs)/float64(ours), "times")
						b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "µs/check")
						b.ReportMetric(undecided, "undecided")
						b.ReportMetric(0, "ns/op")
					})
				}
			}
		}
	}
}
