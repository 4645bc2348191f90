package reports

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// Measures of the SVG form, in pixels.
const (
	svgTime   = 74  // right edge of the times
	svgFirst  = 110 // first lifeline
	svgLane   = 250 // between lifelines
	svgHead   = 50  // above the first row
	svgRow    = 27
	svgGlyph  = 6.9 // width of a character, about
	svgMargin = 230 // right of the last lifeline, for its notes
)

var svgStyles = [...]string{plain: "currentColor", bad: "#d1242f", good: "#1a7f37", cold: "#8250df", faint: "#7d8590"}

const svgStyle = `<style>svg{color:#1f2328;background:#fff}@media (prefers-color-scheme:dark){svg{color:#e6edf3;background:#0d1117}}</style>`

// SVG writes the diagram as a picture. What it shows is what Diagram shows.
// With o.Embedded it has no style of its own and takes its colour from around it.
func SVG(w io.Writer, events []history.Event, rep *checker.Report, o Options) error {
	p := &picture{diagram: tell(events, rep, o), w: bufio.NewWriter(w)}
	p.draw()
	return p.w.Flush()
}

type picture struct {
	*diagram
	w *bufio.Writer
}

func (p *picture) x(lane int) int { return svgFirst + lane*svgLane }

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

func (p *picture) text(x, y float64, anchor string, s style, bold bool, t string) {
	weight := ""
	if bold {
		weight = ` font-weight="600"`
	}
	p.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", x, y, anchor, svgStyles[s], weight, escape(t))
}

// escape makes text that is safe in an element or an attribute, also of what is
// not allowed in XML at all.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return b.String()
}

func (p *picture) draw() {
	steps, rest := p.steps()
	lines := len(steps)
	for _, s := range steps {
		if s.omitted != 0 {
			lines++
		}
	}
	if rest > 0 {
		lines++
	}
	width := p.x(len(p.lanes)-1) + svgMargin
	height := svgHead + lines*svgRow + 40
	var what []string
	for lane := range p.lanes {
		what = append(what, p.title(lane))
	}
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="12" color="inherit">`+"\n", width, height, width, height)
	p.printf("<title>Sequence of events between %s</title>\n", escape(strings.Join(what, ", ")))
	if !p.o.Embedded {
		p.printf("%s\n", svgStyle)
	}
	p.printf(`<defs><pattern id="frozen" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="3" height="6" fill="%s"/></pattern></defs>`+"\n", svgStyles[cold])
	if len(steps) == 0 {
		p.text(20, 20, "start", plain, false, "No operation of a client is in the history.")
		p.printf("</svg>\n")
		return
	}
	p.text(svgTime-6, 16, "end", faint, false, "ms")
	for lane, title := range p.lanes {
		p.text(float64(p.x(lane)), 16, "middle", plain, true, p.o.cut(title, 32))
		sub := ""
		switch lane {
		case p.res:
			sub = p.o.Resource
		case service:
			sub = p.o.Service
		}
		if sub != "" {
			p.text(float64(p.x(lane)), 31, "middle", faint, false, p.o.cut(p.o.clean(sub), 32))
		}
	}
	y := float64(svgHead)
	for _, s := range steps {
		if s.omitted != 0 {
			p.gap(y, s.omitted, s.row)
			y += svgRow
		}
		p.lifelines(y, s.row)
		p.marks(y, s.row)
		y += svgRow
	}
	if rest > 0 {
		p.gap(y, rest, steps[len(steps)-1].row)
		y += svgRow
	}
	p.key(y + 18)
	p.printf("</svg>\n")
}

func (p *picture) gap(y float64, n int, r row) {
	for lane := range r.lives {
		p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-dasharray="2 4"/>`+"\n", p.x(lane), y, p.x(lane), y+svgRow, svgStyles[faint])
	}
	p.text(float64(p.x(0)+12), y+svgRow/2+4, "start", faint, false, omission(n))
}

func (p *picture) lifelines(y float64, r row) {
	if r.both {
		p.printf(`<rect x="%d" y="%.1f" width="%d" height="%d" fill="%s" fill-opacity="0.13"/>`+"\n", svgTime, y, p.x(len(p.lanes)-1)-svgTime+16, svgRow, svgStyles[bad])
		p.printf(`<rect x="%d" y="%.1f" width="4" height="%d" fill="%s"/>`+"\n", svgTime, y, svgRow, svgStyles[bad])
	}
	for lane, l := range r.lives {
		x := p.x(lane)
		switch l {
		case idle:
			p.printf(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s"/>`+"\n", x, y, x, y+svgRow, svgStyles[faint])
		case holds:
			p.printf(`<rect x="%d" y="%.1f" width="8" height="%d" fill="#1f6feb"/>`+"\n", x-4, y, svgRow)
		case frozen:
			p.printf(`<rect x="%d" y="%.1f" width="10" height="%d" fill="url(#frozen)" stroke="%s"/>`+"\n", x-5, y, svgRow, svgStyles[cold])
		}
	}
}

func (p *picture) marks(y float64, r row) {
	mid := y + svgRow/2 + 5
	if r.time >= 0 {
		p.text(svgTime-6, mid, "end", plain, false, milliseconds(r.time))
	}
	for _, m := range r.marks {
		x1, x2 := float64(p.x(m.from)), float64(p.x(m.to))
		bold := m.style == bad || m.style == good
		switch {
		case m.lost:
			p.text(x1+12, mid, "start", m.style, false, p.o.cut(m.label()+" (lost on the way)", 60))
		case m.from == m.to:
			if m.sign != 0 {
				p.printf(`<path d="M%.1f %.1f l6 6 l-6 6 l-6 -6 z" fill="%s"/>`+"\n", x1, mid-10, svgStyles[cold])
			}
			room := (svgLane - 24) / svgGlyph
			if m.wide {
				room = 80
			}
			p.text(x1+12, mid, "start", m.style, true, p.fit(m.labels, int(room)))
		default:
			dir := 1.0
			if x2 < x1 {
				dir = -1
			}
			dash := ""
			if m.unknown {
				dash = ` stroke-dasharray="4 4"`
			}
			p.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"%s/>`+"\n", x1+6*dir, mid+4, x2-10*dir, mid+4, svgStyles[m.style], dash)
			p.printf(`<path d="M%.1f %.1f l%.1f -4 v8 z" fill="%s"/>`+"\n", x2-5*dir, mid+4, -8*dir, svgStyles[m.style])
			anchor := "start"
			if dir < 0 {
				anchor = "end"
			}
			p.text(x1+14*dir, mid, anchor, m.style, bold, p.fit(m.labels, int((max(x1, x2)-min(x1, x2)-30)/svgGlyph)))
		}
	}
}

// key explains the signs.
func (p *picture) key(y float64) {
	p.printf(`<rect x="%d" y="%.1f" width="8" height="12" fill="#1f6feb"/>`, svgTime, y-10)
	p.text(svgTime+14, y, "start", faint, false, "believes it holds")
	p.printf(`<rect x="%d" y="%.1f" width="10" height="12" fill="url(#frozen)" stroke="%s"/>`, svgTime+155, y-10, svgStyles[cold])
	p.text(svgTime+171, y, "start", faint, false, "frozen")
	p.printf(`<rect x="%d" y="%.1f" width="18" height="12" fill="%s" fill-opacity="0.3"/>`, svgTime+240, y-10, svgStyles[bad])
	p.text(svgTime+264, y, "start", faint, false, "two believe they hold")
}
