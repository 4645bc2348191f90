package harness

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/scenarios"
)

// told is a history of a lock that two of its clients wait for when it is released
// for the first time, and one for the second. Times are in ms.
var told = []struct {
	at      int64
	process string
	t       history.Type
	f       string
	value   string
	until   int64
}{
	{0, "A", history.Invoke, history.Acquire, "", 0},
	{5, "A", history.OK, history.Acquire, "", 905},
	{6, "B", history.Invoke, history.Acquire, "", 0},
	{7, "C", history.Invoke, history.Acquire, "", 0},
	{10, history.Harness, history.Info, countsEvent, `{"events":7,"asked":8000000}`, 0},
	{20, "A", history.Invoke, history.Release, "", 0},
	{25, "B", history.OK, history.Acquire, "", 825},
	{26, "A", history.OK, history.Release, "", 0},
	{27, "B", history.Info, history.Lost, "", 0},
	{30, history.Nemesis, history.Invoke, "kill", "", 0},
	{40, history.Nemesis, history.OK, "kill", "", 0},
	{60, "B", history.Invoke, history.Release, "", 0},
	{61, "B", history.OK, history.Release, "", 0},
	{65, "C", history.OK, history.Acquire, "", 0},
	{70, history.Harness, history.Info, countsEvent, `{"events":10,"asked":66000000}`, 0},
	{80, "C", history.Invoke, history.Release, "", 0},
	{81, "C", history.OK, history.Release, "", 0},
}

func decode(t *testing.T, most int64) *history.History {
	t.Helper()
	var lines strings.Builder
	for i, e := range told {
		if e.at > most {
			break
		}
		b, err := json.Marshal(history.Event{
			Index: int64(i), Time: e.at * 1e6, Process: e.process, Type: e.t, F: e.f, Key: "k",
			Value: json.RawMessage(e.value), Until: e.until * 1e6,
		})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(b, '\n'))
	}
	h, err := history.Decode(strings.NewReader(lines.String()), history.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestFigures(t *testing.T) {
	want := map[string]struct {
		value float64
		of    int
	}{
		"regranted-after":    {20, 0},
		"freed-after":        {25, 0},
		"losses":             {1, 0},
		"acquire":            {58, 3},
		"validity":           {800, 2},
		"grants-per-second":  {2 / 0.060, 3},
		"waiters":            {1.5, 2}, // the last release was after the counting
		"events-per-release": {1.5, 2},
	}
	for _, f := range figures(decode(t, math.MaxInt64), names()) {
		w, ok := want[f.Name]
		switch {
		case !ok && f.Missing == "":
			t.Errorf("%s, which this history cannot tell", f)
		case ok && (f.Missing != "" || math.Abs(f.Value-w.value) > 1e-6 || f.Of != w.of):
			t.Errorf("%s, want %v of %d", f, w.value, w.of)
		}
	}
}

// A history in which something did not happen has no figure of it, and says why.
func TestFiguresThatAreMissing(t *testing.T) {
	missing := map[string]bool{}
	for _, f := range figures(decode(t, 0), names()) {
		missing[f.Name] = f.Missing != ""
	}
	for _, name := range names() {
		if !missing[name] && name != "losses" { // there were none
			t.Errorf("%s is measured in a history of one invocation", name)
		}
	}
	if got := figures(decode(t, 0), []string{"of-a-later-version"}); len(got) != 0 {
		t.Errorf("an unknown figure is %v", got)
	}
}

// Everything that a scenario may ask for is measured.
func TestEveryFigureHasAGauge(t *testing.T) {
	for _, name := range names() {
		if gauges[name] == nil {
			t.Errorf("%s is not", name)
		}
	}
	if len(gauges) != len(names()) {
		t.Errorf("%d gauges for %d figures", len(gauges), len(names()))
	}
}

func names() []string {
	var all []string
	for _, f := range scenarios.Figures() {
		all = append(all, f.Name)
	}
	return all
}
