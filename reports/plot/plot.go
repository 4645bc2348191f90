// Package plot draws what a run measured as SVG pictures: latency raw and in
// quantiles, throughput, hold times and the time to recover from faults, with
// bands where faults were in effect.
package plot

import (
	"bufio"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/lockcheck/lockcheck/history"
)

// Kind is a kind of plot.
type Kind string

// Kinds are all plots that there are.
var Kinds = []Kind{LatencyRaw, LatencyQuantiles, Throughput, HoldTimes, Recovery}

const (
	LatencyRaw       Kind = "latency-raw"       // how long each operation took, by its outcome
	LatencyQuantiles Kind = "latency-quantiles" // median, 95th, 99th percentile and maximum over time
	Throughput       Kind = "throughput"        // operations a second, by outcome
	HoldTimes        Kind = "hold-times"        // for how long clients held, a histogram
	Recovery         Kind = "recovery"          // from the end of each fault to the next grant
)

// Options say how a plot is drawn.
type Options struct {
	Embedded bool // part of a page: no style of its own
}

// Size of a picture and of the area of its axes, in pixels.
const (
	width, height            = 900, 260
	left, right, top, bottom = 64, 16, 34, 40
	innerW, innerH           = width - left - right, height - top - bottom
)

// Outcomes, with the colour and the mark of each: colour is never all.
var outcomes = [...]struct {
	name, color string
}{
	history.Unknown: {"unknown", "#bf8700"},
	history.Done:    {"ok", "#1f6feb"},
	history.Failed:  {"fail", "#d1242f"},
}

const style = `<style>svg{color:#1f2328;background:#fff}@media (prefers-color-scheme:dark){svg{color:#e6edf3;background:#0d1117}}</style>`

// Draw draws one plot of a history, and reports whether the history has
// anything to show in it; if not, nothing is written.
func Draw(w io.Writer, kind Kind, h *history.History, o Options) (bool, error) {
	if h.Timeless {
		return false, nil
	}
	p := &pen{w: bufio.NewWriter(w), h: h, o: o, faults: faultsOf(h)}
	for i := range h.Ops {
		p.end = max(p.end, h.Ops[i].Call)
		if h.Ops[i].Ret < history.Never {
			p.end = max(p.end, h.Ops[i].Ret)
		}
	}
	if p.end == 0 {
		return false, nil
	}
	for i := range p.faults {
		p.faults[i].to = min(p.faults[i].to, p.end)
	}
	drawn := false
	switch kind {
	case LatencyRaw:
		drawn = p.raw()
	case LatencyQuantiles:
		drawn = p.quantiles()
	case Throughput:
		drawn = p.throughput()
	case HoldTimes:
		drawn = p.holdTimes()
	case Recovery:
		drawn = p.recovery()
	default:
		return false, fmt.Errorf("unknown plot %q: there are %v", kind, Kinds)
	}
	if !drawn {
		return false, nil
	}
	p.printf("</svg>\n")
	return true, p.w.Flush()
}

type fault struct {
	kind     string
	from, to int64
}

// faultsOf are the times during which faults were in effect.
func faultsOf(h *history.History) []fault {
	type id struct{ kind, on string }
	open := map[id][]int{}
	var all []fault
	for i := range h.Other {
		e := &h.Other[i]
		if e.Process != history.Nemesis || e.F == history.Heal {
			continue
		}
		var v struct {
			On json.RawMessage `json:"on"`
		}
		_ = json.Unmarshal(e.Value, &v) // a fault without a target is one, too
		k := id{e.F, string(v.On)}
		switch e.Type {
		case history.OK:
			open[k] = append(open[k], len(all))
			all = append(all, fault{e.F, e.Time, history.Never})
		case history.Info:
			if n := len(open[k]); n > 0 {
				all[open[k][n-1]].to = e.Time
				open[k] = open[k][:n-1]
			}
		}
	}
	return all
}

type pen struct {
	w      *bufio.Writer
	h      *history.History
	o      Options
	faults []fault
	end    int64
}

func (p *pen) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

