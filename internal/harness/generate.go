package harness

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

// Weighted is a kind of fault, and how often it is to be chosen beside others.
type Weighted struct {
	Kind   string
	Weight float64
}

// String is the kind with its weight, as ParseFaults reads it.
func (w Weighted) String() string {
	if w.Weight == 1 {
		return w.Kind
	}
	return w.Kind + ":" + strconv.FormatFloat(w.Weight, 'g', -1, 64)
}

// ParseFaults reads "pause,partition,clock:0.2": kinds of faults with their
// weights, 1 if left out.
func ParseFaults(texts []string) ([]Weighted, error) {
	var all []Weighted
	for _, text := range texts {
		name, number, given := strings.Cut(strings.TrimSpace(text), ":")
		w := Weighted{name, 1}
		if _, err := nemesis.Find(name); err != nil {
			return nil, err
		}
		if given {
			var err error
			if w.Weight, err = strconv.ParseFloat(number, 64); err != nil || !(w.Weight > 0 && w.Weight <= 1000) {
				return nil, fmt.Errorf("%q: the weight of a fault is a number above 0, as in clock:0.2", text)
			}
		}
		if slices.ContainsFunc(all, func(o Weighted) bool { return o.Kind == name }) {
			return nil, fmt.Errorf("fault %s is named twice", name)
		}
		all = append(all, w)
	}
	return all, nil
}

// Topology is what a schedule can act on.
type Topology struct {
	Clients []string
	Servers []string
	Leader  bool // the servers are a cluster with a leader
}

// Entries of a schedule: about one every two TTLs, since a fault that matters
// lasts for one or two.
const (
	leastEntries = 3
	mostEntries  = 12
)

// Generate returns a random schedule for a workload of some length. It is a pure
// function: the same seed and arguments give the same schedule.
//
// It is not fair but biased to the moments that change who holds: most entries
// begin on a grant, a check or a renewal and hit the holder, for about as long as
// a lease, until somebody else is granted the lock; several may be in effect at
// once.
func Generate(seed int64, kinds []Weighted, length, ttl time.Duration, on Topology) []scenarios.Injection {
	if len(kinds) == 0 || ttl <= 0 {
		return nil
	}
	g := &generator{rng: rand.New(rand.NewPCG(uint64(seed), 0x6c6f636b)), topology: on}
	n := max(leastEntries, min(mostEntries, int(length/(2*ttl))))
	var all []scenarios.Injection
	for range n {
		i := g.fault(g.kind(kinds))
		g.moment(&i, n)
		g.length(&i)
		all = append(all, i)
	}
	return all
}

type generator struct {
	rng      *rand.Rand
	topology Topology
}

func (g *generator) chance(p float64) bool          { return g.rng.Float64() < p }
func (g *generator) between(lo, hi float64) float64 { return lo + (hi-lo)*g.rng.Float64() }
func pick[T any](g *generator, of ...T) T           { return of[g.rng.IntN(len(of))] }

// ttls returns a time in tenths of a TTL.
func (g *generator) ttls(lo, hi float64) scenarios.Duration {
	return scenarios.Duration{TTLs: tenth(g.between(lo, hi))}
}

func tenth(f float64) float64 { return float64(int(f*10+0.5)) / 10 }

func (g *generator) kind(of []Weighted) string {
	total := 0.0
	for _, k := range of {
		total += k.Weight
	}
	at := g.rng.Float64() * total
	for _, k := range of {
		if at -= k.Weight; at < 0 {
			return k.Kind
		}
	}
	return of[len(of)-1].Kind
}

