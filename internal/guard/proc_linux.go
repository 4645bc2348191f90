package guard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent has the kernel kill the process when the thread that forks it
// ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// table returns all processes.
func table() ([]process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make([]process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := lookup(pid); err == nil {
			all = append(all, p) // else it has ended since
		}
	}
	return all, nil
}

// lookup reads /proc/PID/stat, see proc(5).
func lookup(pid int) (process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// The second field is a name in parentheses, and may have any of these
	// and spaces in it.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: unknown format", pid)
	}
	p := process{pid: pid, zombie: f[0] == "Z" || f[0] == "X"}
	var errs [3]error
	p.ppid, errs[0] = strconv.Atoi(f[1])
	p.pgid, errs[1] = strconv.Atoi(f[2])
	p.start, errs[2] = strconv.ParseInt(f[19], 10, 64)
	return p, errors.Join(errs[:]...)
}

// worksIn reports whether the working folder of p is one of dirs or within.
func (p process) worksIn(dirs map[string]bool) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.pid))
	if err != nil {
		return false // ended, or another user's
	}
	cwd = strings.TrimSuffix(cwd, " (deleted)")
	for ; len(cwd) > 1; cwd = filepath.Dir(cwd) {
		if dirs[cwd] {
			return true
		}
	}
	return false
}

func removeSegment(id int) error {
	_, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIDRM) {
		return nil
	}
	return err
}