func (p *pen) text(x, y float64, anchor, text string) {
	p.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="currentColor">%s</text>`+"\n", x, y, anchor, escape(text))
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return b.String()
}

// scale is a linear or logarithmic axis from lo to hi.
type scale struct {
	lo, hi float64
	log    bool
}

// at returns the place of v on the axis, from 0 to 1.
func (s scale) at(v float64) float64 {
	if s.log {
		return math.Log(max(v, s.lo)/s.lo) / math.Log(s.hi/s.lo)
	}
	return (v - s.lo) / (s.hi - s.lo)
}

// ticks returns round values on the axis.
func (s scale) ticks() []float64 {
	var all []float64
	if s.log {
		for v := math.Pow(10, math.Ceil(math.Log10(s.lo))); v <= s.hi*1.0001; v *= 10 {
			all = append(all, v)
		}
		if len(all) > 1 {
			return all
		}
		return []float64{s.lo, s.hi}
	}
	step := math.Pow(10, math.Floor(math.Log10((s.hi-s.lo)/4)))
	for (s.hi-s.lo)/step > 8 {
		step *= 2
	}
	for v := math.Ceil(s.lo/step) * step; v <= s.hi*1.0001; v += step {
		all = append(all, v)
	}
	return all
}

func x(f float64) float64 { return left + f*innerW }
func y(f float64) float64 { return top + (1-f)*innerH }

// open starts a picture and draws its axes. With overTime x is the time of the
// run and faults are shown as bands.
func (p *pen) open(kind Kind, title, xLabel, yLabel string, xs, ys scale, overTime bool) {
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" class="plot" data-kind="%s" font-family="system-ui,sans-serif" font-size="12">`+"\n", width, height, width, height, kind)
	p.printf("<title>%s</title>\n", escape(title))
	if !p.o.Embedded {
		p.printf("%s\n", style)
	}
	p.printf(`<text x="%d" y="18" fill="currentColor" font-weight="600">%s</text>`+"\n", left, escape(title))
	if overTime {
		p.bands(xs)
	}
	for _, v := range ys.ticks() {
		at := y(ys.at(v))
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="currentColor" stroke-opacity="0.15"/>`+"\n", left, at, width-right, at)
		p.text(left-6, at+4, "end", number(v))
	}
	for _, v := range xs.ticks() {
		at := x(xs.at(v))
		p.printf(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="currentColor" stroke-opacity="0.4"/>`+"\n", at, height-bottom, at, height-bottom+4)
		p.text(at, height-bottom+17, "middle", number(v))
	}
	p.printf(`<path d="M%d %d V%d H%d" fill="none" stroke="currentColor" stroke-opacity="0.6"/>`+"\n", left, top, height-bottom, width-right)
	p.text(width-right, height-6, "end", xLabel)
	p.text(6, 18, "start", yLabel)
}

// bands shades the times of faults, and names the kinds that fit.
func (p *pen) bands(xs scale) {
	colors := map[string]string{}
	palette := []string{"#8250df", "#bf8700", "#1a7f37", "#cf222e", "#0969da", "#bf3989"}
	labelled := -1.0
	for _, f := range p.faults {
		c, found := colors[f.kind]
		if !found {
			c = palette[len(colors)%len(palette)]
			colors[f.kind] = c
		}
		x1, x2 := x(xs.at(float64(f.from)/1e6)), x(xs.at(float64(f.to)/1e6))
		p.printf(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" fill-opacity="0.16"><title>%s</title></rect>`+"\n",
			x1, top, max(x2-x1, 1), innerH, c, escape(f.kind))
		if x1 > labelled {
			p.printf(`<text x="%.1f" y="%d" fill="%s" font-size="11">%s</text>`+"\n", x1+3, top+11, c, escape(f.kind))
			labelled = x1 + 8 + 7*float64(len(f.kind))
		}
	}
}

// legend names what is drawn, right of the title.
func (p *pen) legend(entries ...[2]string) {
	at := float64(width - right)
	for _, e := range slices.Backward(entries) {
		at -= 7*float64(len(e[0])) + 22
		p.printf(`<rect x="%.1f" y="9" width="10" height="10" fill="%s"/>`, at, e[1])
		p.text(at+14, 18, "start", e[0])
	}
}

func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case math.Abs(v) >= 1e4:
		return fmt.Sprintf("%.4gk", v/1e3)
	default:
		return fmt.Sprintf("%.4g", v)
	}
}

// over is the axis of time in milliseconds.
func (p *pen) over() scale { return scale{lo: 0, hi: float64(p.end) / 1e6} }

