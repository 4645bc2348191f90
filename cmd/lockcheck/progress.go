package main

import (
	"fmt"
	"os"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

const (
	progressAfter = time.Second            // what takes less needs none
	progressEvery = 200 * time.Millisecond // a new line no more often than this
)

// progress has the reading of a large file shown on the terminal, with an
// estimate of the time left. The caller calls done when the reading has ended.
func (a *app) progress(o *history.ReadOptions, size int64) (done func()) {
	width, tty := terminal(a.stderr)
	if !tty || a.quiet || os.Getenv("TERM") == "dumb" || size == 0 {
		return func() {}
	}
	start := time.Now()
	var last time.Time
	shown := false
	clearLine := func() { fmt.Fprintf(a.stderr, "\r%*s\r", width-1, "") }
	o.Progress = func(n int64) {
		now := time.Now()
		if now.Sub(start) < progressAfter || now.Sub(last) < progressEvery {
			return
		}
		last, shown = now, true
		left := time.Duration(float64(now.Sub(start)) * float64(size-n) / float64(max(n, 1)))
		fmt.Fprintf(a.stderr, "\rreading: %d %%, %v left ", 100*n/size, left.Round(time.Second))
	}
	return func() {
		if shown {
			clearLine()
		}
	}
}
