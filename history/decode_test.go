package history

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unsafe"
)

var update = flag.Bool("update", false, "rewrite golden files")

func mustDecode(t *testing.T, text string) *History {
	t.Helper()
	h, err := Decode(strings.NewReader(text), ReadOptions{Name: "h"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestOpIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Op{}); n > 56 {
		t.Errorf("Op has %d bytes, want at most 56", n)
	}
}

func TestGolden(t *testing.T) {
	h, err := Open("testdata/gc-pause.jsonl", ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/gc-pause.golden"
	got := dump(h)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("decoded:\n%s\nwant:\n%s", got, want)
	}
}

// The golden history, written again by Select, is the same bytes: what decodes
// is what encodes.
func TestSelectAllIsIdentity(t *testing.T) {
	in, err := os.ReadFile("testdata/gc-pause.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	n, err := Select(bytes.NewReader(in), &out, ReadOptions{}, func(Event) bool { return true })
	if err != nil || n != 20 {
		t.Fatal(n, err)
	}
	if !bytes.Equal(in, out.Bytes()) {
		t.Errorf("got\n%s\nwant\n%s", out.Bytes(), in)
	}
}

func TestSelectRenumbers(t *testing.T) {
	f, err := os.Open("testdata/gc-pause.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	// Without the header and A's first write, but with what the resource said of it.
	n, err := Select(f, &out, ReadOptions{}, func(e Event) bool { return e.Index != 0 && e.Index != 3 && e.Index != 5 })
	if err != nil || n != 17 {
		t.Fatal(n, err)
	}
	h := mustDecode(t, out.String())
	if h.Broken != nil {
		t.Errorf("the part breaks assumptions: %v", h.Assumptions)
	}
	if got := h.Applied[0].Op; got != -1 {
		t.Errorf("a write that was left out is still referred to, as %d", got)
	}
	second := h.Applied[1].Op
	i := slices.IndexFunc(h.Ops, func(o Op) bool { return o.Index == second })
	if i < 0 || h.Ops[i].Call != 7000 || h.Ops[i].Kind != KindWrite {
		t.Errorf("the resource's second event refers to event %d, want A's second write", second)
	}
}

func TestSelectReportsWriteErrors(t *testing.T) {
	_, err := Select(strings.NewReader(`{"index":0,"time":0,"process":"A","type":"info","f":"lost"}`), failingWriter{}, ReadOptions{},
		func(Event) bool { return true })
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

const pair = `{"index":0,"time":10,"process":"A","type":"invoke","f":"acquire","key":"k"}
{"index":1,"time":20,"process":"A","type":"ok","f":"acquire","key":"k"}
`

func TestSyntaxErrors(t *testing.T) {
	event := func(s string) string { return pair + "\n" + s + "\n" } // s is on line 4
	for _, c := range []struct {
		name, in string
		o        ReadOptions
		want     string
	}{
		{"not JSON", event(`{"index":2,"time":30,"process":"A","type":"invoke","f":oops}`), ReadOptions{},
			`h:4: not JSON: invalid character 'o' looking for beginning of value, at byte 56`},
		{"garbage in the middle", event("\x00\x01\x02"), ReadOptions{}, `h:4: not JSON: invalid character '\x00' looking for beginning of value, at byte 1`},
		{"two objects on a line", event(`{"process":"A","type":"info","f":"lost"} {}`), ReadOptions{}, `h:4: not JSON: invalid character '{' after top-level value, at byte 42`},
		{"cut off in the middle", pair[:40] + "\n" + pair, ReadOptions{}, `h:1: ends in the middle of a JSON object`},
		{"not an object", event(`17`), ReadOptions{}, `h:4: not an event: number, want a JSON object`},
		{"null", event(`null`), ReadOptions{}, `h:4: not an event: no "process"`},
		{"no process", event(`{"index":2,"type":"ok"}`), ReadOptions{}, `h:4: not an event: no "process"`},
		{"no type", event(`{"index":2,"process":"A"}`), ReadOptions{}, `h:4: not an event: no "type"`},
		{"empty process", event(`{"index":2,"time":30,"process":"","type":"ok","f":"x"}`), ReadOptions{}, `h:4: not an event: no "process"`},
		{"index is a text", event(`{"index":"2","process":"A","type":"ok"}`), ReadOptions{}, `h:4: "index" is a JSON string, want a whole number`},
		{"time is a fraction", event(`{"index":2,"time":1.5,"process":"A","type":"ok"}`), ReadOptions{}, `h:4: "time" is a JSON number 1.5, want a whole number`},
		{"type is a number", event(`{"index":2,"process":"A","type":7}`), ReadOptions{}, `h:4: "type" is a JSON number, want a text`},
		{"index beyond int32", event(`{"index":2147483647,"time":30,"process":"A","type":"info","f":"lost"}`), ReadOptions{},
			`h:4: index 2147483647 is more than a history may have (2147483646)`},
		{"time beyond reason", event(`{"index":2,"time":1152921504606846977,"process":"A","type":"info","f":"lost"}`), ReadOptions{},
			`h:4: time 1152921504606846977 is beyond what a run can last (1152921504606846976 ns)`},
		{"negative lease", event(`{"index":2,"time":30,"process":"A","type":"ok","f":"acquire","ttl":-1}`), ReadOptions{},
			`h:4: ttl -1, until 0: want 0 to 1152921504606846976 ns`},
		{"op beyond int32", event(`{"index":2,"time":30,"process":"resource","type":"ok","f":"write","op":2147483647}`), ReadOptions{},
			`h:4: op 2147483647 is not the index of an event`},
		{"long line", event(`{"index":2,"time":30,"process":"` + strings.Repeat("A", 1000) + `"`), ReadOptions{MaxLine: 500}, `h:4: line is longer than 500 bytes`},
		{"JSON array", `[{"index":0}]`, ReadOptions{}, `h:1: a JSON array, want one JSON object a line`},
		{"unknown format", "PK\x03\x04 a zip file\n", ReadOptions{}, `h:1: not a history in a format known here: it begins with "PK\x03\x04 a zip file"`},
		{"nothing but a beginning", `{"index":0,"ti`, ReadOptions{}, `h:1: not a history: it ends in the middle of its first event`},
		{"damaged gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff", ReadOptions{Format: FormatJSONL},
			`h:1: the file is damaged from here on: flate: corrupt input before offset 1`},
		{"not gzip", "\x1f\x8b\xff", ReadOptions{}, `h:1: not a gzip file: unexpected EOF`},

		{"EDN, no map", "{:process 0 :type :invoke :f :read}\n17\n", ReadOptions{}, `h:2: not an event: unexpected '1', want a map in braces`},
		{"EDN, no process", "{:process 0 :type :invoke :f :read}\n{:type :ok}\n", ReadOptions{}, `h:2: not an event: no :process`},
		{"EDN, no type", "\n\n{:process 0}", ReadOptions{}, `h:3: not an event: no :type`},
		{"EDN, key without value", "{:process 0 :type}", ReadOptions{}, `h:1: a map ends after a key, without its value`},
		{"EDN, wrong bracket", "{:process 0\n :value [1 2)}", ReadOptions{}, `h:2: unexpected ')', want ']'`},
		{"EDN, stray bracket", "{:process 0 :type :ok :f :read}\n]", ReadOptions{}, `h:2: not an event: unexpected ']', want a map in braces`},
		{"EDN, time is a text", `{:process 0 :type :ok :time "1"}`, ReadOptions{}, `h:1: "time" is "\"1\"", want a whole number`},
		{"EDN, index too large", `{:process 0 :type :ok :index 99999999999999999999}`, ReadOptions{}, `h:1: "index" is "99999999999999999999", want a whole number`},
		{"EDN, stated twice", `{:process 0 :type :ok "type" :ok}`, ReadOptions{}, `h:1: "type" is stated twice`},
		{"EDN, bad escape", `{:process 0 :type :ok :value "\q"}`, ReadOptions{}, `h:1: bad escape \q in a text`},
		{"EDN, too deep", "{:value " + strings.Repeat("[", 300), ReadOptions{}, `h:1: nested deeper than 256`},
		{"EDN, tags too deep", "{:value " + strings.Repeat("#a ", 300), ReadOptions{}, `h:1: nested deeper than 256`},
		{"EDN, long", "{:process 0 :type :ok}\n{:value \"" + strings.Repeat("x", 1000), ReadOptions{MaxLine: 500}, `h:2: an event is longer than 500 bytes`},
		{"EDN, long token", "{:value " + strings.Repeat("x", 1000), ReadOptions{MaxLine: 500}, `h:1: an event is longer than 500 bytes`},

		{"log, no operation", "INFO  jepsen.util - 0\t:invoke\n", ReadOptions{}, `h:1: not an event: no operation after its type`},
		{"log, bad value", "INFO  jepsen.util - 0\t:ok\t:cas\t[1 2\n", ReadOptions{}, `h:1: value "[1 2": ends in the middle of a form`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Name = "h"
			h, err := Decode(strings.NewReader(c.in), c.o)
			if err == nil {
				t.Fatalf("decoded as\n%s", dump(h))
			}
			if err.Error() != c.want {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
			if _, ok := errors.AsType[*SyntaxError](err); !ok {
				t.Errorf("%T, want *SyntaxError", err)
			}
		})
	}
}

func TestOtherErrors(t *testing.T) {
	if _, err := Open("testdata/absent", ReadOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	if _, err := Open("testdata", ReadOptions{}); err == nil || !strings.Contains(err.Error(), "testdata: is a directory") {
		t.Errorf("directory: %v", err)
	}
	_, err := Decode(strings.NewReader(pair), ReadOptions{Name: "h", Format: "xml"})
	if want := `read history h: unknown format "xml", want one of jsonl, edn, jepsen-log, kv`; err == nil || err.Error() != want {
		t.Errorf("unknown format: %v", err)
	}
	for _, f := range []Format{FormatJSONL, FormatEDN} {
		broken := io.MultiReader(strings.NewReader(pair[:10]), iotest.ErrReader(io.ErrClosedPipe))
		_, err = Decode(broken, ReadOptions{Name: "h", Format: f})
		if !errors.Is(err, io.ErrClosedPipe) || !strings.Contains(err.Error(), "read history h") {
			t.Errorf("%s: a failing reader: %v", f, err)
		}
		if _, syntax := errors.AsType[*SyntaxError](err); syntax {
			t.Errorf("%s: a failing reader is not the history's fault", f)
		}
	}
}

func TestEmptyHistory(t *testing.T) {
	for _, in := range []string{"", "\n\n", "\ufeff"} {
		h := mustDecode(t, in)
		if h.Events != 0 || h.Truncated || h.Broken != nil || h.Format != FormatJSONL {
			t.Errorf("%q: %s", in, dump(h))
		}
	}
}

func TestAssumptions(t *testing.T) {
	line := func(index, time int, rest string) string {
		return fmt.Sprintf(`{"index":%d,"time":%d,%s}`+"\n", index, time, rest)
	}
	const (
		invA = `"process":"A","type":"invoke","f":"acquire","key":"k"`
		okA  = `"process":"A","type":"ok","f":"acquire","key":"k"`
		relA = `"process":"A","type":"invoke","f":"release","key":"k"`
		invB = `"process":"B","type":"invoke","f":"acquire","key":"k"`
	)
	for _, c := range []struct {
		name string
		in   string
		want []string // assumptions
		ops  string   // index-return [call, return] outcome
	}{
		{"nothing", line(0, 10, invA) + line(1, 20, okA), nil, "0-1 [10 20] done"},
		{"index gap", line(0, 10, invA) + line(3, 20, okA),
			[]string{"line 2 (event 3): index-gap: index 3 follows 0"}, "0-3 [10 20] done"},
		{"reordered", line(0, 10, invA) + line(2, 30, relA) + line(1, 20, okA),
			[]string{
				"line 2 (event 2): index-gap: index 2 follows 0",
				`line 2 (event 2): invocation-while-open: process "A" has event 0 open; its outcome is unknown`,
				"line 3 (event 1): index-order: index 1 stands after 2",
				"line 3 (event 1): return-before-call: ends at 20, was called at 30",
				`line 3 (event 1): completion-of-another-operation: operation "acquire" does not complete event 2 of process "A"`,
			}, "0--1 [10 never] unknown; 2--1 [30 never] unknown"},
		{"index twice in a gap", line(0, 10, invA) + line(3, 20, okA) + line(2, 30, invA) + line(2, 40, okA),
			[]string{
				"line 2 (event 3): index-gap: index 3 follows 0",
				"line 3 (event 2): index-order: index 2 stands after 3",
				"line 4 (event 2): duplicate-event: index 2 occurs again; the event is left out",
			}, "0-3 [10 20] done; 2--1 [30 never] unknown"},
		{"duplicate", line(0, 10, invA) + line(0, 10, invA) + line(1, 20, okA),
			[]string{"line 2 (event 0): duplicate-event: index 0 occurs again; the event is left out"}, "0-1 [10 20] done"},
		{"negative index", line(-5, 10, invA) + line(1, 20, okA),
			[]string{"line 1 (event 0): index-order: index -5 is negative; it gets 0"}, "0-1 [10 20] done"},
		{"an index missing", line(0, 10, invA) + `{"time":20,` + okA + "}",
			[]string{"line 2 (event 1): index-missing: no index; it gets 1"}, "0-1 [10 20] done"},
		{"no index at all", `{"time":10,` + invA + "}\n" + `{"time":20,` + okA + "}", nil, "0-1 [10 20] done"},
		{"time goes back", line(0, 10, invA) + line(1, 5, invB) + line(2, 20, okA),
			[]string{"line 2 (event 1): time-order: time 5 after 10"}, "0-2 [10 20] done; 1--1 [11 never] unknown"},
		{"equal times", line(0, 10, invA) + line(1, 10, invB) + line(2, 11, okA),
			[]string{"line 2 (event 1): time-order: time 10 occurs again"}, "0-2 [10 12] done; 1--1 [11 never] unknown"},
		{"negative times", line(0, -20, invA) + line(1, -10, okA),
			[]string{"line 1 (event 0): negative-time: time -20", "line 2 (event 1): negative-time: time -10"}, "0-1 [0 1] done"},
		{"return before call", line(0, 10, invA) + line(1, 5, okA),
			[]string{"line 2 (event 1): return-before-call: ends at 5, was called at 10"}, "0-1 [10 11] done"},
		{"a time missing", line(0, 10, invA) + `{"index":1,` + okA + "}",
			[]string{"line 2 (event 1): time-missing: no time"}, "0-1 [10 11] done"},
		{"completion without invocation", line(0, 10, okA),
			[]string{`line 1 (event 0): completion-without-invocation: process "A" has nothing open`}, ""},
		{"completed twice", line(0, 10, invA) + line(1, 20, okA) + line(2, 30, okA),
			[]string{`line 3 (event 2): completion-without-invocation: process "A" has nothing open`}, "0-1 [10 20] done"},
		{"second invocation while open", line(0, 10, invA) + line(1, 20, invA) + line(2, 30, okA),
			[]string{`line 2 (event 1): invocation-while-open: process "A" has event 0 open; its outcome is unknown`},
			"0--1 [10 never] unknown; 1-2 [20 30] done"},
		{"completion of another operation", line(0, 10, relA) + line(1, 20, okA),
			[]string{`line 2 (event 1): completion-of-another-operation: operation "acquire" does not complete event 0 of process "A"`},
			"0--1 [10 never] unknown"},
		{"completion for another key", line(0, 10, invA) + line(1, 20, `"process":"A","type":"ok","f":"acquire","key":"other"`),
			[]string{`line 2 (event 1): completion-of-another-operation: key "other", but event 0 of process "A" has key "k"`},
			"0--1 [10 never] unknown"},
		{"unknown type", line(0, 10, invA) + line(1, 20, `"process":"A","type":"maybe","f":"acquire"`) + line(2, 30, okA),
			[]string{`line 2 (event 1): unknown-type: type "maybe"`}, "0-2 [10 30] done"},
		{"unknown operation", line(0, 10, `"process":"A","type":"invoke","f":"dance"`) + line(1, 20, `"process":"A","type":"ok","f":"dance"`),
			[]string{`line 1 (event 0): unknown-operation: operation "dance"`}, "0-1 [10 20] done"},
		{"a loss notice completes nothing", line(0, 10, invA) + line(1, 20, `"process":"A","type":"info","f":"lost","key":"k"`) + line(2, 30, okA),
			nil, "0-2 [10 30] done"},
		{"a log without its last line end", "INFO  jepsen.util - 0\t:invoke\t:read\tnil\nINFO  jepsen.util - 0\t:ok\t:read\t1",
			[]string{"line 2 (event 1): unterminated-last-line: the line has no end, so it may have been longer"}, "0-1 [0 1] done"},
		{"imports may have equal times", "{:process 0, :type :invoke, :f :read, :time 7}{:process 0, :type :ok, :f :read, :time 7}", nil, "0-1 [7 8] done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := mustDecode(t, c.in)
			var got []string
			for _, a := range h.Assumptions {
				got = append(got, a.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("assumptions\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			var ops []string
			for _, o := range h.Ops {
				ops = append(ops, strings.ReplaceAll(fmt.Sprintf("%d-%d [%d %d] %s", o.Index, o.RetIndex, o.Call, o.Ret, outcomeNames[o.Outcome]), fmt.Sprint(int64(Never)), "never"))
			}
			if got := strings.Join(ops, "; "); got != c.ops {
				t.Errorf("ops %s\nwant %s", got, c.ops)
			}
		})
	}
}

func TestAssumptionsAreCountedAndBounded(t *testing.T) {
	var in strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&in, `{"index":%d,"time":%d,"process":"A","type":"ok","f":"acquire"}`+"\n", i, i)
	}
	h := mustDecode(t, in.String())
	if len(h.Assumptions) != MaxAssumptions || h.Broken[NoInvocation] != 1000 {
		t.Errorf("%d listed, %v counted", len(h.Assumptions), h.Broken)
	}
}

// The same history in every format is the same operations.
func TestFormats(t *testing.T) {
	const want = `[0 1] 0 read: done null
[2 5] 1 write: unknown 4 (timed-out)
[3 4] 2 cas: failed [1,2]
[6 7] 0 read: failed - (timed-out)
[8 9] 2 cas: done [4,7]
[10 11] 0 read: done 7
`
	short := func(h *History) string {
		var b strings.Builder
		for _, o := range h.Ops {
			ret := o.Ret
			if o.RetIndex >= 0 && ret == Never {
				ret = 5
			}
			v := "-"
			if o.Value >= 0 {
				v = h.Values[o.Value]
			}
			fmt.Fprintf(&b, "[%d %d] %s %s: %s %s", o.Call, ret, h.Processes[o.Process], kindNames[o.Kind], outcomeNames[o.Outcome], v)
			if o.Error != 0 {
				fmt.Fprintf(&b, " (%s)", h.Errors[o.Error])
			}
			b.WriteByte('\n')
		}
		return b.String()
	}
	rows := [][4]string{
		{"0", "invoke", "read", "nil"}, {"0", "ok", "read", "nil"},
		{"1", "invoke", "write", "4"}, {"2", "invoke", "cas", "[1 2]"}, {"2", "fail", "cas", "[1 2]"}, {"1", "info", "write", ":timed-out"},
		{"0", "invoke", "read", "nil"}, {"0", "fail", "read", ":timed-out"},
		{"2", "invoke", "cas", "[4 7]"}, {"2", "ok", "cas", "[4 7]"},
		{"0", "invoke", "read", "nil"}, {"0", "ok", "read", "7"},
	}
	render := func(line string, between string) string {
		var all []string
		for i, r := range rows {
			s := strings.NewReplacer("PROCESS", r[0], "TYPE", r[1], "FUNC", r[2], "VALUE", r[3], "TIME", fmt.Sprint(i),
				"JSON", strings.NewReplacer("nil", "null", " ", ",", ":timed-out", `"timed-out"`).Replace(r[3])).Replace(line)
			all = append(all, s)
		}
		return strings.Join(all, between)
	}
	for _, c := range []struct {
		name string
		in   string
		f    Format
	}{
		{"EDN lines", render("{:process PROCESS, :type :TYPE, :f :FUNC, :value VALUE, :time TIME, :index TIME}", "\n"), FormatEDN},
		{"EDN vector", "[" + render("{:index TIME :type :TYPE :process PROCESS :f :FUNC :value VALUE :time TIME}", "\n ") + "]\n", FormatEDN},
		{"EDN list on one line", "(" + render("{:type :TYPE :process PROCESS :f :FUNC :value VALUE}", " ") + ")", FormatEDN},
		{"EDN string keys", render(`{"type" "TYPE" "process" PROCESS "f" "FUNC" "value" VALUE}`, "\n"), FormatEDN},
		{"EDN string keys, keywords as values", render(`{"type":TYPE,"process" PROCESS,"f":FUNC,"value" VALUE}`, "\n"), FormatEDN},
		{"EDN records, maps over lines, other fields", "; a comment\n" + render("#jepsen.history.Op{:type :TYPE\n :process PROCESS ; who\n :f :FUNC\n :value VALUE :debug {:a #{1 2} \"b\" nil} #_ {:not \"me\"}}", "\n"), FormatEDN},
		{"EDN, values under a tag", render("{:type :TYPE :process PROCESS :f :FUNC :value #some/tag VALUE}", "\n"), FormatEDN},
		{"Jepsen log", "WARN  jepsen.core - not :ok at all\n" + render("INFO  jepsen.util - PROCESS\t:TYPE\t:FUNC\tVALUE", "\n") + "\nINFO  jepsen.core - Everything looks good!\n", FormatJepsenLog},
		{"Jepsen log with blanks", render("INFO  jepsen.util - PROCESS  :TYPE   :FUNC  VALUE", "\n") + "\n", FormatJepsenLog},
		{"Jepsen log, newer", render("2024-03-01 10:11:12,123{GMT}\tINFO\t[jepsen worker 0] jepsen.util: PROCESS\t:TYPE\t:FUNC\tVALUE", "\r\n") + "\r\n", FormatJepsenLog},
		{"log lines alone", render("PROCESS :TYPE :FUNC VALUE", "\n") + "\n", FormatJepsenLog},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := mustDecode(t, c.in)
			if h.Format != c.f {
				t.Errorf("taken for %s, want %s", h.Format, c.f)
			}
			if got := short(h); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if h.Broken != nil {
				t.Errorf("assumptions: %v", h.Assumptions)
			}
			if timeless := !strings.Contains(c.in, ":time "); h.Timeless != timeless {
				t.Errorf("timeless is %v, want %v", h.Timeless, timeless)
			}
			again, err := Decode(iotest.OneByteReader(strings.NewReader(c.in)), ReadOptions{Name: "h", Format: c.f})
			if err != nil || !reflect.DeepEqual(h, again) {
				t.Errorf("read byte by byte it is different: %v", err)
			}
		})
	}
}

func TestDetectKV(t *testing.T) {
	h := mustDecode(t, `{:process 0, :type :invoke, :f :append, :key "0", :value "x 0 0 y"}
{:process 0, :type :ok, :f :append, :key "0", :value "x 0 0 y"}
{:process 0, :type :invoke, :f :put, :key "1", :value "a"}
{:process 0, :type :ok, :f :put, :key "1", :value "a"}
{:process 0, :type :invoke, :f :get, :key "1", :value nil}
{:process 0, :type :ok, :f :get, :key "1", :value ""}
`)
	want := `kv, 6 events, truncated false, timeless true
op 0-1 [0, 1] process 0 append 0: done value "x 0 0 y"
op 2-3 [2, 3] process 0 write 1: done value "a"
op 4-5 [4, 5] process 0 read 1: done value ""
`
	if got := dump(h); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEDNValues(t *testing.T) {
	for edn, want := range map[string]string{
		`nil`: `null`, `true`: `true`, `false`: `false`,
		`0`: `0`, `-12`: `-12`, `+3`: `3`, `7N`: `7`, `1.5`: `1.5`, `2.50M`: `2.50`, `1e9`: `1e9`, `1/2`: `"1/2"`, `007`: `"007"`, `##Inf`: `"##Inf"`,
		`""`: `""`, `"a\"b\\\n\u00e9"`: `"a\"b\\\né"`, "\"a\nb\"": `"a\nb"`, "\"\xff\"": `"\ufffd"`,
		`:key`: `"key"`, `:ns/key`: `"ns/key"`, `sym`: `"sym"`, `-`: `"-"`, `\a`: `"a"`, `\(`: `"("`, `\newline`: `"\n"`, `\é`: `"é"`,
		`[1 2]`: `[1,2]`, `(1, 2)`: `[1,2]`, `[]`: `[]`, `[[]]`: `[[]]`, `[[] []]`: `[[],[]]`, `[#_ 1 2 #_ 3]`: `[2]`,
		`#{3 1 2}`: `[1,2,3]`, `#{}`: `[]`, `{:b 1 :a [nil]}`: `{"a":[null],"b":1}`, `{1 2, [3] 4}`: `{"1":2,"[3]":4}`, `{}`: `{}`,
		`#inst "2024-01-01"`: `"2024-01-01"`, `#a/b [1 #c 2]`: `[1,2]`, `^{:meta 1} x`: `"x"`, `'x`: `"x"`, `#"re"`: `"re"`, `#:ns{:a 1}`: `{"a":1}`,
		"; c ]\n 1": `1`,
	} {
		h, err := Decode(strings.NewReader("{:process 0 :type :invoke :f :write :value "+edn+"}"), ReadOptions{Format: FormatEDN})
		switch {
		case err != nil:
			t.Errorf("%s: %v", edn, err)
		case len(h.Values) != 1 || h.Values[0] != want:
			t.Errorf("%s is %v, want %s", edn, h.Values, want)
		}
	}
}

// JSON that Recorder would not write is read all the same.
func TestJSONInOtherShapes(t *testing.T) {
	want := mustDecode(t, `{"index":0,"time":5,"process":"7","type":"invoke","f":"write","key":"1","value":[1,{"a":"b"}],"token":3}`)
	for _, in := range []string{
		`{"type":"invoke","process":"7","f":"write","key":"1","value":[1,{"a":"b"}],"token":3,"time":5,"index":0}`,
		`  { "index" : 0, "time":5, "process":7, "type":"invoke","f":"write","key":1, "value" : [ 1, { "a" : "b" } ] ,"token":3 , "extra":[{}]}  `,
		`{"index":0,"time":5,"process":"\u0037","type":"invoke","f":"wr\u0069te","key":"1","value":[1,{"a":"b"}],"token":3,"error":""}`,
		"\ufeff\r\n" + `{"index":0,"time":5,"process":"7","type":"invoke","f":"write","key":"1","value":[1,{"a":"b"}],"token":3,"op":null}` + "\r\n\r\n",
	} {
		if got := mustDecode(t, in); !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot %s\nwant %s", in, dump(got), dump(want))
		}
	}
	null := mustDecode(t, `{"index":0,"time":5,"process":"7","type":"invoke","f":"write", "value":null}`)
	if len(null.Values) != 1 || null.Values[0] != "null" {
		t.Errorf("a null value is %v", null.Values)
	}
}

// A history may end anywhere: its writer was killed. What stands before the
// cut is read, and only what was complete.
func TestCutOffAnywhere(t *testing.T) {
	whole, err := os.ReadFile("testdata/gc-pause.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for line := range bytes.Lines(whole) {
		_, _ = z.Write(line)
		_ = z.Flush()
	}
	_ = z.Close()
	edn := []byte("[" + strings.Repeat("{:process 0, :type :invoke, :f :write, :value [1 {:a \"b\"}]}\n", 5) + "]")
	for _, c := range []struct {
		name string
		in   []byte
	}{{"jsonl", whole}, {"edn", edn}, {"gzip", packed.Bytes()}} {
		t.Run(c.name, func(t *testing.T) {
			for n := 1; n < len(c.in); n++ {
				h, err := Decode(bytes.NewReader(c.in[:n]), ReadOptions{Name: "h"})
				events := int64(bytes.Count(c.in[:n], []byte("\n")))
				atLineEnd := c.in[n-1] == '\n'
				if c.in[n] == '\n' {
					events, atLineEnd = events+1, true
				}
				switch {
				case err != nil:
					if syntax, ok := errors.AsType[*SyntaxError](err); !ok || syntax.Line != 1 || c.name != "gzip" && events > 0 {
						t.Fatalf("cut at %d: %v", n, err)
					}
				case c.name == "gzip":
					if !h.Truncated || h.Events > 20 {
						t.Fatalf("cut at %d: truncated %v, %d events", n, h.Truncated, h.Events)
					}
				case h.Events != events:
					t.Fatalf("cut at %d: %d events, want %d", n, h.Events, events)
				case h.Truncated != (c.name == "edn" || !atLineEnd): // a vector has an end of its own
					t.Fatalf("cut at %d: truncated is %v", n, h.Truncated)
				}
			}
		})
	}
}

// A hostile line is not read whole.
func TestLongInputsAreNotSlurped(t *testing.T) {
	for _, c := range []struct{ name, begin string }{
		{"jsonl", pair + `{"index":`},
		{"edn", `{:process 0, :type :ok, :f :read}` + "\n\n" + `{:value "`},
	} {
		t.Run(c.name, func(t *testing.T) {
			endless := &counter{}
			_, err := Decode(io.MultiReader(strings.NewReader(c.begin), endless), ReadOptions{Name: "h", MaxLine: 1 << 20})
			if syntax, ok := errors.AsType[*SyntaxError](err); !ok || syntax.Line != 3 {
				t.Errorf("got %v, want an error at line 3", err)
			}
			if endless.n > 4<<20 {
				t.Errorf("%d bytes were read of a line of more than 1 MiB", endless.n)
			}
		})
	}
}

// counter is an endless line of ones.
type counter struct{ n int }

func (c *counter) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '1'
	}
	c.n += len(b)
	return len(b), nil
}

func TestLastLineMayHaveNoEnd(t *testing.T) {
	h := mustDecode(t, strings.TrimSuffix(pair, "\n"))
	if h.Truncated || h.Events != 2 || h.Broken != nil {
		t.Error(dump(h))
	}
}

// Blocks end anywhere, lines may be longer than blocks, and readers may return
// as little as they like.
func TestBlocks(t *testing.T) {
	var in bytes.Buffer
	for i := range 3000 {
		value := strings.Repeat("x", i%977)
		if i == 1500 {
			value = strings.Repeat("y", 3*blockSize)
		}
		b, _ := appendEvent(nil, &Event{Index: int64(i), Time: int64(i), Process: "A", Type: Info, F: Lost, Key: value})
		in.Write(b)
	}
	for name, r := range map[string]io.Reader{
		"whole":         bytes.NewReader(in.Bytes()),
		"half":          iotest.HalfReader(bytes.NewReader(in.Bytes())),
		"data with EOF": iotest.DataErrReader(bytes.NewReader(in.Bytes())),
		"byte by byte":  iotest.OneByteReader(bytes.NewReader(in.Bytes())),
	} {
		h, err := Decode(r, ReadOptions{})
		if err != nil || len(h.Notices) != 3000 || h.Broken != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, n := range h.Notices {
			if n.Index != int32(i) || i != 1500 && len(h.Keys[n.Key]) != i%977 {
				t.Fatalf("%s: notice %d is wrong", name, i)
			}
		}
	}
}

// After Decode has returned, nobody reads the input.
func TestDecodeLeavesTheReaderAlone(t *testing.T) {
	r := &exclusive{t: t}
	_, err := Decode(r, ReadOptions{Format: FormatJSONL})
	r.over = true // under -race, a reader left behind would be seen here
	if err == nil {
		t.Error("garbage was decoded")
	}
}

type exclusive struct {
	t    *testing.T
	over bool
}

func (e *exclusive) Read(b []byte) (int, error) {
	if e.over {
		e.t.Error("read after the end")
	}
	return copy(b, "garbage\n"), nil
}

func TestGzip(t *testing.T) {
	plain, err := os.ReadFile("testdata/gc-pause.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for part := range slices.Chunk(plain, 700) { // several members, as of appended files
		z := gzip.NewWriter(&b)
		_, _ = z.Write(part)
		_ = z.Close()
	}
	path := filepath.Join(t.TempDir(), "h.jsonl.gz")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var seen int64
	h, err := Open(path, ReadOptions{Progress: func(n int64) { seen = n }})
	if err != nil {
		t.Fatal(err)
	}
	if want := mustDecode(t, string(plain)); !reflect.DeepEqual(h, want) {
		t.Errorf("got\n%s\nwant\n%s", dump(h), dump(want))
	}
	if seen != int64(b.Len()) {
		t.Errorf("progress ended at %d of %d bytes", seen, b.Len())
	}
	damaged := bytes.Clone(b.Bytes())
	damaged[len(damaged)-6] ^= 1 // in a checksum
	_, err = Decode(bytes.NewReader(damaged), ReadOptions{Name: "h"})
	if syntax, ok := errors.AsType[*SyntaxError](err); !ok || syntax.Line < 2 {
		t.Errorf("a wrong checksum: %v", err)
	}
}

func TestScannerSeesWhatDecodeSees(t *testing.T) {
	in, err := os.ReadFile("testdata/gc-pause.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewScanner(bytes.NewReader(in), ReadOptions{Name: "h"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	n := 0
	for s.Scan() {
		n++
		if s.Line() != n {
			t.Errorf("event %d is on line %d", n, s.Line())
		}
		out.WriteString(s.Event().String() + "\n")
	}
	if s.Err() != nil || s.Truncated() || s.Format() != FormatJSONL {
		t.Error(s.Err(), s.Truncated(), s.Format())
	}
	if out.String() != string(in) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), in)
	}
	if s.Scan() {
		t.Error("goes on after the end")
	}
}

