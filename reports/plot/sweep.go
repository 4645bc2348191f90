package plot

import (
	"bufio"
	"io"
	"math"
	"slices"

	"github.com/lockcheck/lockcheck/history"
)

// Leases is the plot of a sweep: what a shorter or longer lease costs.
const Leases Kind = "leases"

// Lease is what was measured with one lease.
type Lease struct {
	TTL      float64 // in milliseconds
	Rate     float64 // part of the pauses that were a violation, from 0 to 1
	Recovery float64 // median time from a holder's death to the next grant, in milliseconds; 0 for none
}

// DrawLeases draws the two curves over the lease: the part of pauses that were
// a violation, which falls with it, and the time to recover from a holder's
// death, which rises. It needs two leases at least, and reports whether there are.
func DrawLeases(w io.Writer, all []Lease, o Options) (bool, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Lease) int { return int(math.Copysign(1, a.TTL-b.TTL)) })
	if len(all) < 2 || all[0].TTL <= 0 || all[0].TTL == all[len(all)-1].TTL {
		return false, nil
	}
	p := &pen{w: bufio.NewWriter(w), h: &history.History{}, o: o}
	xs := scale{lo: all[0].TTL, hi: all[len(all)-1].TTL, log: true}
	rates, times := scale{hi: 10}, scale{hi: 1}
	for _, l := range all {
		rates.hi = max(rates.hi, math.Ceil(l.Rate*10)*10)
		times.hi = max(times.hi, l.Recovery*1.05)
	}
	p.open(Leases, "What a lease costs", "lease in ms", "%", xs, rates, false)
	for _, v := range times.ticks() {
		p.text(width-right-4, y(times.at(v))-3, "end", number(v)+" ms")
	}
	violation, recovery := outcomes[history.Failed].color, outcomes[history.Done].color
	p.curve(violation, "", all, func(l Lease) float64 { return y(rates.at(100 * l.Rate)) }, xs)
	p.curve(recovery, "6 3", all, func(l Lease) float64 { return y(times.at(l.Recovery)) }, xs)
	p.legend([2]string{"pauses that were a violation (left)", violation}, [2]string{"- - recovery from a death (right)", recovery})
	p.printf("</svg>\n")
	return true, p.w.Flush()
}

// curve draws a line with a point for each lease.
func (p *pen) curve(color, dash string, all []Lease, at func(Lease) float64, xs scale) {
	p.printf(`<path fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s" d="`, color, dash)
	for i, l := range all {
		p.printf("%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x(xs.at(l.TTL)), at(l))
	}
	p.printf("\"/>\n")
	for _, l := range all {
		p.printf(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>lease %s ms: %s %% of pauses, %s ms</title></circle>`+"\n",
			x(xs.at(l.TTL)), at(l), color, number(l.TTL), number(100*l.Rate), number(l.Recovery))
	}
}
