package client

import (
	"context"
	"fmt"
	"os"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func init() { selfexec.Register("worker", worker) }

// worker is the client process of a backend that is part of this program.
func worker(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: lockcheck worker BACKEND")
		return 2
	}
	b, err := backends.Find(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lockcheck worker:", err)
		return 2
	}
	if err := Serve(context.Background(), os.Stdin, os.Stdout, b); err != nil {
		fmt.Fprintf(os.Stderr, "lockcheck worker %s: %v\n", b.Name, err)
		return 1
	}
	return 0
}
