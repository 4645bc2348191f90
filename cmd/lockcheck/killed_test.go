package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy"
)

// patience bounds the wait for what should happen in milliseconds.
const patience = 20 * time.Second

// TestEndedHarnessLeavesNothing ends the program in the middle of a run, while a
// client is frozen, and looks for what is left: no process, no temporary file,
// and a history that can be checked.
func TestEndedHarnessLeavesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc")
	}
	tests := []struct {
		signal  syscall.Signal
		backend string
		status  int // of the program; -1 if it was killed
	}{
		{syscall.SIGKILL, "redis", -1},
		{syscall.SIGKILL, "etcd", -1},
		{syscall.SIGKILL, "postgres-session", -1},
		{syscall.SIGINT, "redis", exitInterrupted},
		{syscall.SIGTERM, "etcd", exitInterrupted},
		{syscall.SIGTERM, "postgres-xact", exitInterrupted},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%v/%s", tt.signal, tt.backend), func(t *testing.T) {
			software, _, _ := strings.Cut(tt.backend, "-")
			if _, err := deploy.Find(t.Context(), software, ""); err != nil {
				t.Skip(err)
			}
			tmp, err := os.MkdirTemp("", "lockcheck-test-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(tmp)
			if err := os.Chmod(tmp, 0o755); err != nil { // for servers that are not root
				t.Fatal(err)
			}
			out := t.TempDir()
			mark := fmt.Sprintf("LOCKCHECK_TEST_RUN=%s-%d", t.Name(), time.Now().UnixNano())
			cmd := lockcheck(t, "reproduce", "gc-pause", "--backend", tt.backend, "--ttl", "60s", "--out", out)
			cmd.Env = append(os.Environ(), mark, "TMPDIR="+tmp)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			dir := waitForFreeze(t, out)
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.status {
				t.Errorf("exit status is %d, want %d", got, tt.status)
			}
			await(t, "no process of the run is left", func() (bool, string) {
				left := processesWith(mark)
				return len(left) == 0, strings.Join(left, "\n")
			})
			await(t, "no temporary file is left", func() (bool, string) {
				left, err := os.ReadDir(tmp)
				return err == nil && len(left) == 0, fmt.Sprint(left, err)
			})
			check := lockcheck(t, "check", dir)
			text, _ := check.CombinedOutput()
			if got := check.ProcessState.ExitCode(); got != exitInconclusive {
				t.Errorf("check of what was recorded has status %d, want %d:\n%s", got, exitInconclusive, text)
			}
		})
	}
}

// lockcheck is a command of this program: the test binary under its name.
func lockcheck(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "lockcheck")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	return exec.Command(link, args...)
}

// waitForFreeze waits until a run in out has frozen its client, and returns its
// folder.
func waitForFreeze(t *testing.T, out string) (dir string) {
	t.Helper()
	await(t, "a client is frozen", func() (bool, string) {
		files, _ := filepath.Glob(filepath.Join(out, "*", "history.jsonl"))
		if len(files) == 0 {
			return false, "there is no history"
		}
		dir = filepath.Dir(files[0])
		history, err := os.ReadFile(files[0])
		return bytes.Contains(history, []byte(`"type":"ok","f":"pause"`)), fmt.Sprintf("%s %v", history, err)
	})
	return dir
}

// await waits until done reports true, and fails with what it said last.
func await(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ok, last := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v until %s: %s", patience, what, last)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// processesWith lists the processes whose environment has the variable.
func processesWith(variable string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, env...), append([]byte{0}, variable...)) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		found = append(found, filepath.Dir(file)+" "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
	}
	return found
}
