package checker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// concurrent makes a valid history of n operations on an object by clients that
// do not take turns: half of them change it, half read it.
func concurrent(name string, n, clients int, unknown float64, seed uint64) *history.History {
	r := rand.New(rand.NewPCG(seed, 7))
	h := &history.History{Keys: []string{"k"}, Errors: []string{""}, Terms: []history.Term{{}}}
	type point struct {
		t   int64 // when the operation takes effect
		pos int
	}
	var points []point
	free := make([]int64, clients)
	for i := range clients {
		h.Processes = append(h.Processes, "c"+strconv.Itoa(i))
		free[i] = r.Int64N(1000)
	}
	h.Values = append(h.Values, "0")
	for i := range n {
		p := 0
		for j := range free {
			if free[j] < free[p] {
				p = j
			}
		}
		call := free[p] + 1 + r.Int64N(300)
		at := call + 1 + r.Int64N(2000)
		ret := at + 1 + r.Int64N(2000)
		free[p] = ret
		o := history.Op{Kind: history.KindRead, Process: int32(p), Call: call, Ret: ret, Outcome: history.Done, Value: -1}
		if r.IntN(2) == 0 {
			o.Kind = map[string]history.Kind{modelRegister: history.KindWrite, modelCounter: history.KindAdd, modelSet: history.KindAdd}[name]
			if name == modelCounter {
				o.Value = -1 // adds one
			} else {
				h.Values = append(h.Values, strconv.Itoa(i+1))
				o.Value = int32(len(h.Values) - 1)
			}
			if r.Float64() < unknown {
				o.Outcome, o.Ret = history.Unknown, history.Never
			}
		} else if name == modelSet {
			o.Kind = history.KindCheck // sets are read once, at the end
		}
		h.Ops = append(h.Ops, o)
		points = append(points, point{at, i})
	}
	slices.SortFunc(points, func(a, b point) int { return compare64(a.t, b.t) })
	value, sum := int32(0), 0
	var members []string
	x := texts{all: h.Values}
	if name == modelCounter {
		x = texts{}
	}
	for _, pt := range points {
		o := &h.Ops[pt.pos]
		switch o.Kind {
		case history.KindWrite:
			value = o.Value
		case history.KindAdd:
			sum++
			if name == modelSet {
				members = append(members, h.Values[o.Value])
			}
		case history.KindRead:
			o.Value = value
			if name == modelCounter {
				o.Value = x.id(strconv.Itoa(sum))
			}
		}
	}
	h.Values = x.all
	if name == modelSet {
		last := slices.Max(free)
		h.Values = append(h.Values, "["+strings.Join(members, ",")+"]")
		h.Ops = append(h.Ops, history.Op{Kind: history.KindRead, Call: last + 1, Ret: last + 2, Outcome: history.Done, Value: int32(len(h.Values) - 1)})
	}
	slices.SortFunc(h.Ops, func(a, b history.Op) int { return compare64(a.Call, b.Call) })
	ordinal(h)
	return h
}

// ordinal makes the times of a history unique by their ranks, calls before
// returns, as a decoder does.
func ordinal(h *history.History) {
	type stamp struct {
		t   int64
		at  *int64
		ret bool
		pos int
		idx *int32
	}
	ss := make([]stamp, 0, 2*len(h.Ops))
	for i := range h.Ops {
		o := &h.Ops[i]
		o.RetIndex = -1
		ss = append(ss, stamp{t: o.Call, at: &o.Call, pos: i, idx: &o.Index})
		if o.Ret < history.Never {
			ss = append(ss, stamp{t: o.Ret, at: &o.Ret, ret: true, pos: i, idx: &o.RetIndex})
		}
	}
	slices.SortFunc(ss, func(a, b stamp) int {
		if c := compare64(a.t, b.t); c != 0 {
			return c
		}
		switch {
		case a.ret == b.ret:
			return a.pos - b.pos
		case a.ret:
			return 1
		}
		return -1
	})
	for i, s := range ss {
		*s.at, *s.idx = int64(i), int32(i)
	}
	h.Events = int64(len(ss))
}

// processorTime is what the process has used, which does not depend on how busy
// the machine is.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkObjects measures the exact checkers on decoded histories, per
// operation, with the memory that they take beside the history.
func BenchmarkObjects(b *testing.B) {
	for _, name := range []string{modelRegister, modelCounter, modelSet} {
		for _, n := range []int{10_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				h := concurrent(name, n, 20, 0.01, 1)
				m := Model{Name: name}
				want := keyed(h, operatesOn(m))[0]
				b.ReportAllocs()
				b.ResetTimer()
				used := processorTime(b)
				for range b.N {
					c := &objectCase{h: h, o: Options{NoSecondOpinion: true}, m: m}
					switch name {
					case modelRegister:
						c.checkRegister(want)
					case modelCounter:
						c.boundCounter(want)
					case modelSet:
						c.checkSet(want)
					}
					if c.breaches > 0 || c.unsure != "" {
						b.Fatal("a valid history was not found valid")
					}
				}
				used = processorTime(b) - used
				b.ReportMetric(float64(used)/float64(b.N)/float64(n), "cpu-ns/operation")
			})
		}
	}
}

// BenchmarkLockModels measures CheckModel on a lock and the property State on
// what it protects, per operation, the pairing of operations included.
func BenchmarkLockModels(b *testing.B) {
	const n = 1_000_000
	h := sections(n, 20, 0.01, 1)
	for _, name := range []string{"mutex", "fenced-mutex", "reentrant-mutex", "semaphore:3", State} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			used := processorTime(b)
			for range b.N {
				var p Property
				if name == State {
					p = checkState(h, Options{NoSecondOpinion: true})
				} else {
					p = CheckModel(h, Options{Model: name, NoSecondOpinion: true})
				}
				if p.Verdict != Held {
					b.Fatalf("%s: %s", p.Verdict, p.Why)
				}
			}
			used = processorTime(b) - used
			b.ReportMetric(float64(used)/float64(b.N)/n, "cpu-ns/operation")
		})
	}
}

// BenchmarkObjectsAgainstPorcupine gives, in one run and on the same histories,
// how many times as long porcupine takes as the exact checker.
func BenchmarkObjectsAgainstPorcupine(b *testing.B) {
	const limit = 10 * time.Second
	for _, name := range []string{modelRegister, modelCounter, modelSet} {
		for _, size := range [][2]int{{100, 5}, {1000, 5}, {1000, 20}} {
			n, clients := size[0], size[1]
			b.Run(fmt.Sprintf("%s/%d/clients=%d", name, n, clients), func(b *testing.B) {
				h := concurrent(name, n, clients, 0.01, 1)
				c := &objectCase{h: h, o: Options{NoSecondOpinion: true}, m: Model{Name: name}}
				ops := keyed(h, operatesOn(c.m))[0]
				var exact, other time.Duration
				undecided := 0.0
				for range b.N {
					start := time.Now()
					const times = 100
					for range times {
						switch name {
						case modelRegister:
							c.checkRegister(ops)
						case modelCounter:
							c.boundCounter(ops)
						case modelSet:
							c.checkSet(ops)
						}
					}
					exact += time.Since(start) / times
					start = time.Now()
					if r, _ := c.searchKey(ops, limit); r != porcupine.Ok {
						undecided++
					}
					other += time.Since(start)
				}
				b.ReportMetric(float64(other)/float64(exact), "x")
				b.ReportMetric(undecided/float64(b.N), "undecided")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
