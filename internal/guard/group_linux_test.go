package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func init() { selfexec.Register("test-group", groupHarness) }

// groupHarness makes a control group in the one that its argument names, moves a
// process into it, another one's too, and waits.
func groupHarness(args []string) int {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	home := args[0]
	dir := filepath.Join(home, fmt.Sprintf("%stest-%d", Prefix, os.Getpid()))
	if err := KeepGroup(dir, home); err != nil {
		return fail(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fail(err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := Start(cmd); err != nil {
		return fail(err)
	}
	for _, pid := range []string{strconv.Itoa(cmd.Process.Pid), args[1]} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0); err != nil {
			return fail(err)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(started{PIDs: []int{cmd.Process.Pid}, Dir: dir}); err != nil {
		return fail(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// eachHierarchy runs a test in a control group of each version that groups can
// be made in here.
func eachHierarchy(t *testing.T, test func(t *testing.T, home string)) {
	tried := 0
	for _, home := range []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		dir := filepath.Join(home, fmt.Sprintf("%stry-%d", Prefix, os.Getpid()))
		if _, err := os.Stat(filepath.Join(home, "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		tried++
		t.Run(filepath.Base(home), func(t *testing.T) { test(t, home) })
	}
	if tried == 0 {
		t.Skip("no control group can be made here")
	}
}

func TestControlGroupDoesNotOutliveTheHarness(t *testing.T) {
	eachHierarchy(t, controlGroupDoesNotOutliveTheHarness)
}

func controlGroupDoesNotOutliveTheHarness(t *testing.T, home string) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "1000") // not the harness's to kill
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	h := exec.Command(exe, "test-group", home, strconv.Itoa(other.Process.Pid))
	h.Stderr = os.Stderr
	if _, err = h.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	var s started
	if err := json.NewDecoder(out).Decode(&s); err != nil {
		t.Fatal(err)
	}
	procs, err := os.ReadFile(filepath.Join(s.Dir, "cgroup.procs"))
	if err != nil || len(strings.Fields(string(procs))) != 2 {
		t.Fatalf("in the group: %q, %v", procs, err)
	}
	_ = h.Process.Kill()
	_ = h.Wait()
	eventually(t, "no process and no group left", s.gone)
	if !alive(other.Process.Pid) {
		t.Error("a process that is not the harness's was killed")
	}
}

func TestRemoveGroup(t *testing.T) { eachHierarchy(t, removesGroup) }

func removesGroup(t *testing.T, home string) {
	dir := filepath.Join(home, fmt.Sprintf("%stest-%d", Prefix, os.Getpid()))
	if err := KeepGroup(dir, home); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// It forks all the time: one look at the group does not find all.
	forks := exec.Command("sh", "-c", "while :; do sleep 0.01; done")
	if err := Start(forks); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if forks.Process.Kill() == nil {
			_ = forks.Wait()
		}
		Forget(forks)
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(forks.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveGroup(t.Context(), dir, home); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	if !alive(forks.Process.Pid) {
		t.Error("its process was killed")
	}
}