// latencies is the range of latencies in milliseconds, on a logarithmic axis.
func (p *pen) latencies() (scale, bool) {
	s := scale{lo: math.Inf(1), log: true}
	for i := range p.h.Ops {
		if op := &p.h.Ops[i]; op.Ret < history.Never {
			ms := float64(op.Ret-op.Call) / 1e6
			s.lo, s.hi = min(s.lo, ms), max(s.hi, ms)
		}
	}
	if s.hi == 0 {
		return s, false
	}
	s.lo = math.Pow(10, math.Floor(math.Log10(s.lo)))
	s.hi = math.Pow(10, math.Ceil(math.Log10(s.hi)+1e-9))
	return s, true
}

// raw draws a point for each operation. Points that would fall on the same pixel
// are one, so that a picture of a million operations is no larger than what it
// shows.
func (p *pen) raw() bool {
	ys, any := p.latencies()
	if !any {
		return false
	}
	xs := p.over()
	p.open(LatencyRaw, "Latency of each operation", "time in ms", "ms", xs, ys, true)
	type pixel struct{ x, y int16 }
	for o := range outcomes {
		seen := map[pixel]struct{}{}
		for i := range p.h.Ops {
			op := &p.h.Ops[i]
			if int(op.Outcome) != o || op.Ret >= history.Never {
				continue
			}
			seen[pixel{int16(x(xs.at(float64(op.Call) / 1e6))), int16(y(ys.at(float64(op.Ret-op.Call) / 1e6)))}] = struct{}{}
		}
		if len(seen) == 0 {
			continue
		}
		all := make([]pixel, 0, len(seen))
		for px := range seen {
			all = append(all, px)
		}
		sort.Slice(all, func(i, j int) bool { return all[i].x < all[j].x || all[i].x == all[j].x && all[i].y < all[j].y })
		p.printf(`<path stroke="%s" stroke-width="2" fill="none" d="`, outcomes[o].color)
		for _, px := range all {
			if history.Outcome(o) == history.Failed {
				p.printf("M%d %dl3 3m-3 0l3-3", px.x-1, px.y-1) // a cross
			} else {
				p.printf("M%d %dh2", px.x-1, px.y)
			}
		}
		p.printf("\"/>\n")
	}
	p.legend([2]string{"ok", outcomes[history.Done].color}, [2]string{"x fail", outcomes[history.Failed].color})
	return true
}

// slices of the time over which figures are taken.
const buckets = 160

func (p *pen) bucket(t int64) int { return min(int(float64(t)/float64(p.end)*buckets), buckets-1) }

func (p *pen) quantiles() bool {
	ys, any := p.latencies()
	if !any {
		return false
	}
	all := make([][]int64, buckets)
	for i := range p.h.Ops {
		if op := &p.h.Ops[i]; op.Ret < history.Never {
			b := p.bucket(op.Call)
			all[b] = append(all[b], op.Ret-op.Call)
		}
	}
	p.open(LatencyQuantiles, "Latency: median, 95th and 99th percentile, maximum", "time in ms", "ms", p.over(), ys, true)
	for i := range all {
		slices.Sort(all[i])
	}
	lines := []struct {
		name, color, dash string
		q                 float64
	}{{"p50", "#1f6feb", "", 0.5}, {"p95", "#8250df", "6 3", 0.95}, {"p99", "#bf8700", "2 2", 0.99}, {"max", "#d1242f", "1 4", 1}}
	var legend [][2]string
	for _, l := range lines {
		var d strings.Builder
		drawing := false
		for i, b := range all {
			if len(b) == 0 {
				drawing = false
				continue
			}
			v := float64(b[min(len(b)-1, int(math.Ceil(l.q*float64(len(b))))-1)]) / 1e6
			verb := "M"
			if drawing {
				verb = "L"
			}
			fmt.Fprintf(&d, "%s%.1f %.1fh%.1f", verb, x(float64(i)/buckets), y(ys.at(v)), float64(innerW)/buckets)
			drawing = true
		}
		p.printf(`<path fill="none" stroke="%s" stroke-width="1.8" stroke-dasharray="%s" d="%s"/>`+"\n", l.color, l.dash, d.String())
		legend = append(legend, [2]string{l.name, l.color})
	}
	p.legend(legend...)
	return true
}

