package checker

import (
	"fmt"
	"os"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

func TestZZ(t *testing.T) {
	h, err := history.Open(os.Getenv("ZZ"), history.ReadOptions{})
	if err != nil {
		t.Skip()
	}
	f, _ := os.Create("/tmp/perf/cpu.prof")
	pprof.StartCPUProfile(f)
	for range 5 {
		s := time.Now()
		Check(h, Options{NoSecondOpinion: true})
		a := time.Since(s)
		s = time.Now()
		r := Check(h, Options{})
		fmt.Println("without", a, "with second", time.Since(s), r.Property(Mutex).Second)
	}
	pprof.StopCPUProfile()
}
