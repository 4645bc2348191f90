package reports_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run with -update to make it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run with -update and look at the picture)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

type picture struct {
	name   string
	events []history.Event
	rep    *checker.Report
	o      reports.Options
}

func pictures() []picture {
	unfenced, tokens, fenced, aborted, busy := gcPause(false, false), gcPause(true, false), gcPause(true, true), xact(), long()
	return []picture{
		{"unfenced", unfenced, doubleHold(unfenced, true, checker.NotApplicable, checker.Violated, 0), reports.Options{Service: "redis", Resource: "unfenced"}},
		{"tokens", tokens, doubleHold(tokens, true, checker.Held, checker.Violated, 0), reports.Options{Service: "etcd", Resource: "unfenced"}},
		{"fenced", fenced, doubleHold(fenced, true, checker.Held, checker.Held, 0), reports.Options{Service: "etcd", Resource: "fenced"}},
		{"xact", aborted, doubleHold(aborted, false, checker.NotApplicable, checker.Held, 0), reports.Options{Service: "postgres-xact", Resource: "postgres"}},
		{"control", control(), clean(), reports.Options{Service: "memory", Resource: "fenced"}},
		{"long", busy, doubleHold(busy, true, checker.NotApplicable, checker.Held, 1), reports.Options{}},
		{"long-control", busy, nil, reports.Options{}},
	}
}

func TestDiagrams(t *testing.T) {
	for _, p := range pictures() {
		for _, as := range []struct {
			name string
			o    reports.Options
		}{{"80", reports.Options{}}, {"120", reports.Options{Width: 120}}, {"80-ascii", reports.Options{ASCII: true}}} {
			t.Run(p.name+"/"+as.name, func(t *testing.T) {
				o := as.o
				o.Service, o.Resource = p.o.Service, p.o.Resource
				var b bytes.Buffer
				if err := reports.Diagram(&b, p.events, p.rep, o); err != nil {
					t.Fatal(err)
				}
				checkScreen(t, b.String(), max(o.Width, 80), o.ASCII)
				golden(t, p.name+"-"+as.name+".txt", b.Bytes())
			})
		}
	}
}

// checkScreen fails if text would not fit on a screen, or would do more than
// show characters there.
func checkScreen(t *testing.T, text string, width int, ascii bool) {
	t.Helper()
	for n, line := range strings.Split(text, "\n") {
		if w := utf8.RuneCountInString(line); w > width {
			t.Errorf("line %d has %d columns, more than %d: %q", n+1, w, width, line)
		}
		for _, r := range line {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || ascii && r > '~' {
				t.Errorf("line %d has the character %q: %q", n+1, r, line)
			}
		}
	}
}

func TestTextReports(t *testing.T) {
	pics := pictures()
	broken := run("redis", "fenced", &checker.Report{})
	broken.Status, broken.Reasons = reports.Error, []string{"redis-server did not start: port 6379 is taken\nclient A did not start"}
	undecided := run("etcd", "fenced", clean())
	undecided.Status, undecided.Reasons = reports.Inconclusive, []string{"the fault pause did not take effect on A: its state is S, not T", "B never acquired"}
	contested := clean()
	contested.Properties[0].Second = &checker.Opinion{Outcome: checker.Disagrees, Detail: "it found no order of the operations"}
	contested.Findings = []checker.Finding{{Code: checker.Late, Why: "A claimed the lock for 5.6 ms after its lease had ended.", Count: 3}}
	contested.Assumptions = []checker.Finding{{Code: "order", Why: "events 7 and 8 have the same time"}}
	doubt := run("etcd", "fenced", contested)
	doubt.Status, doubt.Reasons = reports.Error, []string{"mutex: porcupine disagrees: it found no order of the operations"}
	broke := doubleHold(pics[1].events, true, checker.Held, checker.Held, 0)
	broke.Properties[0].FollowsFrom = checker.Lease
	broke.Properties[1].Verdict, broke.Properties[1].Why = checker.Violated, "B was granted \"k\" at 203.4 ms, while A's lease stood until 999.0 ms."
	for _, c := range []struct {
		name   string
		r      *reports.Run
		rep    *checker.Report
		events []history.Event
		o      reports.Options
	}{
		{"contested", doubt, contested, nil, reports.Options{}},
		{"lease", run("etcd", "fenced", broke), broke, nil, reports.Options{}},
		{"unfenced", run("redis", "unfenced", pics[0].rep), pics[0].rep, pics[0].events, reports.Options{}},
		{"fenced-120", run("etcd", "fenced", pics[2].rep), pics[2].rep, pics[2].events, reports.Options{Width: 120}},
		{"control-ascii", run("memory", "fenced", pics[4].rep), pics[4].rep, pics[4].events, reports.Options{ASCII: true}},
		{"colour", run("etcd", "fenced", pics[2].rep), pics[2].rep, pics[2].events, reports.Options{Color: true}},
		{"error", broken, nil, nil, reports.Options{}},
		{"inconclusive", undecided, nil, nil, reports.Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := reports.Text(&b, c.r, c.rep, c.events, c.o); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			if !c.o.Color {
				// The last two lines are there to be copied.
				checkScreen(t, text[:strings.LastIndex(text, "\nFiles")], max(c.o.Width, 80), c.o.ASCII)
			}
			if verdict := strings.ToUpper(string(c.r.Status)); !strings.Contains(strings.SplitN(text, "\n", 2)[0], verdict) {
				t.Errorf("the first line does not say %s", verdict)
			}
			golden(t, "report-"+c.name+".txt", b.Bytes())
		})
	}
}

