package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Register("test-harness", harness)
	selfexec.Register("test-escape", escape)
	selfexec.Main()
	os.Exit(m.Run())
}

// started is what the harness of a test says that it started.
type started struct {
	PIDs []int
	Dir  string
}

// harness starts a process with a child, both of which ignore what can be
// ignored, and a third that is stopped and has left the group, and waits.
func harness([]string) int {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	dir, err := TempDir()
	if err != nil {
		return fail(err)
	}
	cmd := exec.Command("sh", "-c", `trap '' TERM INT HUP; sleep 1000 & echo $!; exec "$0" test-escape`, os.Args[0])
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	if err := Start(cmd); err != nil {
		return fail(err)
	}
	s := started{PIDs: []int{cmd.Process.Pid}, Dir: dir}
	for lines := bufio.NewScanner(out); len(s.PIDs) < 3 && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			return fail(err)
		}
		s.PIDs = append(s.PIDs, pid)
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return fail(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// escape starts a process in a session of its own, stops it, and waits.
func escape([]string) int {
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	fmt.Println(cmd.Process.Pid)
	_ = cmd.Wait()
	return 0
}

func startHarness(t *testing.T) (*exec.Cmd, io.Closer, started) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "test-harness")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var s started
	if err := json.NewDecoder(stdout).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if len(s.PIDs) != 3 {
		t.Fatalf("the harness started %v, want 3 processes", s.PIDs)
	}
	for _, pid := range s.PIDs {
		if !alive(pid) {
			t.Fatalf("process %d is gone before the harness is", pid)
		}
	}
	return cmd, stdin, s
}

func alive(pid int) bool {
	p, err := lookup(pid)
	return err == nil && !p.zombie
}

// eventually waits for ok, for as long as it takes a busy machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(poll) {
		if time.Now().After(deadline) {
			t.Fatal("never seen: " + what)
		}
	}
}

func (s started) gone() bool {
	_, err := os.Stat(s.Dir)
	return !slices.ContainsFunc(s.PIDs, alive) && errors.Is(err, os.ErrNotExist)
}

func TestNothingOutlivesTheHarness(t *testing.T) {
	ends := map[string]func(t *testing.T, harness *exec.Cmd, stdin io.Closer){
		"killed":     func(t *testing.T, h *exec.Cmd, _ io.Closer) { h.Process.Kill() },
		"terminated": func(t *testing.T, h *exec.Cmd, _ io.Closer) { h.Process.Signal(syscall.SIGTERM) },
		"exits":      func(t *testing.T, _ *exec.Cmd, stdin io.Closer) { stdin.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			h, stdin, s := startHarness(t)
			if err := os.WriteFile(filepath.Join(s.Dir, "data"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			end(t, h, stdin)
			_ = h.Wait()
			eventually(t, "no process and no folder left", s.gone)
		})
	}
}

// Ctrl-C in a terminal signals the whole foreground process group, in which the
// guard must not be; nor may it heed a signal that is meant for the harness.
func TestGuardOutlivesSignals(t *testing.T) {
	h, _, s := startHarness(t)
	all, err := table()
	if err != nil {
		t.Fatal(err)
	}
	var guards []process
	for _, p := range all {
		if p.ppid == h.Process.Pid && !slices.Contains(s.PIDs, p.pid) {
			guards = append(guards, p)
		}
	}
	if len(guards) != 1 {
		t.Fatalf("the harness has %d other children, want the guard: %+v", len(guards), guards)
	}
	if g := guards[0]; g.pgid != g.pid {
		t.Errorf("the guard is in process group %d, want its own", g.pgid)
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells when it has begun to ignore signals")
	}
	eventually(t, "the guard ignores signals", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", guards[0].pid))
		if err != nil {
			t.Fatal(err)
		}
		_, mask, _ := strings.Cut(string(status), "SigIgn:\t")
		ignored, err := strconv.ParseUint(mask[:16], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return ignored&(1<<(syscall.SIGHUP-1)) != 0 && ignored&(1<<(syscall.SIGTERM-1)) != 0 && ignored&(1<<(syscall.SIGINT-1)) != 0
	})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if err := syscall.Kill(guards[0].pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	_ = h.Process.Kill()
	_ = h.Wait()
	eventually(t, "no process and no folder left", s.gone)
	eventually(t, "the guard gone", func() bool { return !alive(guards[0].pid) })
}

func TestKillEndsTheWholeTree(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `"$0" test-escape & wait`, exe)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(cmd); err != nil {
		t.Fatal(err)
	}
	var escaped int
	if _, err := fmt.Fscanln(out, &escaped); err != nil {
		t.Fatal(err)
	}
	pids, err := Tree(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if len(pids) != 3 || !slices.Contains(pids, escaped) {
		t.Errorf("Tree = %v, want 3 processes, %d among them", pids, escaped)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := Kill(ctx, cmd); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d outlived Kill", pid)
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("Wait = %v, want killed", err)
	}
	Forget(cmd)
	if err := Kill(ctx, cmd); err != nil {
		t.Errorf("Kill of what is gone = %v", err)
	}
}

func TestChildrenSurviveTheThreadThatStartedThem(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux binds children to threads")
	}
	var cmd *exec.Cmd
	start := func() (tid int) {
		thread := make(chan int)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if tid := threadID(); tid == os.Getpid() {
				thread <- 0 // except for the main thread, which is out of the way now
				return
			}
			cmd = exec.Command("sleep", "1000")
			if err := Start(cmd); err != nil {
				t.Error(err)
			}
			thread <- threadID()
		}()
		return <-thread
	}
	tid := start()
	if tid == 0 {
		tid = start()
	}
	if t.Failed() {
		return
	}
	eventually(t, "the thread ended", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
		return err != nil
	})
	if !alive(cmd.Process.Pid) {
		t.Error("the child died with the thread")
	}
	if err := Kill(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	Forget(cmd)
}

