package harness

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// Each line of a story is what the resource applied: who, r or w, and the value. A
// write is acknowledged unless it ends in a question mark.
func TestUpdatesThatNobodyBuildsOnAreLost(t *testing.T) {
	for _, c := range []struct {
		name, story string
		lost, of    int
		missing     string
	}{
		{"one after the other", "A r -, A w 1, B r 1, B w 2, A r 2, A w 3", 0, 3, ""},
		{"two read the same", "A r -, B r -, A w 1, B w 2", 1, 2, ""},
		{"a late write undoes many", "A r -, B r -, B w 1, C r 1, C w 2, B r 2, B w 3, A w 4", 3, 4, ""},
		{"and what builds on it is kept", "A r -, B r -, B w 1, A w 2, C r 2, C w 3", 1, 3, ""},
		{"what was not acknowledged does not count", "A r -, B r -, A w 1?, B w 2", 0, 1, ""},
		{"but it may undo", "A r -, B r -, A w 1, B w 2?", 1, 1, ""},
		{"a rejected write undoes nothing", "A r -, B r -, B w 1, A x 2", 0, 1, ""},
		{"a read that nothing follows", "A r -, A w 1, B r 1", 0, 1, ""},
		{"only writes", "A w 1, B w 2", 0, 0, "nothing was read and then written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines strings.Builder
			index := int64(0)
			put := func(e history.Event) int64 {
				e.Index, e.Time, e.Key = index, index*1000, "k"
				b, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				lines.Write(append(b, '\n'))
				index++
				return e.Index
			}
			for _, part := range strings.Split(c.story, ", ") {
				f := strings.Fields(part)
				value, unknown := strings.CutSuffix(f[2], "?")
				what, applied, answered := history.Write, history.OK, history.OK
				switch {
				case f[1] == "r":
					what = history.Read
				case f[1] == "x":
					applied, answered = history.Fail, history.Fail
				case unknown:
					answered = history.Info
				}
				text := json.RawMessage(`"` + strings.Trim(value, "-") + `"`)
				op := put(history.Event{Process: f[0], Type: history.Invoke, F: what, Value: text})
				put(history.Event{Process: history.Resource, Type: applied, F: what, Value: text, Client: f[0], Op: &op})
				put(history.Event{Process: f[0], Type: answered, F: what, Value: text})
			}
			h, err := history.Decode(strings.NewReader(lines.String()), history.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f := Measure(h, []string{"lost-updates"})[0]
			want := 0.0
			if c.of > 0 {
				want = 100 * float64(c.lost) / float64(c.of)
			}
			if f.Missing != c.missing || f.Value != want || f.Of != c.of {
				t.Errorf("%+v, want %d of %d lost, missing %q", f, c.lost, c.of, c.missing)
			}
		})
	}
}

// Each line of a story is when, in milliseconds, who, and what of the lock: a lease of
// 100 ms is asked for and granted (+) or refused (-) in one millisecond, or released (r).
func TestGrantsThatAreForgottenAreLost(t *testing.T) {
	for _, c := range []struct {
		name, story string
		lost, of    int
	}{
		{"granted twice within a lease", "0 A +, 50 B +", 1, 1},
		{"refused within the lease", "0 A +, 50 B -", 0, 1},
		{"refused, and then granted", "0 A +, 50 B -, 60 B +", 1, 1},
		{"granted after the lease", "0 A +, 150 B +", 0, 0},
		{"granted after a release", "0 A +, 20 A r, 50 B +", 0, 0},
		{"granted to the same client", "0 A +, 50 A +", 0, 0},
		{"each grant counts", "0 A +, 50 B +, 80 C -", 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines strings.Builder
			index := int64(0)
			put := func(e history.Event) {
				e.Index, e.Key = index, "k"
				b, err := json.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				lines.Write(append(b, '\n'))
				index++
			}
			for _, part := range strings.Split(c.story, ", ") {
				f := strings.Fields(part)
				ms, err := strconv.ParseInt(f[0], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				what, answer, ttl := history.Acquire, history.OK, int64(100e6)
				switch f[2] {
				case "-":
					answer, ttl = history.Fail, 0
				case "r":
					what, ttl = history.Release, 0
				}
				put(history.Event{Time: ms * 1e6, Process: f[1], Type: history.Invoke, F: what})
				put(history.Event{Time: (ms + 1) * 1e6, Process: f[1], Type: answer, F: what, TTL: ttl})
			}
			h, err := history.Decode(strings.NewReader(lines.String()), history.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f := Measure(h, []string{"lost-grants"})[0]
			if c.of == 0 && f.Missing == "" || f.Of != c.of || c.of > 0 && f.Value != 100*float64(c.lost)/float64(c.of) {
				t.Errorf("%+v, want %d of %d", f, c.lost, c.of)
			}
		})
	}
}
