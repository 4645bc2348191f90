package checker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// TestSearchGivesUp makes sure that a search which runs out of memory or time
// is no verdict.
func TestSearchGivesUp(t *testing.T) {
	// A valid register with two values, one operation after the other: as
	// many steps as operations, each of which keeps a set of all of them.
	long := &history.History{Keys: []string{"k"}, Processes: []string{"A"}, Values: []string{"0", "1"}}
	for i := range 100_000 {
		o := history.Op{Kind: history.KindRead, Value: int32(i / 2 % 2), Call: int64(2 * i), Ret: int64(2*i + 1), Outcome: history.Done}
		if i%2 == 0 {
			o.Kind = history.KindWrite
		}
		long.Ops = append(long.Ops, o)
	}
	p := CheckModel(long, Options{Model: "register", Timeout: time.Minute})
	if want := fmt.Sprintf("within %d MB", searchMemory>>20); p.Verdict != Unknown || !strings.Contains(p.Why, want) {
		t.Errorf("%s: %s, want unknown, %s", p.Verdict, p.Why, want)
	}

	long.Ops = long.Ops[:20_000]
	if p := CheckModel(long, Options{Model: "register"}); p.Verdict != Held {
		t.Errorf("%s: %s, want held", p.Verdict, p.Why)
	}

	// Many that overlap, and one that fits nowhere: it has to try all orders.
	hard := concurrent(modelRegister, 2_000, 30, 0, 1)
	for i := range hard.Ops {
		if o := &hard.Ops[i]; o.Value >= 0 {
			o.Value %= 3
		}
	}
	for i := len(hard.Ops) / 2; ; i++ {
		if o := &hard.Ops[i]; o.Kind == history.KindRead {
			o.Value = 3 // as if it were the initial value
			break
		}
	}
	const limit = 100 * time.Millisecond
	p = CheckModel(hard, Options{Model: "register", Timeout: limit, NoSecondOpinion: true})
	if want := "did not end within 100ms"; p.Verdict != Unknown || !strings.Contains(p.Why, want) {
		t.Errorf("%s: %s, want unknown, %s", p.Verdict, p.Why, want)
	}
}