func TestStartReportsWhatCannotBeRun(t *testing.T) {
	err := Start(exec.Command("/no/such/program"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start = %v, want not exist", err)
	}
}

func TestRemoveDir(t *testing.T) {
	dir, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(filepath.Base(dir), Prefix) {
		t.Errorf("TempDir = %s, want a name with %s", dir, Prefix)
	}
	for range 2 {
		if err := RemoveDir(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", dir)
	}
}

func TestTree(t *testing.T) {
	tests := []struct {
		name string
		all  []process
		want []int
	}{
		{"gone", []process{{pid: 1}}, nil},
		{"alone", []process{{pid: 1}, {pid: 10, ppid: 1, pgid: 10, start: 5}}, []int{10}},
		{"children before parents, own groups", []process{
			{pid: 12, ppid: 11, pgid: 12, start: 7}, {pid: 11, ppid: 10, pgid: 11, start: 6}, {pid: 10, ppid: 1, pgid: 10, start: 5},
		}, []int{12, 11, 10}},
		{"zombies are left out, their children not", []process{
			{pid: 10, ppid: 1, pgid: 10, start: 5, zombie: true}, {pid: 11, ppid: 10, pgid: 11, start: 6},
		}, []int{11}},
		{"the group of a dead leader", []process{{pid: 11, ppid: 1, pgid: 10, start: 6}}, []int{11}},
		{"another process with the same id", []process{
			{pid: 10, ppid: 1, pgid: 10, start: 9}, {pid: 11, ppid: 10, pgid: 10, start: 9},
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []int
			for _, p := range tree(tt.all, identity{10, 5}) {
				got = append(got, p.pid)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("tree = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestWatchKeepsWhatWasNotTakenBack(t *testing.T) {
	b := watch(strings.NewReader(`{"kill":{"pid":1,"start":2}}
{"kill":{"pid":3,"start":4}}
{"forget":{"pid":1,"start":2}}
{"remove":"/a"}
{"remove":"/b"}
{"removed":"/a"}
{"segment":0}
{"segment":7}
{"segment_gone":7}
{"group":{"dir":"/g","home":"/"}}
{"group":{"dir":"/h","home":"/"}}
{"group_gone":"/h"}
{"remove":"/half`))
	if len(b.processes) != 1 || !b.processes[identity{3, 4}] {
		t.Errorf("processes = %v", b.processes)
	}
	if len(b.dirs) != 1 || !b.dirs["/b"] {
		t.Errorf("dirs = %v", b.dirs)
	}
	if len(b.segments) != 1 || !b.segments[0] {
		t.Errorf("segments = %v", b.segments)
	}
	if len(b.groups) != 1 || b.groups["/g"] != (group{"/g", "/"}) {
		t.Errorf("groups = %v", b.groups)
	}
}
