package reports

import (
	"bufio"
	"fmt"
	"sort"
	"strings"
)

// glyphs are what pictures are made of.
type glyphs struct {
	lives    [3]rune // by life
	right    [3]rune // lifeline with a line to the right, by life
	left     [3]rune // lifeline with a line to the left, by life
	cross    [3]rune // lifeline crossed by a line, by life
	line     rune
	dotted   rune // line of unknown outcome
	headR    rune
	headL    rune
	lost     rune // end of an arrow that did not arrive
	both     rune // in the margin: two clients believe
	expiry   rune
	ellipsis string
}

var unicodeGlyphs = glyphs{
	lives: [3]rune{'│', '┃', '┊'}, right: [3]rune{'├', '┠', '├'}, left: [3]rune{'┤', '┨', '┤'}, cross: [3]rune{'┼', '╂', '┼'},
	line: '─', dotted: '┄', headR: '▶', headL: '◀', lost: '✕', both: '▐', expiry: '◆', ellipsis: "…",
}

var asciiGlyphs = glyphs{
	lives: [3]rune{'|', '#', ':'}, right: [3]rune{'|', '#', ':'}, left: [3]rune{'|', '#', ':'}, cross: [3]rune{'+', '+', '+'},
	line: '-', dotted: '.', headR: '>', headL: '<', lost: 'x', both: '!', expiry: '*', ellipsis: "...",
}

// Columns of the picture.
const (
	timeWidth = 8  // right-aligned time
	margin    = 9  // column of the mark for two holders
	firstLane = 13 // lifeline of the first client
	rightSide = 4  // columns right of the last lifeline
)

func (d *diagram) x(lane int) int {
	if len(d.lanes) == 1 {
		return firstLane
	}
	return firstLane + lane*(d.o.width()-1-rightSide-firstLane)/(len(d.lanes)-1)
}

func (d *diagram) draw(w *bufio.Writer) {
	if len(d.rows) == 0 {
		fmt.Fprintln(w, "No operation of a client is in the history.")
		return
	}
	d.header(w)
	keep := d.shown()
	// What happens within a tenth of what is shown is drawn together.
	span := d.rows[len(d.rows)-1].time - d.rows[0].time
	prev := -1 // the last row that was drawn
	var used row
	for i, r := range d.rows {
		if !keep[i] {
			continue
		}
		left := r.before
		if prev >= 0 {
			left -= d.rows[prev].after
		}
		switch {
		case left > 0 || prev < i-1:
			d.elided(w, left, r)
		case prev >= 0 && r.time >= 0 && d.rows[prev].time >= 0 && span > 0 && r.time-d.rows[prev].time > span/10:
			d.spacer(w, d.rows[prev], r)
		}
		fmt.Fprintln(w, d.row(r).render(d.o))
		used.both = used.both || r.both
		prev = i
	}
	if left := d.ops - d.rows[prev].after; left > 0 {
		d.elided(w, left, d.rows[prev])
	}
	d.legend(w, used.both)
}

func (d *diagram) header(w *bufio.Writer) {
	second := make([]string, len(d.lanes))
	second[service] = d.o.clean(d.o.Service)
	if d.res >= 0 {
		second[d.res] = d.o.clean(d.o.Resource)
	}
	for n, line := range [][]string{d.lanes, second} {
		if n == 1 && strings.Join(line, "") == "" {
			continue
		}
		c := newCanvas(d.o.width())
		if n == 0 {
			c.text(timeWidth-2, "ms", faint)
		}
		for lane, title := range line {
			room := d.o.width()
			if lane+1 < len(d.lanes) {
				room = d.x(lane+1) - d.x(lane) - 2
			}
			title = d.o.cut(title, room)
			at := min(max(d.x(lane)-(textWidth(title)-1)/2, margin), d.o.width()-textWidth(title))
			st := plain
			if n == 1 {
				st = faint
			}
			c.text(at, title, st)
		}
		fmt.Fprintln(w, c.render(d.o))
	}
}

// lifelines draws the lifelines as they are on the row.
func (d *diagram) lifelines(r row) canvas {
	c := newCanvas(d.o.width())
	for lane, l := range r.lives {
		st := plain
		if l == frozen {
			st = cold
		}
		c.set(d.x(lane), d.glyphs.lives[l], st)
	}
	if r.both {
		c.set(margin, d.glyphs.both, bad)
	}
	return c
}

func (d *diagram) row(r row) canvas {
	c := d.lifelines(r)
	if r.time >= 0 {
		t := milliseconds(r.time)
		c.text(max(0, timeWidth-len(t)), t, plain)
	}
	for _, m := range r.marks {
		switch {
		case m.lost:
			d.lostArrow(c, r, m)
		case m.from == m.to:
			d.note(c, m)
		default:
			d.arrow(c, r, m)
		}
	}
	return c
}

// spacer is the empty row for a long time in which nothing happens. What
// changed with the later row had not changed yet.
func (d *diagram) spacer(w *bufio.Writer, before, after row) {
	r := row{lives: before.lives, both: before.both && after.both}
	fmt.Fprintln(w, d.lifelines(r).render(d.o))
}

// elided stands for operations that are left out before the row.
func (d *diagram) elided(w *bufio.Writer, n int, r row) {
	c := newCanvas(d.o.width())
	what := "operations"
	if n == 1 {
		what = "operation"
	}
	text := fmt.Sprintf("%s %d %s %s", d.glyphs.ellipsis, n, what, d.glyphs.ellipsis)
	if n <= 0 {
		text = d.glyphs.ellipsis
	}
	for lane := range r.lives {
		c.text(d.x(lane), ".", faint)
	}
	c.text(d.x(0)+2, text+" ", faint)
	fmt.Fprintln(w, c.render(d.o))
}

