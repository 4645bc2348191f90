package checker

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/history"
)

// TestSearchGivesUp makes sure that a search which runs out of memory or time
// is no verdict.
func TestSearchGivesUp(t *testing.T) {
	// A valid register with two values, one operation after the other: as
	// many steps as operations, each of which keeps a set of all of them.
	easy := &history.History{Keys: []string{"k"}, Processes: []string{"A"}, Values: []string{"0", "1"}}
	for i := range 20_000 {
		o := history.Op{Kind: history.KindRead, Value: int32(i / 2 % 2), Call: int64(2 * i), Ret: int64(2*i + 1), Outcome: history.Done}
		if i%2 == 0 {
			o.Kind = history.KindWrite
		}
		easy.Ops = append(easy.Ops, o)
	}
	c := &objectCase{h: easy, m: Model{Name: modelRegister}}
	in, initial, _ := c.translate(allPositions(easy))
	for memory, want := range map[int64]porcupine.CheckResult{16 << 20: porcupine.Unknown, searchMemory: porcupine.Ok} {
		if got, why := search(objectModel(c.m, initial), in, time.Minute, memory); got != want || got == porcupine.Unknown && !strings.Contains(why, "within 16 MB") {
			t.Errorf("%d MB: %s %s, want %s", memory>>20, got, why, want)
		}
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
	p := CheckModel(hard, Options{Model: "register", Timeout: limit, NoSecondOpinion: true})
	if want := "did not end within 100ms"; p.Verdict != Unknown || !strings.Contains(p.Why, want) {
		t.Errorf("%s: %s, want unknown, %s", p.Verdict, p.Why, want)
	}
}