func (p *pen) throughput() bool {
	var n [len(outcomes)][buckets]float64
	most := 0.0
	seconds := float64(p.end) / 1e9 / buckets
	for i := range p.h.Ops {
		op := &p.h.Ops[i]
		at := op.Ret
		if at >= history.Never {
			at = op.Call
		}
		n[op.Outcome][p.bucket(at)] += 1 / seconds
	}
	for b := range buckets {
		most = max(most, n[0][b]+n[1][b]+n[2][b])
	}
	if most == 0 {
		return false
	}
	ys := scale{0, most * 1.05, false}
	p.open(Throughput, "Throughput: operations completed a second", "time in ms", "1/s", p.over(), ys, true)
	var base [buckets]float64
	var legend [][2]string
	for _, o := range []history.Outcome{history.Done, history.Failed, history.Unknown} {
		some := false
		for b := range buckets {
			v := n[o][b]
			if v == 0 {
				continue
			}
			some = true
			y1, y2 := y(ys.at(base[b]+v)), y(ys.at(base[b]))
			p.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" fill-opacity="0.8"/>`+"\n",
				x(float64(b)/buckets), y1, float64(innerW)/buckets-0.4, y2-y1, outcomes[o].color)
			base[b] += v
		}
		if some {
			legend = append(legend, [2]string{outcomes[o].name, outcomes[o].color})
		}
	}
	p.legend(legend...)
	return true
}

// holdTimes draws for how long clients held: from the answer to an acquire to the
// invocation of the release that follows it.
func (p *pen) holdTimes() bool {
	type slot struct{ process, key int32 }
	since := map[slot]int64{}
	var took []float64
	for i := range p.h.Ops {
		op := &p.h.Ops[i]
		s := slot{op.Process, op.Key}
		switch {
		case op.Kind == history.KindAcquire && op.Outcome == history.Done:
			since[s] = op.Ret
		case op.Kind == history.KindRelease:
			if from, held := since[s]; held {
				took = append(took, float64(op.Call-from)/1e6)
				delete(since, s)
			}
		}
	}
	return p.histogram(HoldTimes, "Hold times: from grant to release", took)
}

// recovery draws how long after the end of each fault the lock was next granted.
func (p *pen) recovery() bool {
	var grants []int64
	for i := range p.h.Ops {
		if op := &p.h.Ops[i]; op.Kind == history.KindAcquire && op.Outcome == history.Done {
			grants = append(grants, op.Ret)
		}
	}
	slices.Sort(grants)
	type heal struct {
		kind string
		ms   float64 // negative if there was no grant any more
	}
	var all []heal
	most := 0.0
	for _, f := range p.faults {
		if f.to >= p.end {
			continue
		}
		h := heal{f.kind, -1}
		if i, _ := slices.BinarySearch(grants, f.to); i < len(grants) {
			h.ms = float64(grants[i]-f.to) / 1e6
			most = max(most, h.ms)
		}
		all = append(all, h)
	}
	if most == 0 {
		return false
	}
	ys := scale{0, most * 1.1, false}
	p.open(Recovery, "Time to recover: from the end of a fault to the next grant", "fault, in order", "ms", scale{0, float64(len(all)), false}, ys, false)
	for i, h := range all {
		at := x((float64(i) + 0.5) / float64(len(all)))
		w := min(40, float64(innerW)/float64(len(all))*0.7)
		if h.ms < 0 {
			p.text(at, y(0)-4, "middle", "never")
			continue
		}
		p.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#1f6feb"><title>%s: %s ms</title></rect>`+"\n",
			at-w/2, y(ys.at(h.ms)), w, y(0)-y(ys.at(h.ms)), escape(h.kind), number(h.ms))
		if len(all) <= 20 {
			p.text(at, y(ys.at(h.ms))-4, "middle", h.kind+" "+number(h.ms))
		}
	}
	return true
}

// histogram draws how often values, in milliseconds, occur.
func (p *pen) histogram(kind Kind, title string, values []float64) bool {
	if len(values) == 0 {
		return false
	}
	lo, hi := max(slices.Min(values), 1e-4), max(slices.Max(values), 1e-4)
	xs := scale{math.Pow(10, math.Floor(math.Log10(lo))), math.Pow(10, math.Ceil(math.Log10(hi)+1e-9)), true}
	const bars = 60
	var n [bars]float64
	most := 0.0
	for _, v := range values {
		b := min(max(int(xs.at(v)*bars), 0), bars-1)
		n[b]++
		most = max(most, n[b])
	}
	ys := scale{0, most * 1.1, false}
	p.open(kind, fmt.Sprintf("%s (%d)", title, len(values)), "ms", "count", xs, ys, false)
	for b, v := range n {
		if v > 0 {
			p.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#1f6feb"/>`+"\n",
				x(float64(b)/bars), y(ys.at(v)), float64(innerW)/bars-1, y(0)-y(ys.at(v)))
		}
	}
	return true
}