// fit returns the first label of at most n columns; the last one is cut.
func (d *diagram) fit(labels []string, n int) string {
	for _, l := range labels {
		if textWidth(l) <= n {
			return l
		}
	}
	return d.o.cut(labels[len(labels)-1], max(n, 1))
}

// arrow draws a line from lane to lane with its label near the sender, where
// there is one lane to cross no further than needed.
func (d *diagram) arrow(c canvas, r row, m mark) {
	x1, x2 := d.x(m.from), d.x(m.to)
	g := d.glyphs
	line := g.line
	if m.unknown {
		line = g.dotted
	}
	lo, hi := min(x1, x2), max(x1, x2)
	for x := lo + 1; x < hi; x++ {
		c.set(x, line, m.style)
	}
	for lane, l := range r.lives {
		if x := d.x(lane); x > lo && x < hi {
			c.set(x, g.cross[l], m.style)
		}
	}
	room := hi - lo - 1 - 5 // a dash on either side, blanks, the head
	if room < 1 {
		room = 1
	}
	label := d.fit(m.labels, room)
	if x1 < x2 {
		c.set(x1, g.right[r.lives[m.from]], plain)
		c.set(x2-1, g.headR, m.style)
		c.text(x1+2, " "+label+" ", m.style)
	} else {
		c.set(x1, g.left[r.lives[m.from]], plain)
		c.set(x2+1, g.headL, m.style)
		c.text(x1-1-textWidth(label)-2, " "+label+" ", m.style)
	}
}

// note writes text at a lane: right of it, or left of the last one.
func (d *diagram) note(c canvas, m mark) {
	x := d.x(m.from)
	if m.sign != 0 {
		c.set(x, m.sign, m.style)
	}
	if m.from == len(d.lanes)-1 && m.from > 0 {
		label := d.fit(m.labels, x-d.x(m.from-1)-3)
		c.text(x-1-textWidth(label), label, m.style)
		return
	}
	room := d.o.width() - x - 2
	if !m.wide && m.from+1 < len(d.lanes) {
		room = d.x(m.from+1) - x - 3
	}
	c.text(x+2, d.fit(m.labels, room)+" ", m.style)
}

// lostArrow draws a request that ended on its way: labels are the request's
// and the reason's.
func (d *diagram) lostArrow(c canvas, r row, m mark) {
	x := d.x(m.from)
	line, end := d.glyphs.line, d.glyphs.lost
	if m.unknown {
		line, end = d.glyphs.dotted, '?'
	}
	c.set(x, d.glyphs.right[r.lives[m.from]], plain)
	c.set(x+1, line, m.style)
	c.text(x+2, " "+m.labels[0]+" ", m.style)
	at := x + 4 + textWidth(m.labels[0])
	c.set(at, line, m.style)
	c.set(at+1, end, m.style)
	c.text(at+2, " "+d.o.cut(m.labels[1], d.o.width()-at-4)+" ", m.style)
}

// legend explains the signs that are in the picture, and says what is not.
func (d *diagram) legend(w *bufio.Writer, both bool) {
	var held, froze, ended, dotted bool
	for _, r := range d.rows {
		for _, l := range r.lives {
			held = held || l == holds
			froze = froze || l == frozen
		}
		for _, m := range r.marks {
			ended = ended || m.sign == d.glyphs.expiry
			dotted = dotted || m.unknown
		}
	}
	g := d.glyphs
	var signs []string
	for _, s := range []struct {
		shown bool
		sign  rune
		means string
	}{
		{held, g.lives[holds], "believes it holds"},
		{froze, g.lives[frozen], "frozen"},
		{both, g.both, "two believe they hold"},
		{ended, g.expiry, "earliest end of a lease"},
		{dotted, g.dotted, "outcome unknown"},
	} {
		if s.shown {
			signs = append(signs, string(s.sign)+" "+s.means)
		}
	}
	if len(signs) > 0 {
		fmt.Fprintln(w)
		line := ""
		for _, s := range signs {
			if line != "" && textWidth(line)+4+textWidth(s) > d.o.width() {
				fmt.Fprintln(w, line)
				line = ""
			}
			if line == "" {
				line = strings.Repeat(" ", margin) + s
			} else {
				line += "   " + s
			}
		}
		fmt.Fprintln(w, line)
	}
	remark := func(format string, args ...any) {
		for _, line := range wrap(fmt.Sprintf(format, args...), d.o.width()-margin) {
			fmt.Fprintf(w, "%*s%s\n", margin, "", line)
		}
	}
	for _, e := range d.unapplied() {
		remark("%s's write %s was answered ok, but the resource never applied it.", d.o.clean(e.client.name), d.value(e.Value))
	}
	switch n := len(d.others); n {
	case 0:
	case 1:
		remark("1 other client is not shown.")
	default:
		remark("%d other clients are not shown.", n)
	}
}

// unapplied returns the writes that were answered ok and that the resource,
// which records what it does, has not recorded; at most a few.
func (d *diagram) unapplied() []*operation {
	const most = 4
	var all []*operation
	for _, op := range d.writes {
		if op.ok {
			all = append(all, op)
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Index < all[j].Index })
	return all[:min(len(all), most)]
}
