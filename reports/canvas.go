package reports

import (
	"fmt"
	"strings"
	"unicode"
)

// Options say how a text report is drawn.
type Options struct {
	Width int  // columns of the screen; 0 means 80, less than 60 counts as 60
	ASCII bool // draw with ASCII only
	Color bool // use ANSI colours: only for a terminal, and never with NO_COLOR
	// Embedded makes an SVG picture part of a page: it has no style of its own.
	Embedded bool
	// Service and Resource name what the lock and the resource are, e.g.
	// "redis" and "unfenced"; may be empty.
	Service, Resource string
}

func (o Options) width() int {
	if o.Width == 0 {
		return 80
	}
	return max(o.Width, 60)
}

// style is a colour; words and shapes never depend on it.
type style byte

const (
	plain style = iota
	bad         // violations
	good        // what held
	cold        // faults
	faint       // what is less important
)

var ansi = [...]string{plain: "", bad: "\x1b[1;31m", good: "\x1b[32m", cold: "\x1b[36m", faint: "\x1b[2m"}

// paint returns text in the style.
func (o Options) paint(s style, text string) string {
	if !o.Color || s == plain {
		return text
	}
	return ansi[s] + text + "\x1b[0m"
}

// canvas is one line of cells. A rune of two columns is followed by a cell
// with rune 0.
type canvas struct {
	cells  []rune
	styles []style
}

func newCanvas(width int) canvas {
	c := canvas{cells: make([]rune, width), styles: make([]style, width)}
	for i := range c.cells {
		c.cells[i] = ' '
	}
	return c
}

func (c canvas) set(x int, r rune, s style) {
	if x >= 0 && x < len(c.cells) {
		c.cells[x], c.styles[x] = r, s
	}
}

// text writes s from column x on; what does not fit is cut off.
func (c canvas) text(x int, s string, st style) {
	for _, r := range s {
		n := runeWidth(r)
		if x+n > len(c.cells) {
			return
		}
		c.set(x, r, st)
		if n == 2 {
			c.set(x+1, 0, st)
		}
		x += n
	}
}

func (c canvas) render(o Options) string {
	end := len(c.cells)
	for end > 0 && c.cells[end-1] == ' ' {
		end--
	}
	var b strings.Builder
	for i := 0; i < end; {
		j := i
		var run strings.Builder
		for ; j < end && c.styles[j] == c.styles[i]; j++ {
			if c.cells[j] != 0 {
				run.WriteRune(c.cells[j])
			}
		}
		b.WriteString(o.paint(c.styles[i], run.String()))
		i = j
	}
	return b.String()
}

// clean makes text from a history or a server fit for a terminal: what does
// not print, and what could reorder or hide other text, is escaped.
func (o Options) clean(s string) string {
	ok := func(r rune) bool {
		if o.ASCII {
			return r >= ' ' && r <= '~'
		}
		return r != unicode.ReplacementChar && unicode.IsPrint(r) && !unicode.In(r, unicode.Mn, unicode.Me, unicode.Mc)
	}
	bad := false
	for _, r := range s {
		bad = bad || !ok(r)
	}
	if !bad {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case ok(r):
			b.WriteRune(r)
		case r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// runeWidth is the number of columns of a printable rune: two for East Asian
// wide characters and pictures.
func runeWidth(r rune) int {
	switch {
	case r < 0x1100:
		return 1
	case r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

func textWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// cut shortens s to at most n columns, with a mark where it was cut.
func (o Options) cut(s string, n int) string {
	if textWidth(s) <= n {
		return s
	}
	mark := "…"
	if o.ASCII {
		mark = "~"
	}
	var b strings.Builder
	for _, r := range s {
		if n -= runeWidth(r); n < 1 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + mark
}

// wrap breaks text at spaces into lines of at most n columns.
func wrap(s string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case textWidth(line)+1+textWidth(word) <= n:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
