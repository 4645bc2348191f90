package plot_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports/plot"
)

var update = flag.Bool("update", false, "rewrite the expected pictures in testdata")

// recorded is a history of n turns of a client, each of 10 ms, with a fault in
// effect from the fifth to the tenth.
func recorded(t *testing.T, n int, fault string) *history.History {
	t.Helper()
	var b strings.Builder
	index, at := 0, 0
	add := func(ms int, process, typ, f, more string) {
		at = max(at+1, ms*1e6)
		fmt.Fprintf(&b, `{"index":%d,"time":%d,"process":%q,"type":%q,"f":%q%s}`+"\n", index, at, process, typ, f, more)
		index++
	}
	for i := range n {
		ms := i*10 + 1
		switch i {
		case 5:
			add(ms, "nemesis", "ok", fault, `,"value":{"on":["A"]}`)
		case 10:
			add(ms, "nemesis", "info", fault, `,"value":{"on":["A"]}`)
		}
		add(ms, "A", "invoke", "acquire", `,"key":"k"`)
		add(ms+1+i%3, "A", "ok", "acquire", `,"key":"k"`)
		add(ms+6, "A", "invoke", "release", `,"key":"k"`)
		typ := "ok"
		if i%7 == 3 {
			typ = "fail"
		}
		add(ms+7, "A", typ, "release", `,"key":"k"`)
	}
	h, err := history.Decode(strings.NewReader(b.String()), history.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestPictures(t *testing.T) {
	h := recorded(t, 40, "pause")
	for _, kind := range plot.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			var b strings.Builder
			drawn, err := plot.Draw(&b, kind, h, plot.Options{})
			if err != nil || !drawn {
				t.Fatal(drawn, err)
			}
			wellFormed(t, b.String())
			path := filepath.Join("testdata", string(kind)+".svg")
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("the picture differs from %s: look at it, and run go test with -update", path)
			}
		})
	}
}

// Of the 40 releases of the history 6 failed: the counts of the throughput are
// those of the history.
func TestThroughputCounts(t *testing.T) {
	h := recorded(t, 40, "pause")
	ok, fail := 0, 0
	for i := range h.Ops {
		switch h.Ops[i].Outcome {
		case history.Done:
			ok++
		case history.Failed:
			fail++
		}
	}
	var b strings.Builder
	if _, err := plot.Draw(&b, plot.LatencyRaw, h, plot.Options{}); err != nil {
		t.Fatal(err)
	}
	marks := func(d string) int { return strings.Count(d, "M") }
	paths := regexp.MustCompile(`stroke="#(1f6feb|d1242f)" stroke-width="2" fill="none" d="([^"]*)"`).FindAllStringSubmatch(b.String(), -1)
	if len(paths) != 2 || marks(paths[0][2]) != ok || marks(paths[1][2]) != fail {
		t.Errorf("the picture has other points than %d ok and %d failed operations", ok, fail)
	}
}

func TestNothingToDraw(t *testing.T) {
	empty := &history.History{}
	for _, kind := range plot.Kinds {
		var b strings.Builder
		if drawn, err := plot.Draw(&b, kind, empty, plot.Options{}); drawn || err != nil || b.Len() > 0 {
			t.Errorf("%s: drawn %v, error %v, %d bytes", kind, drawn, err, b.Len())
		}
	}
	if _, err := plot.Draw(io.Discard, "no such plot", recorded(t, 1, "pause"), plot.Options{}); err == nil {
		t.Error("an unknown plot is no error")
	}
}

func TestFaultNamesAreText(t *testing.T) {
	h := recorded(t, 20, "</text><script>alert(1)</script>")
	for _, kind := range plot.Kinds {
		var b strings.Builder
		if _, err := plot.Draw(&b, kind, h, plot.Options{Embedded: true}); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, b.String())
		if strings.Contains(b.String(), "<script") || strings.Contains(b.String(), "<style") {
			t.Errorf("%s: a name became markup, or there is a style", kind)
		}
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}
