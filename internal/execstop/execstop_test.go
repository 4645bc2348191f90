//go:build linux && amd64

package execstop

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patch is a Patch made of a function.
type patch struct {
	files []*os.File
	apply func(t *Tracee, fds []int) error
}

func (p patch) Files() []*os.File                { return p.files }
func (p patch) Apply(t *Tracee, fds []int) error { return p.apply(t, fds) }

// getppid makes a system call in the process and checks the answer.
var getppid = patch{apply: func(t *Tracee, _ []int) error {
	got, err := t.Syscall(unix.SYS_GETPPID)
	if err == nil && int(got) != os.Getpid() {
		err = fmt.Errorf("getppid: %d, want %d", got, os.Getpid())
	}
	return err
}}

func needTrace(t *testing.T) {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
}

// children returns the ids of processes that this one has not waited for.
func children(t *testing.T) string {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the thread is gone
			t.Fatal(err)
		}
		pids = append(pids, strings.Fields(string(b))...)
	}
	return strings.Join(pids, " ")
}

func TestProgramRunsAsIfNothingHadHappened(t *testing.T) {
	needTrace(t)
	t.Run("arguments, environment and status", func(t *testing.T) {
		cmd := exec.Command("sh", "-c", `echo "$0 $1 $A"; exit 7`, "a", "b")
		cmd.Env = append(os.Environ(), "A=c")
		var out strings.Builder
		cmd.Stdout = &out
		if err := Start(cmd, Options{}, getppid); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("ended with %v, want status 7", err)
		}
		if out.String() != "a b c\n" {
			t.Errorf("output %q, want a b c", out.String())
		}
	})
	t.Run("no tracer, no signal blocked", func(t *testing.T) {
		cmd := exec.Command("grep", "-E", "TracerPid|SigBlk", "/proc/self/status")
		var out strings.Builder
		cmd.Stdout = &out
		if err := Start(cmd, Options{}, getppid); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if want := "TracerPid:\t0\nSigBlk:\t0000000000000000\n"; out.String() != want {
			t.Errorf("status %q, want %q", out.String(), want)
		}
	})
	t.Run("files", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		p := patch{files: []*os.File{w}, apply: func(t *Tracee, fds []int) error {
			if len(fds) != 1 || fds[0] != 4 {
				return fmt.Errorf("descriptors %v, want 4", fds)
			}
			_, err := t.Syscall(unix.SYS_CLOSE, uintptr(fds[0]))
			return err
		}}
		for fd, want := range map[int]int{3: 0, 4: 1} {
			cmd := exec.Command("test", "-e", fmt.Sprintf("/proc/self/fd/%d", fd))
			cmd.ExtraFiles = []*os.File{r}
			if err := Start(cmd, Options{}, getppid, p); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the status says the same
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("test -e of descriptor %d ended with %d, want %d", fd, got, want)
			}
		}
	})
}

func TestSignalThatArrivesMeanwhileIsDelivered(t *testing.T) {
	needTrace(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR1} {
		cmd := exec.Command("sleep", "60")
		kill := patch{apply: func(t *Tracee, _ []int) error { return syscall.Kill(t.PID(), sig) }}
		if err := Start(cmd, Options{}, kill, getppid); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != sig {
			t.Errorf("ended with %v, want signal %v", err, sig)
		}
	}
}

func TestSystemCallThatFails(t *testing.T) {
	needTrace(t)
	p := patch{apply: func(t *Tracee, _ []int) error {
		_, err := t.Syscall(unix.SYS_CLOSE, 12345)
		return err
	}}
	if err := Start(exec.Command("true"), Options{}, p); !errors.Is(err, unix.EBADF) {
		t.Errorf("error %v, want EBADF", err)
	}
}

func TestFailedStartLeavesNothingBehind(t *testing.T) {
	needTrace(t)
	no := errors.New("no")
	for _, tt := range []struct {
		name    string
		cmd     *exec.Cmd
		options Options
		patch   Patch
		want    string
	}{
		{"no such program", exec.Command("/does/not/exist"), Options{}, getppid, "no such file"},
		{"patch fails", exec.Command("sleep", "60"), Options{}, patch{apply: func(*Tracee, []int) error { return no }}, "no"},
		{"killed meanwhile", exec.Command("sleep", "60"), Options{}, patch{apply: func(t *Tracee, _ []int) error {
			if err := syscall.Kill(t.PID(), syscall.SIGKILL); err != nil {
				return err
			}
			_, err := t.Syscall(unix.SYS_GETPID)
			return err
		}}, "killed"},
		{"program that is not there", exec.Command("true"), Options{Program: "/does/not/exist"}, getppid, "find the program"},
		{"exits before the program", exec.Command("true"), Options{Program: "sleep"}, getppid, "exited with status 0"},
		{"never gets to the program", exec.Command("sleep", "60"), Options{Program: "true", Patience: 50 * time.Millisecond}, getppid, "exec of true: not reached within 50ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Start(tt.cmd, tt.options, tt.patch)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			if pids := children(t); pids != "" {
				t.Errorf("processes %s are left", pids)
			}
		})
	}
}

func TestProgramToWaitFor(t *testing.T) {
	needTrace(t)
	real, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		argv    []string
		program string
		want    string // that runs when the patch is applied
	}{
		{"the first", []string{"sh", "-c", "exec sleep 0"}, "", "sh"},
		{"after a script", []string{"sh", "-c", "exec sleep 0"}, "sleep", "sleep"},
		{"after two", []string{"sh", "-c", "exec bash -c 'exec sleep 0'"}, "sleep", "sleep"},
		{"through a link", []string{"sh", "-c", "exec sleep 0"}, link, "sleep"},
		{"after wrappers", []string{"env", "A=b", "nice", "sleep", "0"}, "", "sleep"},
		{"a signal on the way", []string{"sh", "-c", "trap : USR1; kill -USR1 $$; exec sleep 0"}, "sleep", "sleep"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got string
			p := patch{apply: func(t *Tracee, _ []int) error {
				if err := getppid.apply(t, nil); err != nil {
					return err
				}
				exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", t.PID()))
				got = filepath.Base(exe)
				return err
			}}
			cmd := exec.Command(tt.argv[0], tt.argv[1:]...)
			if err := Start(cmd, Options{Program: tt.program}, p); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			want, err := exec.LookPath(tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if want, err = filepath.EvalSymlinks(want); err != nil {
				t.Fatal(err)
			}
			if got != filepath.Base(want) {
				t.Errorf("patched %s, want %s", got, want)
			}
		})
	}
}

func TestConcurrentStarts(t *testing.T) {
	needTrace(t)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			cmd := exec.Command("true")
			if err := Start(cmd, Options{}, getppid); err != nil {
				t.Error(err)
				return
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestRedirectTwice(t *testing.T) {
	needTrace(t)
	p := patch{apply: func(t *Tracee, _ []int) error {
		f, ok := t.Function("__vdso_time")
		if !ok {
			return errors.New("no __vdso_time")
		}
		if err := t.Redirect("__vdso_time", f+1); err != nil {
			return err
		}
		if got, err := Redirected(t.PID(), "__vdso_time"); err != nil || got != f+1 {
			return fmt.Errorf("leads to %#x (%v), want %#x", got, err, f+1)
		}
		return t.Redirect("__vdso_time", f)
	}}
	err := Start(exec.Command("true"), Options{}, p)
	if err == nil || !strings.Contains(err.Error(), "redirected already") {
		t.Errorf("error %v", err)
	}
}
