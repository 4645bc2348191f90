package starve

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CanPin returns nil: threads can be told which processors to run on.
func CanPin() error { return nil }

// Affinity returns the processors that a thread may run on, 0 being the caller's.
func Affinity(tid int) (CPUs, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &set); err != nil {
		return nil, fmt.Errorf("affinity of thread %d: %w", tid, err)
	}
	var cpus CPUs
	for i := range len(set) * strconv.IntSize {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// SetAffinity has a thread run on some processors only, 0 being the caller's.
func SetAffinity(tid int, cpus CPUs) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("have thread %d run on processors %v: %w", tid, cpus, err)
	}
	return nil
}

// Threads returns the threads of a process, none if it is gone.
func Threads(pid int) ([]int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil && !Gone(err) {
		return nil, err
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// Yields returns nil if the scheduler gives a thread no more time than those of
// this program that compete with it for a processor, else why it does.
func Yields(tid int) error {
	its, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return fmt.Errorf("scheduling of thread %d: %w", tid, err)
	}
	ours, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	switch {
	case its.Policy == unix.SCHED_FIFO || its.Policy == unix.SCHED_RR || its.Policy == unix.SCHED_DEADLINE:
		return fmt.Errorf("thread %d has a real-time scheduling policy", tid)
	case its.Nice < ours.Nice:
		return fmt.Errorf("thread %d has nice value %d, and ours have %d", tid, its.Nice, ours.Nice)
	}
	return nil
}

// newSession has a process start in a session of its own, and thus lead a
// group too.
func newSession(cmd *exec.Cmd) {
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true
}

// processorTime is what the threads of a process have used, by the first number
// of their schedstat: see sched-stats in the kernel's documentation.
func processorTime(pid int) (time.Duration, error) {
	tids, err := Threads(pid)
	if err != nil {
		return 0, err
	}
	if len(tids) == 0 {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	var sum time.Duration
	for _, tid := range tids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(b), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}
