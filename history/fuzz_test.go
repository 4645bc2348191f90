package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// sound checks what every decoded history promises, whatever its input was.
func sound(t *testing.T, h *History) {
	t.Helper()
	in := func(what string, i int32, n int, none bool) {
		if i >= int32(n) || i < 0 && !(none && i == -1) {
			t.Fatalf("%s %d of %d", what, i, n)
		}
	}
	stamps := map[int64]bool{}
	stamp := func(time int64) {
		if time < 0 || time >= Never || stamps[time] {
			t.Fatalf("time %d is negative, too large or occurs twice", time)
		}
		stamps[time] = true
	}
	last := int64(-1)
	for _, o := range h.Ops {
		if o.Call <= last || o.Ret <= o.Call {
			t.Fatalf("operation [%d, %d] after one at %d", o.Call, o.Ret, last)
		}
		last = o.Call
		stamp(o.Call)
		if (o.Ret == Never) != (o.Outcome == Unknown) || o.Outcome != Unknown && o.RetIndex < 0 {
			t.Fatalf("outcome and return contradict each other: %+v", o)
		}
		if o.Ret != Never {
			stamp(o.Ret)
		}
		in("process", o.Process, len(h.Processes), false)
		in("key", o.Key, len(h.Keys), false)
		in("value", o.Value, len(h.Values), true)
		in("term", o.Term, len(h.Terms), false)
		in("error", o.Error, len(h.Errors), false)
		in("index", o.Index, 1<<31-1, false)
		in("index of return", o.RetIndex, 1<<31-1, true)
	}
	for _, a := range h.Applied {
		stamp(a.Time)
		in("client", a.Client, len(h.Processes), false)
		in("key", a.Key, len(h.Keys), false)
		in("value", a.Value, len(h.Values), true)
		in("op", a.Op, 1<<31-1, true)
	}
	for _, n := range h.Notices {
		stamp(n.Time)
		in("process", n.Process, len(h.Processes), false)
		in("key", n.Key, len(h.Keys), false)
	}
	for _, v := range h.Values {
		if !json.Valid([]byte(v)) {
			t.Fatalf("value %q is not JSON", v)
		}
	}
	for _, names := range [][]string{h.Processes, h.Keys, h.Values, h.Errors} {
		if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) {
			t.Fatalf("a name occurs twice in %q", names)
		}
	}
}

// fuzzDecode decodes data and checks what came out. What was read without a
// remark must come out again when it is written in our format.
func fuzzDecode(t *testing.T, f Format, data []byte) {
	o := ReadOptions{Name: "h", Format: f, MaxLine: 1 << 16}
	h, err := Decode(bytes.NewReader(data), o)
	if err != nil {
		if syntax, ok := errors.AsType[*SyntaxError](err); !ok || syntax.Line < 1 || syntax.File != "h" {
			t.Fatalf("not an error with its line: %v", err)
		}
		return
	}
	sound(t, h)
	if h.Broken != nil || !utf8.Valid(data) {
		return
	}
	var out bytes.Buffer
	if _, err := Select(bytes.NewReader(data), &out, o, func(Event) bool { return true }); err != nil {
		t.Fatalf("decodes, but cannot be selected from: %v", err)
	}
	again, err := Decode(&out, ReadOptions{Format: FormatJSONL})
	if err != nil {
		t.Fatalf("written in our format it is not readable: %v", err)
	}
	again.Format, again.Timeless, again.Truncated = h.Format, h.Timeless, h.Truncated
	if !reflect.DeepEqual(h, again) {
		t.Fatalf("decoded\n%s\nwritten and decoded again\n%s", dump(h), dump(again))
	}
}

func seed(f *testing.F, lines int, elem ...string) {
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		return // histories recorded by others may be absent
	}
	all := bytes.SplitAfter(b, []byte("\n"))
	f.Add(bytes.Join(all[:min(lines, len(all))], nil))
}

// The short way and the long way through a line must come to the same.
func FuzzJSONL(f *testing.F) {
	seed(f, 20, "testdata", "gc-pause.jsonl")
	for _, s := range []string{
		pair,
		`{"index":0,"time":0,"process":"A","type":"info","f":"x","value":[1,-2.5e+3,{"a":[null,true,false,"b"]},{},[]],"op":7,"error":"e"}`,
		`{"index":00,"time":-1,"process":"\u00e9","type":"ok","f":"","key":"","value":01}`,
		`{"index":999999999999999999,"time":1234567890123456789,"process":"A","type":"ok","f":"read","value": 1}`,
		`{"index":0,"index":1,"TIME":4,"process":7,"type":"ok","ttl":null}`,
		"{\"index\":0,\"time\":1,\"process\":\"A\xff\",\"type\":\"ok\",\"f\":\"read\",\"value\":\"\xff\"}\r\n\n{",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzDecode(t, FormatJSONL, data)
		decodeSlow := func() (*History, error) {
			src, err := newSource(bytes.NewReader(data), ReadOptions{Name: "h", Format: FormatJSONL, MaxLine: 1 << 16}, false)
			if err != nil {
				return nil, err
			}
			src.decoder.(*jsonlDecoder).slow = true
			return decode(src)
		}
		fast, fastErr := Decode(bytes.NewReader(data), ReadOptions{Name: "h", Format: FormatJSONL, MaxLine: 1 << 16})
		slow, slowErr := decodeSlow()
		if (fastErr == nil) != (slowErr == nil) || fastErr != nil && fastErr.Error() != slowErr.Error() {
			t.Fatalf("errors differ: %v, %v", fastErr, slowErr)
		}
		if !reflect.DeepEqual(fast, slow) {
			t.Fatalf("short way\n%s\nlong way\n%s", dump(fast), dump(slow))
		}
	})
}

