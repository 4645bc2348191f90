package reports_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/lockcheck/lockcheck/reports"
)

func TestFigure(t *testing.T) {
	for _, c := range []struct {
		figure reports.Figure
		want   string
	}{
		{reports.Figure{Name: "freed-after", Value: 1004.3, Unit: "ms"}, "freed-after 1004 ms"},
		{reports.Figure{Name: "acquire", Value: 12.34, Unit: "ms", Of: 3}, "acquire 12.3 ms (of 3)"},
		{reports.Figure{Name: "events-per-release", Value: 1, Of: 33}, "events-per-release 1.00 (of 33)"},
		{reports.Figure{Name: "losses", Value: 1}, "losses 1"},
		{reports.Figure{Name: "grants-per-second", Value: 4.444, Unit: "1/s", Of: 9}, "grants-per-second 4.44/s (of 9)"},
		{reports.Figure{Name: "waiters", Missing: "the lock was never released"}, "waiters not measured: the lock was never released"},
	} {
		if got := c.figure.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// measured are three equal runs, of which one could not measure, and one of another
// scenario that measures nothing.
func measured() []*reports.Run {
	var runs []*reports.Run
	for _, v := range []float64{1004, 0, 1010} {
		r := run("etcd", "unfenced", clean())
		r.Figures = []reports.Figure{{Name: "freed-after", Value: v, Unit: "ms"}, {Name: "waiters", Missing: "nobody waited"}}
		if v == 0 {
			r.Figures[0] = reports.Figure{Name: "freed-after", Unit: "ms", Missing: "no fault was in effect"}
		}
		runs = append(runs, r)
	}
	return append(runs, run("redis", "unfenced", clean()))
}

func TestFigureTable(t *testing.T) {
	var b bytes.Buffer
	if err := reports.FigureTable(&b, measured(), reports.Options{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "figures.txt", b.Bytes())
	b.Reset()
	if err := reports.FigureTable(&b, measured()[3:], reports.Options{}); err != nil || b.Len() > 0 {
		t.Errorf("of runs that measure nothing: %q, %v", b.String(), err)
	}
}

func TestFiguresAreInTheReportAndInJSON(t *testing.T) {
	r := measured()[0]
	var b bytes.Buffer
	if err := reports.Text(&b, r, clean(), nil, reports.Options{}); err != nil {
		t.Fatal(err)
	}
	if want := "\nMeasured  freed-after 1004 ms\n          waiters not measured: nobody waited\n"; !bytes.Contains(b.Bytes(), []byte(want)) {
		t.Errorf("the report has no %q:\n%s", want, b.String())
	}
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again reports.Run
	if err := json.Unmarshal(line, &again); err != nil {
		t.Fatal(err)
	}
	if got := again.Figure("freed-after"); got != r.Figures[0] {
		t.Errorf("%+v became %+v", r.Figures[0], got)
	}
	if got := again.Figure("acquire"); got.Missing == "" {
		t.Errorf("a figure that was not asked for is %s", got)
	}
}

// The bounds are those of published tables of the score interval.
func TestAPartIsToldWithItsInterval(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{{0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {5, 10, 0.2366, 0.7634}, {18, 100, 0.1170, 0.2667}, {0, 0, 0, 1}} {
		low, high := reports.Wilson(c.k, c.n)
		if math.Abs(low-c.low) > 5e-4 || math.Abs(high-c.high) > 5e-4 {
			t.Errorf("Wilson(%d, %d) is %.4f to %.4f, want %.4f to %.4f", c.k, c.n, low, high, c.low, c.high)
		}
	}
	f := reports.Figure{Name: "lost-updates", Unit: "%", Value: 18, Of: 100}
	if got, want := f.String(), "lost-updates 18.0 % (18 of 100; 95 %: 11.7 to 26.7 %)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