func TestScannerErrors(t *testing.T) {
	s, err := NewScanner(strings.NewReader(pair+"nonsense\n"+pair), ReadOptions{Name: "h"})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for s.Scan() {
		n++
	}
	if _, ok := errors.AsType[*SyntaxError](s.Err()); !ok || n != 2 || !strings.HasPrefix(s.Err().Error(), "h:3: ") {
		t.Errorf("%d events, %v", n, s.Err())
	}
	s, err = NewScanner(strings.NewReader(pair+`{"ind`), ReadOptions{Name: "h"})
	if err != nil {
		t.Fatal(err)
	}
	for s.Scan() {
	}
	if s.Err() != nil || !s.Truncated() {
		t.Errorf("cut off: %v, %v", s.Err(), s.Truncated())
	}
}

func shared(t *testing.T, elem ...string) string {
	t.Helper()
	root := filepath.Join("..", "..", "shared", "histories")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("the histories recorded by others are not here: %v", err)
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

func TestSharedEtcd(t *testing.T) {
	paths, err := filepath.Glob(shared(t, "porcupine-etcd", "*.log"))
	if err != nil || len(paths) != 52 {
		t.Fatalf("%d files, want 52 (%v)", len(paths), err)
	}
	var sum [4][3]int // kinds and outcomes over all files
	for _, path := range paths {
		h, err := Open(path, ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if lines := int64(bytes.Count(text, []byte("\n"))); h.Events != lines || h.Format != FormatJepsenLog || h.Truncated || !h.Timeless || h.Broken != nil {
			t.Errorf("%s: %d events of %d lines, %s %v %v", path, h.Events, lines, h.Format, h.Truncated, h.Assumptions)
		}
		for _, o := range h.Ops {
			switch o.Kind {
			case KindRead:
				sum[0][o.Outcome]++
			case KindWrite:
				sum[1][o.Outcome]++
			case KindCAS:
				sum[2][o.Outcome]++
				if v := h.Values[o.Value]; v[0] != '[' || strings.Count(v, ",") != 1 {
					t.Fatalf("%s: cas of %s", path, v)
				}
			default:
				sum[3][o.Outcome]++
			}
		}
	}
	for i, name := range []string{"read", "write", "cas", "other"} {
		total, done, failed := 0, 0, 0
		for _, path := range paths {
			text, _ := os.ReadFile(path)
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if f[5] != ":"+name {
					continue
				}
				switch f[4] {
				case ":invoke":
					total++
				case ":ok":
					done++
				case ":fail":
					failed++
				}
			}
		}
		if want := [3]int{total - done - failed, done, failed}; sum[i] != want {
			t.Errorf("%s: unknown, done, failed are %v, want %v", name, sum[i], want)
		}
	}
}

func TestSharedKV(t *testing.T) {
	for name, ops := range map[string]int{"c01-bad.txt": 38, "c01-ok.txt": 58, "c10-bad.txt": 405, "c10-ok.txt": 337} {
		h, err := Open(shared(t, "porcupine-kv", name), ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Ops) != ops || h.Format != FormatKV || !h.Timeless || h.Broken != nil || h.Truncated {
			t.Errorf("%s: %d operations, want %d; %s %v", name, len(h.Ops), ops, h.Format, h.Assumptions)
		}
		for _, o := range h.Ops {
			if o.Kind != KindRead && o.Kind != KindWrite && o.Kind != KindAppend || o.Outcome != Done || h.Values[o.Value][0] != '"' {
				t.Fatalf("%s: %+v", name, o)
			}
		}
	}
}

func TestSharedKnossos(t *testing.T) {
	h, err := Open(shared(t, "knossos", "etcd-mutex-prefix1118.edn"), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var count [4][3]int
	for _, o := range h.Ops {
		count[o.Kind][o.Outcome]++
		if o.Outcome == Failed {
			want := map[Kind]string{KindAcquire: "already-held", KindRelease: "not-held"}[o.Kind]
			if got := h.Errors[o.Error]; got != want {
				t.Fatalf("event %d failed with %q, want %q", o.Index, got, want)
			}
		}
	}
	if want := [3]int{4, 130, 139}; count[KindAcquire] != want {
		t.Errorf("acquires: %v, want %v", count[KindAcquire], want)
	}
	if want := [3]int{1, 129, 153}; count[KindRelease] != want {
		t.Errorf("releases: %v, want %v", count[KindRelease], want)
	}
	if len(h.Other) != 12 || h.Other[0].Process != Nemesis || h.Events != 1119 {
		t.Errorf("%d events, %d of the nemesis", h.Events, len(h.Other))
	}
	// Its vector is never closed, and Jepsen's clients stamp before they write.
	if !h.Truncated || len(h.Broken) != 1 || h.Broken[TimeOrder] != 6 {
		t.Errorf("truncated %v, %v", h.Truncated, h.Broken)
	}
	for _, a := range h.Assumptions {
		if !a.TimingOnly {
			t.Errorf("%v: the order is not in doubt", a)
		}
	}
	if !slices.IsSortedFunc(h.Ops, func(a, b Op) int { return int(a.Call - b.Call) }) {
		t.Error("operations are not ordered by Call")
	}
}

// Ten million operations that nobody answers take time and memory in
// proportion, no more. A part of that will do for every run of the tests.
func TestManyOpenOperations(t *testing.T) {
	n := 300_000
	if testing.Short() {
		n = 30_000
	}
	r, w := io.Pipe()
	go func() {
		var b []byte
		for i := range int64(n) {
			b, _ = appendEvent(b, &Event{Index: i, Time: i, Process: fmt.Sprint("p", i), Type: Invoke, F: Acquire})
			if len(b) > 1<<16 || i == int64(n-1) {
				if _, err := w.Write(b); err != nil {
					return
				}
				b = b[:0]
			}
		}
		_ = w.Close()
	}()
	start := time.Now()
	h, err := Decode(r, ReadOptions{})
	if err != nil || len(h.Ops) != n || h.Broken != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("took %v", d)
	}
}

// A scanner that begins in the middle says the same as one that begins at the
// beginning.
func TestScannerNear(t *testing.T) {
	data := lockHistory(10_000, 7)
	h, err := Decode(bytes.NewReader(data), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.places) < 2 {
		t.Fatalf("%d events have %d places to begin at", h.Events, len(h.places))
	}
	whole, err := NewScanner(bytes.NewReader(data), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	var lines []int
	for whole.Scan() {
		events = append(events, whole.Event())
		lines = append(lines, whole.Line())
	}
	for _, first := range []int64{0, 1, placesApart - 1, placesApart, placesApart + 1, 2*placesApart - 1, 2 * placesApart, h.Events - 1} {
		s, err := h.NewScannerNear(bytes.NewReader(data), ReadOptions{}, first)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(-1)
		for s.Scan() {
			if n < 0 {
				if n = s.Index(); n > first || first-n >= placesApart {
					t.Fatalf("the scanner for event %d begins at %d", first, n)
				}
			}
			if e := s.Event(); !reflect.DeepEqual(e, events[n]) || s.Line() != lines[n] {
				t.Fatalf("from event %d: line %d is %v, want line %d, %v", first, s.Line(), e, lines[n], events[n])
			}
			n++
		}
		if s.Err() != nil || n != h.Events {
			t.Fatalf("from event %d: the scanner ended after %d of %d events: %v", first, n, h.Events, s.Err())
		}
	}
	// A history that is not in order is read from its beginning.
	h.Assumptions = []Assumption{{Code: TimeOrder}}
	s, err := h.NewScannerNear(bytes.NewReader(data), ReadOptions{}, h.Events-1)
	if err != nil || !s.Scan() || s.Index() != 0 {
		t.Fatalf("the scanner begins at %d, %v", s.Index(), err)
	}
}
