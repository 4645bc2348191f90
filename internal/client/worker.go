package client

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"

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
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1) // there is one operation at a time: more processors only look for work
	}
	if err := Serve(context.Background(), polled(os.Stdin), os.Stdout, b); err != nil {
		fmt.Fprintf(os.Stderr, "lockcheck worker %s: %v\n", b.Name, err)
		return 1
	}
	return 0
}

// polled returns a pipe as one that is polled by the runtime: a read that waits then
// keeps no thread, and no processor, until the runtime notices that it does.
func polled(in *os.File) *os.File {
	info, err := in.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return in // a terminal would stay changed for others
	}
	fd := in.Fd()
	if syscall.SetNonblock(int(fd), true) != nil {
		return in
	}
	return os.NewFile(fd, in.Name())
}
