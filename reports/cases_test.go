package reports_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
)

// cases are one of each outcome.
func cases(t *testing.T) []reports.Case {
	t.Helper()
	text := func(r *reports.Run, rep *checker.Report, events []history.Event) reports.Case {
		var b bytes.Buffer
		if err := reports.Text(&b, r, rep, events, reports.Options{Width: 100}); err != nil {
			t.Fatal(err)
		}
		c := reports.JudgedBy(r)
		c.Text = b.String()
		return c
	}
	story := gcPause(false, false)
	rep := doubleHold(story, true, checker.NotApplicable, checker.Violated, 0)
	broken := run("redis", "fenced", &checker.Report{})
	broken.Repeat = 2
	broken.Status, broken.Reasons = reports.Error, []string{"redis-server did not start: port 6379 is taken\nclient A <did> not start & \x1b[31mexited"}
	undecided := run("etcd", "fenced", clean())
	undecided.Status, undecided.Reasons = reports.Inconclusive, []string{"100 % of a|b: the fault pause did not take effect"}
	passed := run("etcd", "fenced", clean())
	odd := run("redis", "unfenced", clean())
	expected := text(odd, clean(), nil)
	expected.Text += "]]> \x00\x1b and no XML\n"
	expected.Outcome, expected.Message = reports.Failed, "not as expected: mutex is held, expected violated"
	return []reports.Case{
		text(run("redis", "unfenced", rep), rep, story),
		expected,
		text(broken, nil, nil),
		text(undecided, nil, nil),
		reports.JudgedBy(passed),
		{Title: "backend postgres-session", Outcome: reports.Skipped, Message: "no program postgres #1 was found"},
	}
}

func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	if err := reports.JUnit(&b, "lockcheck run", cases(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "junit.xml", b.Bytes())
	// What parsers of XML refuse must not be in it.
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestGitHub(t *testing.T) {
	var b bytes.Buffer
	if err := reports.GitHubAnnotations(&b, cases(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "github-annotations.txt", b.Bytes())
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "::error ") && !strings.HasPrefix(line, "::notice ") {
			t.Errorf("not a command: %q", line)
		}
	}
	b.Reset()
	if err := reports.GitHubSummary(&b, "lockcheck run", cases(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "github-summary.md", b.Bytes())
}

func TestGitHubLimits(t *testing.T) {
	all := cases(t)[:1]
	all[0].Text = strings.Repeat("```x\n", 50_000)
	for len(all) < 30 {
		all = append(all, all[0])
	}
	var b bytes.Buffer
	if err := reports.GitHubAnnotations(&b, all); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 10 || !strings.Contains(b.String(), "and 21 more") {
		t.Errorf("%d annotations, want 10 of which the last counts the others:\n%s", n, b.String())
	}
	b.Reset()
	if err := reports.GitHubSummary(&b, "many", all); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 1<<20 || !strings.Contains(b.String(), "more are in the folders") {
		t.Errorf("the summary has %d bytes", b.Len())
	}
	if !strings.Contains(b.String(), "\n````text\n") {
		t.Error("the fence occurs in the text")
	}
}

func TestTAP(t *testing.T) {
	var b bytes.Buffer
	if err := reports.TAP(&b, cases(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "tap.txt", b.Bytes())
}

func TestRunSchema(t *testing.T) {
	const file = "../docs/run.schema.json"
	if *update {
		if err := os.WriteFile(file, reports.RunSchema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(reports.RunSchema(), want) {
		t.Errorf("%s is not what the program says: run with -update", file)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(want, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(change func(map[string]any)) error {
		t.Helper()
		var b bytes.Buffer
		c := cases(t)[0].Run
		c.Findings = []checker.Finding{{Code: checker.Late, Why: "why", Count: 3}}
		if err := reports.JSON(&b, c); err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(b.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		change(v)
		return resolved.Validate(v)
	}
	if err := valid(func(map[string]any) {}); err != nil {
		t.Error(err)
	}
	if err := valid(func(v map[string]any) { v["later"] = 7 }); err != nil {
		t.Error("a field of a later version:", err)
	}
	for what, change := range map[string]func(map[string]any){
		"no status":       func(v map[string]any) { delete(v, "status") },
		"another status":  func(v map[string]any) { v["status"] = "passed" },
		"another schema":  func(v map[string]any) { v["schema"] = "lockcheck/v2" },
		"time as text":    func(v map[string]any) { v["duration_ms"] = "7 ms" },
		"another verdict": func(v map[string]any) { v["properties"].(map[string]any)["mutex"].(map[string]any)["verdict"] = "bad" },
	} {
		if valid(change) == nil {
			t.Errorf("%s is valid", what)
		}
	}
	for _, c := range cases(t) {
		if c.Run == nil {
			continue
		}
		b, err := json.Marshal(c.Run)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(v); err != nil {
			t.Errorf("%s\n%s", err, b)
		}
	}
}
