package reports_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
)

// The forms of a diagram for documents and programs; the text form has tests of
// its own.
func TestForms(t *testing.T) {
	unfenced := gcPause(false, false)
	crowded := long()
	for _, c := range []struct {
		name   string
		events []history.Event
		rep    *checker.Report
	}{
		{"unfenced", unfenced, doubleHold(unfenced, true, checker.NotApplicable, checker.Violated, 0)},
		{"control", control(), clean()},
		{"long", crowded, doubleHold(crowded, true, checker.NotApplicable, checker.Violated, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := reports.Options{Service: "redis", Resource: "unfenced"}
			var mermaid, svg strings.Builder
			if err := reports.Mermaid(&mermaid, c.events, c.rep, o); err != nil {
				t.Fatal(err)
			}
			golden(t, c.name+".mmd", []byte(mermaid.String()))
			if err := reports.SVG(&svg, c.events, c.rep, o); err != nil {
				t.Fatal(err)
			}
			wellFormed(t, svg.String())
			golden(t, c.name+".svg", []byte(svg.String()))
		})
	}
}

// wellFormed checks that a picture is one XML document.
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

func TestSequenceJSON(t *testing.T) {
	events := gcPause(true, true)
	rep := doubleHold(events, true, checker.Held, checker.Held, 0)
	var out strings.Builder
	if err := reports.SequenceJSON(&out, run("etcd", "fenced", rep), events, rep, reports.Options{}); err != nil {
		t.Fatal(err)
	}
	var seq reports.Sequence
	if err := json.Unmarshal([]byte(out.String()), &seq); err != nil {
		t.Fatal(err)
	}
	if seq.Run == nil || seq.Run.Backend != "etcd" {
		t.Error("the run is not in it")
	}
	both, rejected := 0, false
	for _, row := range seq.Rows {
		if row.Both {
			both++
			if len(row.Holds)+len(row.Frozen) < 2 {
				t.Errorf("both hold in a row where %v hold and %v are frozen", row.Holds, row.Frozen)
			}
		}
		for _, m := range row.Marks {
			rejected = rejected || m.From == "resource" && m.To == "client A" && m.Text == "REJECTED (stale)"
		}
	}
	if both == 0 || !rejected {
		t.Errorf("%d rows with two holders, rejected write told: %v", both, rejected)
	}
}

// Texts of a history do not become statements of Mermaid or tags of SVG.
func TestFormsEscape(t *testing.T) {
	events := gcPause(false, false)
	evil := "A\"/><script>alert(1)</script>;\nend\nL0->>L1: %%"
	for i := range events {
		if events[i].Process == "A" {
			events[i].Process = evil
		}
		if events[i].Client == "A" {
			events[i].Client = evil
		}
	}
	var mermaid, svg strings.Builder
	if err := reports.Mermaid(&mermaid, events, nil, reports.Options{Service: evil}); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(mermaid.String()), "\n")[1:] {
		words := strings.Fields(line)
		switch {
		case words[0] == "participant", words[0] == "Note", words[0] == "rect", line == "    end", strings.Contains(words[0], ">>L"):
		default:
			t.Errorf("an unknown statement: %s", line)
		}
		if strings.ContainsAny(line, "<\"%") || strings.Contains(line, "script>") {
			t.Errorf("not escaped: %s", line)
		}
	}
	if err := reports.SVG(&svg, events, nil, reports.Options{Service: evil, Resource: evil}); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, svg.String())
	if strings.Contains(svg.String(), "<script") {
		t.Error("a name became a tag")
	}
}
