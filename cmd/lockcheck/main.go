// Command lockcheck finds out whether a distributed lock keeps its promises.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func main() {
	selfexec.Main() // this program is also the clients and servers of its runs
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once: what is left then the guard ends
	a := &app{stdout: os.Stdout, stderr: os.Stderr}
	return a.execute(ctx, os.Args[1:])
}
