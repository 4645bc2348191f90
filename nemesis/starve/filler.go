package starve

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

const fillerRole = "memory-filler"

func init() { selfexec.Register(fillerRole, fill) }

// fill takes as much memory as its argument says once its input says so, and
// keeps it until its input ends.
func fill(args []string) int {
	fail := func(what any) int {
		fmt.Fprintln(os.Stderr, fillerRole+":", what)
		return 1
	}
	if len(args) != 1 {
		return fail("want a number of bytes")
	}
	size, err := strconv.Atoi(args[0])
	if err != nil || size < 0 {
		return fail("want a number of bytes")
	}
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return fail(err)
	}
	memory := make([]byte, size)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(memory)
	return 0
}

// Filler is a process that takes memory when it is told to. It ends with this
// program at the latest.
type Filler struct {
	cmd *exec.Cmd
	in  io.Writer
}

// StartFiller starts a process that is to take so many bytes. The caller calls
// Close.
func StartFiller(size int64) (*Filler, error) {
	argv, err := selfexec.Command(fillerRole, strconv.FormatInt(size, 10))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	// Without memory it could not take a signal, and its end would be noisy.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := guard.Start(cmd); err != nil {
		return nil, fmt.Errorf("start a process that takes memory: %w", err)
	}
	return &Filler{cmd, in}, nil
}

// PID returns the process.
func (f *Filler) PID() int { return f.cmd.Process.Pid }

// Fill has it take the memory, and does not wait until it has.
func (f *Filler) Fill() error {
	_, err := f.in.Write([]byte{1})
	return err
}

// Close ends it, which gives its memory back.
func (f *Filler) Close(ctx context.Context) error { return end(ctx, f.cmd) }
