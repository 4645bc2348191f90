package reports

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Figure is something that a run has measured.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // "ms", "1/s", "%", or "" for a plain number
	// Of is of how many observations the value is the mean, the least or the
	// greatest; 0 if it is a single one.
	Of int `json:"of,omitempty"`
	// Missing says why nothing could be measured; the value means nothing then.
	Missing string `json:"missing,omitempty"`
}

// String is the figure as people read it: "freed-after 504 ms".
func (f Figure) String() string {
	if f.Missing != "" {
		return f.Name + " not measured: " + f.Missing
	}
	s := f.Name + " " + f.value(f.Value)
	if f.Unit == "%" && f.Of > 0 {
		k := int(math.Round(f.Value * float64(f.Of) / 100))
		low, high := Wilson(k, f.Of)
		return s + fmt.Sprintf(" (%d of %d; 95 %%: %.1f to %.1f %%)", k, f.Of, 100*low, 100*high)
	}
	if f.Of > 1 {
		s += fmt.Sprintf(" (of %d)", f.Of)
	}
	return s
}

// Wilson is between what the rate of something lies that was seen in k of n
// independent cases, at a confidence of 95 %: the score interval of E. B. Wilson (Journal
// of the American Statistical Association 22, 1927).
func Wilson(k, n int) (low, high float64) {
	const z = 1.959964
	if n == 0 {
		return 0, 1
	}
	p, m := float64(k)/float64(n), float64(n)
	mid := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return max(mid-half, 0), min(mid+half, 1)
}

// value writes a value in the figure's unit, with three digits that count.
func (f Figure) value(v float64) string {
	decimals := 2
	switch {
	case f.Unit == "" && f.Of == 0 && v == math.Trunc(v): // a count
		decimals = 0
	case v >= 100 || v <= -100:
		decimals = 0
	case v >= 10 || v <= -10:
		decimals = 1
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if f.Unit == "1/s" {
		return s + "/s"
	}
	return strings.TrimSpace(s + " " + f.Unit)
}

// Figures lists figures in one line.
func Figures(all []Figure) string {
	parts := make([]string, len(all))
	for i, f := range all {
		parts[i] = f.String()
	}
	return strings.Join(parts, ", ")
}

// Figure returns the figure of that name, one that is missing if the run has none.
func (r *Run) Figure(name string) Figure {
	if i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Name == name }); i >= 0 {
		return r.Figures[i]
	}
	return Figure{Name: name, Missing: "the run does not measure it"}
}

// FigureTable writes a line for each figure of each group of equal runs: the
// median, and the least and the greatest of several. It writes nothing if
// nothing was measured.
func FigureTable(w io.Writer, runs []*Run, o Options) error {
	lines := [][]string{{"scenario", "backend", "resource", "figure", "median", "least", "greatest", "runs"}}
	for _, group := range Groups(runs) {
		for _, f := range group[0].Figures {
			var values []float64
			for _, r := range group {
				if g := r.Figure(f.Name); g.Missing == "" {
					values = append(values, g.Value)
				}
			}
			line := []string{group[0].Scenario, group[0].Backend, group[0].Resource, f.Name}
			if len(values) == 0 {
				line = append(line, "-", "-", "-")
			} else {
				slices.Sort(values)
				median := (values[(len(values)-1)/2] + values[len(values)/2]) / 2
				line = append(line, f.value(median), f.value(values[0]), f.value(values[len(values)-1]))
			}
			lines = append(lines, append(line, fmt.Sprintf("%d/%d", len(values), len(group))))
		}
	}
	if len(lines) == 1 {
		return nil
	}
	var b strings.Builder
	b.WriteString("\n")
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i := range line {
			line[i] = o.clean(line[i])
			widths[i] = max(widths[i], textWidth(line[i]))
		}
	}
	for _, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-textWidth(cell))
			switch {
			case i == len(line)-1:
				b.WriteString(pad + cell + "\n")
			case i >= 4: // a number
				b.WriteString(pad + cell + "  ")
			default:
				b.WriteString(cell + pad + "  ")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *textReport) figures() {
	if len(t.r.Figures) == 0 {
		return
	}
	fmt.Fprintln(t.w)
	for i, f := range t.r.Figures {
		head := "Measured"
		if i > 0 {
			head = ""
		}
		t.paragraph(head, f.String())
	}
}
