package guard

import (
	"crypto/rand"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A process that has left its group and its session is found by what it was started
// with, and one that was started with something else is left alone.
func TestStraysAreEnded(t *testing.T) {
	mark := "LOCKCHECK_TEST_STRAY=" + rand.Text()
	start := func(variable string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; read never")
		cmd.Env = append(os.Environ(), variable)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	stray, other := start(mark), start(mark+"-and-more")
	EndStrays(mark)
	_ = stray.Wait()
	if got := stray.ProcessState.Sys().(syscall.WaitStatus); !got.Signaled() || got.Signal() != syscall.SIGKILL {
		t.Errorf("the stray ended as %v", stray.ProcessState)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other one: %v", err)
	}
}
