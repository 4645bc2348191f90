package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy"
)

// stalledScenario is a run in which nobody works while B waits for A's lease to end.
const stalledScenario = `name: stalled
summary: B gets the lock when the lease of A has ended
clients: [A, B]
ttl: 600ms
steps:
  - {client: A, do: acquire}
  - {client: B, do: acquire, within: 10s}
  - {client: B, do: release, may_fail: true}
`

// stopFor is longer than its lease, which is what is tested.
const stopFor = 900 * time.Millisecond

// TestStoppedHarnessProvesNothing stops the program for longer than a lease in the
// middle of a run in which nothing is wrong.
func TestStoppedHarnessProvesNothing(t *testing.T) {
	out := t.TempDir()
	file := filepath.Join(t.TempDir(), "stalled.yaml")
	if err := os.WriteFile(file, []byte(stalledScenario), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := lockcheck(t, "run", file, "--backend", "memory", "--gate", "lease,token,release", "--out", out)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "a lock is granted", func() (bool, string) {
		history, err := os.ReadFile(inRun(out, "history.jsonl"))
		return strings.Contains(string(history), `"type":"ok","f":"acquire"`), fmt.Sprint(err)
	})
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(stopFor)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitInconclusive || !strings.Contains(text.String(), "lockcheck itself did not run for") {
		t.Errorf("exit status is %d, want %d with the reason:\n%s", got, exitInconclusive, &text)
	}
}

// inRun returns the path of a file in the only run's folder.
func inRun(out, name string) string {
	files, _ := filepath.Glob(filepath.Join(out, "*", name))
	if len(files) == 0 {
		return filepath.Join(out, "no run yet")
	}
	return files[0]
}

// TestScarceMachine runs the program where it does not get what it needs: it must
// say what is missing, and blame no lock.
func TestScarceMachine(t *testing.T) {
	dies := filepath.Join(t.TempDir(), "redis-server")
	script := "#!/bin/sh\ncase \"$*\" in *--version*) echo 'Redis server v=7.0.15 sha=0'; exit ;; esac\necho 'cannot be configured' >&2; exit 3\n"
	if err := os.WriteFile(dies, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		before string // what the shell does before it becomes the program
		args   []string
		root   bool
		want   string
	}{
		{"disk is full", "ulimit -f 16", []string{"run", "contention", "--backend", "memory"}, false, "history is incomplete"},
		{"few descriptors", "ulimit -n 16", []string{"run", "no-fault", "--backend", "memory"}, false, "too many open files"},
		{"no /proc", "umount -l /proc", []string{"run", "no-fault", "--backend", "memory"}, true, "/proc"},
		{"server dies", "", []string{"run", "no-fault", "--backend", "redis", "--bin", "redis=" + dies}, false, "cannot be configured"},
		{"no temporary folder", "export TMPDIR=/nonexistent", []string{"run", "no-fault", "--backend", "redis", "--bin", "redis=" + dies}, false, "TMPDIR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := lockcheck(t, append(tt.args, "--out", filepath.Join(t.TempDir(), "runs"))...)
			within := []string{"sh", "-c", tt.before + "\n" + `exec "$0" "$@"`, cmd.Path}
			if tt.root {
				if os.Geteuid() != 0 {
					t.Skip("only root can unmount")
				}
				within = append([]string{"unshare", "--mount"}, within...)
			}
			text, err := exec.Command(within[0], append(within[1:], cmd.Args[1:]...)...).CombinedOutput()
			var exit *exec.ExitError
			if e, ok := err.(*exec.ExitError); ok {
				exit = e
			}
			if exit == nil || exit.ExitCode() != exitEnvironment || !strings.Contains(string(text), tt.want) || strings.Contains(string(text), "goroutine ") {
				t.Errorf("it ended with %v, want status %d and %q:\n%s", err, exitEnvironment, tt.want, text)
			}
		})
	}
}

