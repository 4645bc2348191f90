package matrix

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"net/url"
	"path"
	"slices"
	"strings"
)

//go:embed matrix.html
var page string

var pageTemplate = template.Must(template.New("matrix").Funcs(template.FuncMap{
	"columns": Columns,
	"strip":   strip,
	"line":    line,
	"link":    link,
	"nothing": func() string { return nothing },
}).Parse(page))

// HTML writes the table as one page that needs nothing else: each answer links to the
// page of a run that shows it, relative to the table's own folder.
func (t *Table) HTML(w io.Writer) error {
	return pageTemplate.Execute(w, struct {
		*Table
		Foot string
	}{t, t.foot()})
}

// Software are the servers that the row was measured on.
func (r *Row) Software() string { return r.software() }

// link is where the page of a run is, "" if there is no run.
func link(r Run) template.URL {
	if r.Dir == "" {
		return ""
	}
	// A folder of ours, whose name is no scheme.
	return template.URL((&url.URL{Path: "./" + path.Join(r.Dir, "page.html")}).String())
}

// Sizes of small pictures, in pixels.
const (
	stripWidth, stripHeight = 120, 16
	pad                     = 4
)

// The axis of times goes from one millisecond to half a minute, in logarithms: the same
// for all cells, so that locks can be compared by eye.
const leastMillis, mostMillis = 1, 30_000

// strip is a picture of times: a dot for each run, and a line at the median.
func strip(values []float64) template.HTML {
	if len(values) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="times of %d runs, from 1 ms to 30 s">`,
		stripWidth, stripHeight, len(values))
	fmt.Fprintf(&b, `<path class="axis" d="M%d %.1fH%d`, pad, float64(stripHeight)/2, stripWidth-pad)
	for _, ms := range []float64{1, 10, 100, 1000, 10_000} {
		fmt.Fprintf(&b, `M%.1f %dv4`, place(ms), stripHeight/2-2)
	}
	b.WriteString(`"/>`)
	for _, v := range values {
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="2.5"/>`, place(v), stripHeight/2)
	}
	median, _ := Median(values)
	fmt.Fprintf(&b, `<path class="median" d="M%.1f 1v%d"/></svg>`, place(median), stripHeight-2)
	return template.HTML(b.String()) // numbers of our own
}

// place is where a time is on the axis.
func place(ms float64) float64 {
	ms = min(max(ms, leastMillis), mostMillis)
	return pad + (stripWidth-2*pad)*math.Log(ms/leastMillis)/math.Log(float64(mostMillis)/leastMillis)
}

// line is a picture of how a rate varied in a run, from nothing to the greatest.
func line(series []float64) template.HTML {
	if len(series) < 2 {
		return ""
	}
	most := max(slices.Max(series), 1)
	var points []string
	for i, v := range series {
		points = append(points, fmt.Sprintf("%.1f,%.1f",
			pad+float64(stripWidth-2*pad)*float64(i)/float64(len(series)-1), float64(stripHeight-2)-(stripHeight-4)*v/most))
	}
	return template.HTML(fmt.Sprintf(
		`<svg class="spark" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="rate over the time of a run"><polyline points="%s"/></svg>`,
		stripWidth, stripHeight, strings.Join(points, " "))) // numbers of our own
}