// The picture may say ACCEPTED (stale) only where the checker has found so.
func TestDiagramLeavesTheVerdictToTheChecker(t *testing.T) {
	draw := func(events []history.Event, rep *checker.Report) string {
		var b bytes.Buffer
		if err := reports.Diagram(&b, events, rep, reports.Options{}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	events := gcPause(true, false)
	if text := draw(events, doubleHold(events, true, checker.Held, checker.Violated, 0)); !strings.Contains(text, "ACCEPTED (stale)") {
		t.Errorf("fence is violated, and nothing is said to be stale:\n%s", text)
	}
	for _, verdict := range []checker.Verdict{checker.Held, checker.Unknown, checker.NotApplicable} {
		if text := draw(events, doubleHold(events, true, checker.Held, verdict, 0)); strings.Contains(text, "ACCEPTED (stale)") {
			t.Errorf("fence is %s, and a write is said to be stale:\n%s", verdict, text)
		}
	}
	if text := draw(control(), nil); strings.Contains(text, "stale") || strings.Contains(text, "two believe") {
		t.Errorf("the control looks guilty:\n%s", text)
	}
}

// The harness learns that a client runs again a little later than the client
// acts. A frozen client that writes would be a riddle.
func TestAClientThawsBeforeItActs(t *testing.T) {
	events := gcPause(false, false)
	healed := find(events, history.Nemesis, history.Info, "pause", 0)
	answered := find(events, "A", history.OK, history.Write, 1)
	heal := events[healed]
	copy(events[healed:], events[healed+1:answered+1])
	events[answered] = heal
	for i := healed; i <= answered; i++ {
		events[i].Index = i
	}
	events[answered].Time = events[answered-1].Time + 1
	var b bytes.Buffer
	if err := reports.Diagram(&b, events, doubleHold(events, true, checker.NotApplicable, checker.Violated, 0), reports.Options{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	thaw, late := strings.Index(text, "THAWED"), strings.Index(text, "late-of-A")
	if thaw < 0 || late < thaw || strings.Count(text, "THAWED") != 1 {
		t.Errorf("A does not thaw, once, before its write:\n%s", text)
	}
}

func TestHostileTextIsEscaped(t *testing.T) {
	const hostile = "\x1b[2J\x07\u202eevil\x00\n\u0301\xff"
	s := &story{}
	s.op(1, 2, hostile, history.Acquire, nil)
	s.add(3, hostile, history.Invoke, history.Write, value(hostile))
	s.add(4, hostile, history.Info, history.Write, failure(hostile))
	s.add(5, history.Nemesis, history.OK, hostile, value(map[string]any{"on": hostile}))
	s.add(6, "B", history.Invoke, hostile, nil)
	s.add(7, "B", history.Fail, hostile, failure(hostile))
	s.add(8, history.Resource, history.OK, history.Write, func(e *history.Event) { e.Client = "B"; e.Value = json.RawMessage(hostile) })
	rep := &checker.Report{Properties: []checker.Property{{Name: hostile, Verdict: checker.Violated, Why: hostile}}}
	r := run(hostile, hostile, rep)
	r.Scenario, r.Dir, r.Replay = hostile, hostile, hostile
	for _, o := range []reports.Options{{}, {ASCII: true}} {
		var b bytes.Buffer
		if err := errors.Join(reports.Text(&b, r, rep, s.events, o), reports.Table(&b, []*reports.Run{r}, o)); err != nil {
			t.Fatal(err)
		}
		checkScreen(t, b.String(), 1000, o.ASCII)
		if strings.ContainsAny(b.String(), "\u202e\u0301\uFFFD") {
			t.Errorf("text that hides other text came through:\n%s", b.String())
		}
	}
}

func TestJSONHasTheFieldsThatProgramsRelyOn(t *testing.T) {
	events := gcPause(true, true)
	r := run("etcd", "fenced", doubleHold(events, true, checker.Held, checker.Held, 0))
	var b bytes.Buffer
	if err := reports.JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 1 || !strings.HasSuffix(b.String(), "\n") {
		t.Errorf("%d lines, want one", n)
	}
	var got struct {
		Schema, Scenario, Backend, Resource, Status, Dir string
		Seed                                             *int64
		Duration                                         float64 `json:"duration_ms"`
		TTL                                              float64 `json:"ttl_ms"`
		Versions                                         map[string]string
		Properties                                       map[string]struct {
			Verdict string
			Witness *struct{ Events []int64 }
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Schema != "lockcheck/v1" || got.Scenario != "gc-pause" || got.Backend != "etcd" || got.Resource != "fenced" ||
		got.Status != "violation" || got.Dir == "" || got.Seed == nil || got.Duration != 268 || got.TTL != 200 || got.Versions["etcd"] != "7.0.15" {
		t.Errorf("%+v", got)
	}
	if p := got.Properties["mutex"]; p.Verdict != "violated" || p.Witness == nil || len(p.Witness.Events) != 4 {
		t.Errorf("mutex: %+v", p)
	}
	if p := got.Properties["fence"]; p.Verdict != "held" || p.Witness != nil {
		t.Errorf("fence: %+v", p)
	}
	var back reports.Run
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Duration != r.Duration || back.Status != r.Status || back.TTL != r.TTL || back.Verdict("mutex") != checker.Violated {
		t.Errorf("read back: %+v, %v", back, err)
	}

	b.Reset()
	if err := reports.JSON(&b, &reports.Run{Status: reports.Error}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"schema":"lockcheck/v1"`, `"properties":{}`, `"versions":{}`, `"duration_ms":0`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("a run without anything lacks %s: %s", want, b.String())
		}
	}
}

func TestARunOfAnotherSchemaIsRefused(t *testing.T) {
	var r reports.Run
	if err := json.Unmarshal([]byte(`{"schema":"lockcheck/v9"}`), &r); err == nil || !strings.Contains(err.Error(), "lockcheck/v9") {
		t.Errorf("error %v", err)
	}
}

func TestOutline(t *testing.T) {
	events := gcPause(true, false)
	for _, c := range []struct {
		rep  *checker.Report
		want string
	}{
		{doubleHold(events, true, checker.Held, checker.Violated, 0), "mutex, fence violated"},
		{doubleHold(events, true, checker.Unknown, checker.Held, 0), "mutex violated; token unknown"},
		{clean(), "mutex, lease, token, fence held"},
		{&checker.Report{}, "nothing judged"},
	} {
		var r reports.Run
		r.SetReport(c.rep)
		if got := r.Outline(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	var r reports.Run
	r.SetReport(clean())
	if r.Verdict("mutex") != checker.Held || r.Verdict("state") != reports.NotChecked {
		t.Errorf("mutex %s, state %s", r.Verdict("mutex"), r.Verdict("state"))
	}
}

func TestTableAndSummary(t *testing.T) {
	unfenced, fenced := gcPause(false, false), gcPause(true, true)
	var runs []*reports.Run
	for i := range 3 {
		r := run("redis", "unfenced", doubleHold(unfenced, true, checker.NotApplicable, checker.Violated, 0))
		r.Duration = time.Duration(260+i) * time.Millisecond
		runs = append(runs, r)
		f := run("etcd", "fenced", doubleHold(fenced, true, checker.Held, checker.Held, 0))
		if i == 2 {
			f = run("etcd", "fenced", clean())
		}
		runs = append(runs, f)
	}
	c := run("memory", "fenced", clean())
	c.Scenario = "no-fault"
	e := run("postgres-xact", "postgres", &checker.Report{})
	runs = append(runs, c, e)
	var b bytes.Buffer
	if err := reports.Table(&b, runs, reports.Options{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", b.Bytes())

	var redis []*reports.Run
	for _, r := range runs {
		if r.Backend == "redis" {
			redis = append(redis, r)
		}
	}
	for _, s := range []struct{ got, want string }{
		{reports.Summary(redis, "mutex"), "3 of 3 reproduced: mutex violated; median 261.0 ms."},
		{reports.Summary(append(redis[:2:2], e), "mutex"), "2 of 3 reproduced: mutex violated, 1 inconclusive; median 261.0 ms."},
		{reports.Summary([]*reports.Run{c, c}, ""), "2 of 2 passed; median 268.0 ms."},
		{reports.Summary([]*reports.Run{c, redis[0]}, ""), "1 of 2 passed, 1 violation; median 264.0 ms."},
		{reports.Summary(nil, ""), "No run."},
	} {
		if s.got != s.want {
			t.Errorf("got  %s\nwant %s", s.got, s.want)
		}
	}
}

// A witness stays in the picture however much the same clients do afterwards,
// and the picture stays small.
func TestDiagramOfALongHistoryKeepsTheWitness(t *testing.T) {
	const turns = 20_000
	s := &story{events: gcPause(false, false)}
	rep := doubleHold(s.events, true, checker.NotApplicable, checker.Violated, 0)
	for i := range turns {
		at := 300 + float64(i)
		s.op(at+0.1, at+0.2, "A", history.Acquire, lease(200))
		s.op(at+0.3, at+0.4, "A", history.Release, nil)
	}
	var b bytes.Buffer
	if err := reports.Diagram(&b, s.events, rep, reports.Options{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"FROZEN", "A's lease ends", "THAWED", "ACCEPTED (stale)", fmt.Sprintf("… %d operations …", 2*turns-1)} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	if n := strings.Count(text, "\n"); n > 50 || t.Failed() {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

func BenchmarkDiagram(b *testing.B) {
	s := &story{events: gcPause(false, false)}
	rep := doubleHold(s.events, true, checker.NotApplicable, checker.Violated, 0)
	for i := len(s.events); i < 1_000_000; i = len(s.events) {
		at := 300 + float64(i)
		s.op(at+0.1, at+0.2, fmt.Sprint(i/2%50), history.Acquire, lease(200))
		s.op(at+0.3, at+0.4, fmt.Sprint(i/2%50), history.Release, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := reports.Diagram(io.Discard, s.events, rep, reports.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// Whatever is in a history, and however it is cut, the picture can be drawn
// and fits.
func TestDiagramOfDisorder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	whole := pictures()[:5]
	for range 50 {
		for _, p := range whole {
			events := slices.Clone(p.events)
			for range rng.IntN(8) {
				at := rng.IntN(len(events))
				switch rng.IntN(4) {
				case 0:
					events = slices.Delete(events, at, at+1)
				case 1:
					events[at].Type = []history.Type{history.OK, history.Fail, history.Info, history.Invoke}[rng.IntN(4)]
				case 2:
					events[at].Process = []string{"A", "B", "C", history.Resource, history.Nemesis}[rng.IntN(5)]
				case 3:
					events[at].F = []string{"acquire", "release", "write", "read", "check", "lost", "renew", "pause"}[rng.IntN(8)]
				}
			}
			for _, width := range []int{1, 80, 200} {
				var b bytes.Buffer
				if err := reports.Diagram(&b, events, p.rep, reports.Options{Width: width}); err != nil {
					t.Fatal(err)
				}
				checkScreen(t, b.String(), max(width, 60)+60, false) // the remarks below it are not cut
			}
		}
	}
	var b bytes.Buffer
	if err := reports.Diagram(&b, nil, nil, reports.Options{}); err != nil || b.Len() == 0 {
		t.Errorf("nothing is said of an empty history: %v", err)
	}
}

// A run can end after its faults, before any client did anything.
func TestDiagramWithoutClients(t *testing.T) {
	events := []history.Event{
		{Index: 1, Time: 10, Process: history.Nemesis, Type: history.Info, F: "pause", Value: json.RawMessage(`{"on":["redis"]}`)},
	}
	var b strings.Builder
	if err := reports.Diagram(&b, events, nil, reports.Options{Service: "redis"}); err != nil || !strings.Contains(b.String(), "no client") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// The words are written down twice, since this package imports nothing of ours.
func TestWordsAreTheCheckers(t *testing.T) {
	want := []string{checker.Mutex, checker.Lease, checker.Token, checker.Fence, checker.State, checker.Release, checker.Liveness}
	if got := scenarios.Properties(); !slices.Equal(got, want) {
		t.Errorf("properties %v, want %v", got, want)
	}
	want = []string{string(checker.Held), string(checker.Violated), string(checker.NotApplicable), scenarios.Any}
	if got := scenarios.Verdicts(); !slices.Equal(got, want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
}