// TestPlacesWithSpaces has runs, temporary files and the program itself in folders
// whose names need quotes, several runs at a time, with no home to write to.
func TestPlacesWithSpaces(t *testing.T) {
	base, err := os.MkdirTemp("", "lock check é ")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil { // for servers that are not root
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "lockcheck")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"memory", "redis", "etcd", "postgres-session"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			if software, _, _ := strings.Cut(backend, "-"); software != "memory" {
				if _, err := deploy.Find(t.Context(), software, ""); err != nil {
					t.Skip(err)
				}
			}
			out := filepath.Join(base, "the runs", backend)
			cmd := exec.Command(link, "run", "no-fault", "--backend", backend, "--ttl", "10s", "--out", out)
			cmd.Env = append(os.Environ(), "TMPDIR="+base, "HOME=/nonexistent")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			for _, private := range []string{out, filepath.Dir(inRun(out, "run.json"))} {
				if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s is open to others: %v, %v", private, info, err)
				}
			}
		})
	}
}

// TestListensOnLoopbackOnly looks at what a run's processes listen on while proxies,
// a resource and servers are up.
func TestListensOnLoopbackOnly(t *testing.T) {
	for _, tt := range []struct{ backend, resource string }{{"redis-sentinel", "unfenced"}, {"etcd", "fenced"}, {"postgres-session", "postgres"}} {
		t.Run(tt.backend, func(t *testing.T) {
			t.Parallel()
			software, _, _ := strings.Cut(tt.backend, "-")
			if _, err := deploy.Find(t.Context(), software, ""); err != nil {
				t.Skip(err)
			}
			file := filepath.Join(t.TempDir(), "cut.yaml")
			text := "name: cut\nsummary: a holder that is cut off\nclients: [A, B]\nttl: 60s\nsteps:\n" +
				"  - {client: A, do: acquire}\n  - {fault: partition, on: A}\n  - {fault: pause, on: A}\n" +
				"  - {client: B, do: acquire, within: 60s}\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			mark := fmt.Sprintf("LOCKCHECK_TEST_RUN=%s-%d", t.Name(), time.Now().UnixNano())
			cmd := lockcheck(t, "run", file, "--backend", tt.backend, "--resource", tt.resource, "--out", out)
			cmd.Env = append(os.Environ(), mark)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Signal(syscall.SIGINT)
				_ = cmd.Wait()
			}()
			waitForFreeze(t, out)
			listening := 0
			for _, p := range processesWith(mark) {
				dir, _, _ := strings.Cut(p, " ")
				for _, addr := range listens(t, dir) {
					listening++
					if !strings.HasPrefix(addr, "0100007F:") && !strings.HasPrefix(addr, "00000000000000000000000001000000:") {
						t.Errorf("%s listens on %s, which is not the loopback interface", p, addr)
					}
				}
			}
			if listening < 3 { // a server, a proxy and the resource
				t.Errorf("only %d listening sockets were found: the test does not see them", listening)
			}
		})
	}
}

// listens returns the local addresses, as in /proc/net, at which a process accepts
// connections or datagrams.
func listens(t *testing.T, process string) []string {
	t.Helper()
	own := map[string]bool{}
	fds, _ := filepath.Glob(filepath.Join(process, "fd", "*"))
	for _, fd := range fds {
		target, _ := os.Readlink(fd)
		own[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
	}
	var all []string
	for _, table := range []struct{ name, state string }{{"tcp", "0A"}, {"tcp6", "0A"}, {"udp", "07"}, {"udp6", "07"}} {
		f, err := os.Open(filepath.Join(process, "net", table.name))
		if err != nil {
			continue // it has ended, or there is no IPv6
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			if col := strings.Fields(s.Text()); len(col) > 9 && col[3] == table.state && own[col[9]] {
				all = append(all, col[1])
			}
		}
		f.Close()
	}
	return all
}

// TestFaultsReachNobodyElse names a process of the machine as a target.
func TestFaultsReachNobodyElse(t *testing.T) {
	for _, target := range []string{`"1"`, "init", "../proc/1", "redis-2"} {
		file := filepath.Join(t.TempDir(), "foreign.yaml")
		text := "name: foreign\nsummary: a fault on what the run did not start\nclients: [A]\nsteps:\n  - {client: A, do: acquire}\n  - {fault: kill, on: [" + target + "]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := lockcheck(t, "run", file, "--backend", "memory", "--out", t.TempDir())
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != exitEnvironment && got != exitUsage || !strings.Contains(string(out), "no client and no server is named") {
			t.Errorf("%s: exit status is %d:\n%s", target, got, out)
		}
	}
}