// fault chooses targets and parameters for a kind.
func (g *generator) fault(kind string) scenarios.Injection {
	i := scenarios.Injection{Fault: kind, On: []string{"holder"}}
	server := func(p float64) {
		if len(g.topology.Servers) == 0 || !g.chance(p) {
			return
		}
		i.On = []string{pick(g, g.topology.Servers...)}
		if g.topology.Leader && g.chance(0.5) {
			i.On = []string{"leader"}
		}
	}
	switch kind {
	case "clock":
		g.clock(&i)
	case "disk":
		i.On = []string{"servers"}
		i.With = pick(g, map[string]string{"fsync": "slow 0.5 ttl"}, map[string]string{"fsync": "fail EIO"})
	case "partition", "flapping":
		server(0.3)
		i.With = map[string]string{"mode": pick(g, "hold", "hold", "drop")}
		if d := pick(g, "both", "both", "to", "from", "replies"); d != "both" {
			i.With["direction"] = d
		}
		if kind == "partition" && i.On[0] == "holder" && g.chance(0.3) {
			i.With["peers"] = resourceNode // the write is late, and the lock does not notice
		}
		if kind == "flapping" {
			i.With["period"] = "0.5 ttl"
		}
	case "latency":
		server(0.3)
		i.With = map[string]string{"delay": fmt.Sprintf("%g ttl", tenth(g.between(0.1, 0.6)))}
	case "pause":
		server(0.2)
		if i.On[0] == "holder" && g.chance(0.1) {
			i.On = []string{"waiter"}
		}
	default:
		server(0.3)
	}
	return i
}

// clock chooses how a clock goes wrong: those of servers end leases early or
// late, those of clients have them believe for too long.
func (g *generator) clock(i *scenarios.Injection) {
	if len(g.topology.Servers) > 0 && g.chance(0.7) {
		i.On = []string{"servers"}
		i.With = pick(g,
			map[string]string{"jump": fmt.Sprintf("%g ttl", tenth(g.between(1, 4)))},
			map[string]string{"jump": fmt.Sprintf("-%g ttl", tenth(g.between(1, 4)))},
			map[string]string{"rate": pick(g, "3", "10")},
			map[string]string{"jump": fmt.Sprintf("%g ttl", tenth(g.between(1, 4))), "family": "both"},
		)
		return
	}
	i.With = pick(g,
		map[string]string{"rate": pick(g, "0.1", "0.5"), "family": "both"},
		map[string]string{"jump": fmt.Sprintf("-%g ttl", tenth(g.between(1, 4)))},
	)
}

// moment chooses when an entry of n begins. Schedules are spread over a workload
// by the number of events that come before.
func (g *generator) moment(i *scenarios.Injection, n int) {
	if g.chance(0.15) {
		i.At = g.ttls(0, float64(2*n))
		return
	}
	i.When = pick(g, "grant", "grant", "check", "check", "renew", "acquire", "write")
	i.Nth = 1 + g.rng.IntN(4*n)
	if g.chance(0.3) {
		i.After = g.ttls(0.1, 0.9)
	}
}

func (g *generator) length(i *scenarios.Injection) {
	i.For = g.ttls(1.1, 2.5)
	if g.chance(0.6) {
		// The one that is granted meanwhile writes before the other goes on.
		i.For = g.ttls(2, 4)
		i.Until = pick(g, "grant", "write", "write")
	}
}

// Compose returns a scenario that is the workload of sc under a random schedule.
// Its source is a file that can be run by itself.
func Compose(sc *scenarios.Scenario, seed int64, kinds []Weighted, ttl time.Duration, on Topology) (*scenarios.Scenario, error) {
	if sc.Workload == nil {
		return nil, fmt.Errorf("%s has steps: random faults need a scenario with a workload, such as contention", sc.Name)
	}
	length := sc.Workload.For.Of(ttl)
	if length == 0 {
		length = 10 * ttl
	}
	on.Clients = sc.Clients
	return disturbed(sc, Generate(seed, kinds, length, ttl, on),
		fmt.Sprintf("The workload of %s under a random schedule of faults, from seed %d.", sc.Name, seed))
}

// disturbed returns the workload of a scenario with another nemesis. What the
// scenario expects does not hold any more.
func disturbed(sc *scenarios.Scenario, entries []scenarios.Injection, comment string) (*scenarios.Scenario, error) {
	d := *sc
	w := *sc.Workload
	d.Workload, d.Nemesis, d.Expect = &w, entries, nil
	d.Why = ""
	d.Source = scenarios.Format(&d, comment)
	// What a run did is what its file says: so it is read from that.
	p, err := scenarios.Parse(sc.File, d.Source)
	if err != nil {
		return nil, fmt.Errorf("the schedule is no scenario: %w", err)
	}
	p.Embedded = sc.Embedded
	return p, nil
}