func FuzzEDN(f *testing.F) {
	seed(f, 10, "..", "..", "shared", "histories", "knossos", "etcd-mutex-prefix1118.edn")
	for _, s := range []string{
		"[{:type :invoke, :f :release, :process 1, :time 341187643, :index 0}\n{:type :fail, :f :release, :process 1, :time 342667129, :error :not-held, :index 1}]",
		`#op.Op{"type" "invoke", "process" :nemesis "f" x :value {:a #{3 1 2} [1] (2 #_ 3)} ; c` + "\n" + `:debug ^{:m 1} #inst "x" :error [:a "b\u00e9\n"]}`,
		`({:type :ok :process 0 :f :cas :value [1 2N +3 4.5M 1/2 \a \newline ##NaN #"re" 'q]} #_ {:x} {:type info :process 0 :f nil})`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzDecode(t, FormatEDN, data) })
}

func FuzzJepsenLog(f *testing.F) {
	seed(f, 30, "..", "..", "shared", "histories", "porcupine-etcd", "etcd_000.log")
	for _, s := range []string{
		"INFO  jepsen.util - 0\t:invoke\t:cas\t[1 2]\nINFO  jepsen.util - 0\t:info\t:cas\t:timed-out\n",
		"WARN x\nINFO [w] jepsen.util: :nemesis  :info :start {:n1 (cut\nINFO jepsen.util - 1 :fail :read nil :err \"e\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzDecode(t, FormatJepsenLog, data) })
}

func FuzzKV(f *testing.F) {
	seed(f, 10, "..", "..", "shared", "histories", "porcupine-kv", "c10-ok.txt")
	f.Add([]byte(`{:process 0, :type :invoke, :f :put, :key "0", :value "x 0 0 y"}` + "\n" + `{:process 0, :type :ok, :f :put, :key "0", :value "x 0 0 y"}`))
	f.Fuzz(func(t *testing.T, data []byte) { fuzzDecode(t, FormatKV, data) })
}

// Any input at all is decoded or refused, packed or not.
func FuzzDecode(f *testing.F) {
	seed(f, 20, "testdata", "gc-pause.jsonl")
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xab\xae\x05\x00\x43\xbf\xa6\xa3\x02\x00\x00\x00"))
	f.Add([]byte("\ufeff [{:process 0"))
	f.Fuzz(func(t *testing.T, data []byte) { fuzzDecode(t, "", data) })
}

// appendText and encoding/json agree on every text.
func FuzzText(f *testing.F) {
	f.Add("a\x00\b\f\n\r\t\x1f\x7f\u2028\u2029\xff<>&é\"\\")
	f.Fuzz(func(t *testing.T, s string) {
		var want strings.Builder
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		if got := string(appendText(nil, s)) + "\n"; got != want.String() {
			t.Fatalf("got %s, want %s", got, want.String())
		}
	})
}

// appendEvent and encoding/json agree on every event, and so do the two ways to
// read it again.
func FuzzEvent(f *testing.F) {
	f.Add("A", "ok", "read", "k", []byte(`[1, {"a" : null}]`), int64(-5), true, int64(9), int64(0), "é", "e")
	f.Fuzz(func(t *testing.T, process, typ, name, key string, value []byte, n int64, token bool, ttl, until int64, client, why string) {
		e := Event{Index: n, Time: ttl, Process: process, Type: Type(typ), F: name, Key: key, Value: value, TTL: ttl, Until: until, Client: client, Error: why}
		if token {
			e.Token, e.Op = &n, &ttl
		}
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		wantErr := enc.Encode(e)
		got, err := appendEvent(nil, &e)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("errors differ: %v, %v", err, wantErr)
		}
		if err == nil && string(got) != want.String() {
			t.Fatalf("got  %s\nwant %s", got, want.String())
		}
		var short, long record
		line := bytes.TrimSuffix(got, []byte("\n"))
		if !parseCanonical(line, &short) {
			return
		}
		if err := parseJSON(line, &long); err != nil {
			t.Fatalf("only the short way reads %s: %v", line, err)
		}
		if s, l := short.event(n, ttl), long.event(n, ttl); !reflect.DeepEqual(s, l) || short.index != long.index || short.time != long.time {
			t.Fatalf("short way %v\nlong way  %v", s, l)
		}
	})
}

// What Recorder writes takes the short way.
func TestCanonicalLinesTakeTheShortWay(t *testing.T) {
	b, err := os.ReadFile("testdata/gc-pause.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var short, long record
		line = bytes.TrimSuffix(line, []byte("\n"))
		if !parseCanonical(line, &short) {
			t.Errorf("takes the long way: %s", line)
		}
		if err := parseJSON(line, &long); err != nil || !reflect.DeepEqual(short.event(0, 0), long.event(0, 0)) {
			t.Errorf("%v: %s", err, line)
		}
	}
}
