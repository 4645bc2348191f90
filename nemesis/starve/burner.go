package starve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

const burnerRole = "burner"

func init() { selfexec.Register(burnerRole, burn) }

// Anywhere is the processor of a burner that may run on all.
const Anywhere = -1

// burn uses up processor time, on the processor that its argument names, until
// it is killed.
func burn(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, burnerRole+": want the number of a processor, or -1")
		return 2
	}
	cpu, err := strconv.Atoi(args[0])
	if err == nil && cpu != Anywhere {
		runtime.LockOSThread()
		err = SetAffinity(0, CPUs{cpu})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, burnerRole+":", err)
		return 1
	}
	debug.SetGCPercent(-1)
	fmt.Println("ready")
	for n := uint64(0); ; n++ {
	}
}

// Burners are processes that use up processor time. Each is in a session of its
// own, so that the scheduler weighs each against the processes to be starved,
// also where it weighs sessions against each other (autogroups). They end with
// this program at the latest.
type Burners struct{ cmds []*exec.Cmd }

// StartBurners starts n burners on one processor, or [Anywhere], and returns
// when all are about to burn. The caller calls Close, also after an error.
func StartBurners(ctx context.Context, n, cpu int) (*Burners, error) {
	b := &Burners{}
	argv, err := selfexec.Command(burnerRole, strconv.Itoa(cpu))
	if err != nil {
		return b, err
	}
	var ready []*bufio.Reader
	for range n {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = "/"
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return b, err
		}
		err = guard.StartBy(cmd, func() error {
			newSession(cmd)
			return cmd.Start()
		})
		if err != nil {
			return b, fmt.Errorf("start a process that uses up processor time: %w", err)
		}
		b.cmds = append(b.cmds, cmd)
		ready = append(ready, bufio.NewReader(out))
	}
	defer context.AfterFunc(ctx, func() {
		for _, cmd := range b.cmds {
			_ = cmd.Process.Kill() // so that reading ends
		}
	})()
	for i, r := range ready {
		if _, err := r.ReadString('\n'); err != nil {
			return b, fmt.Errorf("process %d, which is to use up processor time, does not begin: %w",
				b.cmds[i].Process.Pid, errors.Join(err, ctx.Err()))
		}
	}
	return b, nil
}

// PIDs returns the processes.
func (b *Burners) PIDs() []int {
	var pids []int
	for _, cmd := range b.cmds {
		pids = append(pids, cmd.Process.Pid)
	}
	return pids
}

// Used returns the processor time that all have used.
func (b *Burners) Used() (time.Duration, error) {
	var sum time.Duration
	for _, cmd := range b.cmds {
		d, err := processorTime(cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// Close ends the burners. It may be called repeatedly.
func (b *Burners) Close(ctx context.Context) error {
	var errs []error
	for _, cmd := range b.cmds {
		errs = append(errs, end(ctx, cmd))
	}
	return errors.Join(errs...)
}

// end kills a process that was started by guard, and waits for it.
func end(ctx context.Context, cmd *exec.Cmd) error {
	if err := guard.Kill(ctx, cmd); err != nil {
		return err
	}
	_ = cmd.Wait() // only says that it was killed
	guard.Forget(cmd)
	return nil
}
