package matrix

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// Each event of a story is who, what, and how it came out: a(cquire), w(rite), with + for
// ok, - for fail, ? for unknown; "w+" of R is what the resource applied of the
// write before, "w-" what it rejected.
func TestWhatBecameOfLateWrites(t *testing.T) {
	for _, c := range []struct {
		name, story string
		violated    bool
		want        Stale
	}{
		{"accepted", "A a+, B a+, B w R+ +, A w R+ +", true, Accepted},
		{"rejected by the resource", "A a+, B a+, B w R+ +, A w R- -", false, Rejected},
		{"of a transaction that died", "A a+, B a+, B w R+ +, A w ?", false, Rejected},
		{"held back by the client", "A a+, B a+, B w R+ +", false, NotSent},
		{"in time", "A a+, A w R+ +, B a+, B w R+ +", false, NotSent},
		{"in the end in time", "A a+, A w R+ ?, B a+", false, NotSent},
		{"nobody else", "A a+, A w R+ +, B a-", false, NoneOther},
		{"the same client again", "A a+, A a+, A w R+ +", false, NoneOther},
		{"nothing at all", "A a-", false, ""},
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
			outcome := map[byte]history.Type{'+': history.OK, '-': history.Fail, '?': history.Info}
			for _, part := range strings.Split(c.story, ", ") {
				f := strings.Fields(part)
				what := history.Acquire
				if f[1][0] == 'w' {
					what = history.Write
				}
				op := put(history.Event{Process: f[0], Type: history.Invoke, F: what, Value: json.RawMessage(`"v"`)})
				for _, r := range f[2:] {
					if r[0] == 'R' {
						put(history.Event{Process: history.Resource, Type: outcome[r[1]], F: what, Client: f[0], Op: &op})
					}
				}
				last := f[len(f)-1]
				put(history.Event{Process: f[0], Type: outcome[last[len(last)-1]], F: what})
			}
			h, err := history.Decode(strings.NewReader(lines.String()), history.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := staleOf(h, c.violated); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestTheRateOfARunIsDividedByTime(t *testing.T) {
	var h history.History
	for i := range 4 * parts {
		h.Ops = append(h.Ops, history.Op{Kind: history.KindAcquire, Outcome: history.Done, Ret: int64(i), RetIndex: int32(i)})
	}
	sum := 0.0
	for _, n := range series(&h) {
		sum += n
	}
	if len(series(&h)) != parts || sum != 4*parts {
		t.Errorf("%v: %v grants, want %d", series(&h), sum, 4*parts)
	}
}
