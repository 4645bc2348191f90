package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockcheck/lockcheck/internal/deploy/engine"
)

type engineContainer = engine.Container

// Labels of everything that a run makes in an engine.
const (
	runLabel   = "org.lockcheck.run"   // its project
	ownerLabel = "org.lockcheck.owner" // the process whose run it is, see self
)

// self names this process so that later, and on this machine, it can be told
// whether it still runs: machine, process id, start time.
func self() (string, error) {
	machine, err := machine()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/%d/%s", machine, os.Getpid(), startTime(os.Getpid())), nil
}

// machine names this machine until it is started anew.
func machine() (string, error) {
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this machine: %w", err)
	}
	return name, nil
}

// startTime is when a process started, in units of the system's own, and "" if
// there is no such process or the system does not tell.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may have spaces in it; the 22nd field is counted
	// from 1, and the third is the first behind it.
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" {
		return ""
	}
	return f[19]
}

// dead reports whether what has the labels is of a run of this machine whose
// process is gone.
func dead(labels map[string]string) bool {
	here, err := machine()
	if err != nil {
		return false
	}
	parts := strings.Split(labels[ownerLabel], "/")
	if len(parts) != 3 || parts[0] != here {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return false
	}
	if parts[2] == "" {
		return !exists(pid)
	}
	return startTime(pid) != parts[2]
}

// Remains are the things in an engine that a run has left, or that one uses.
type Remains struct {
	Containers, Networks, Volumes []string // names
}

// Empty reports whether there are none.
func (r Remains) Empty() bool { return len(r.Containers)+len(r.Networks)+len(r.Volumes) == 0 }

// Cleanup removes from the engine what runs have left there that were killed on
// this machine; with all set, also what belongs to runs that go on, or to those of
// other machines. It returns what it removed.
func Cleanup(ctx context.Context, all bool) (Remains, error) {
	e, err := engine.Connect(ctx)
	if err != nil {
		return Remains{}, err
	}
	if all {
		return sweep(ctx, e, func(map[string]string) bool { return true })
	}
	return sweep(ctx, e, dead)
}

// sweep removes what has the labels of a run, if those are chosen.
func sweep(ctx context.Context, e *engine.Engine, chosen func(labels map[string]string) bool) (Remains, error) {
	var r Remains
	containers, err := e.Containers(ctx, runLabel)
	if err != nil {
		return r, err
	}
	var errs []error
	for _, c := range containers {
		if !chosen(c.Labels) {
			continue
		}
		if err := e.Remove(ctx, c.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		name := c.ID
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		r.Containers = append(r.Containers, name)
	}
	networks, err := e.Networks(ctx, runLabel)
	errs = append(errs, err)
	for _, n := range networks {
		if !chosen(n.Labels) {
			continue
		}
		if err := e.RemoveNetwork(ctx, n.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Networks = append(r.Networks, n.Name)
	}
	volumes, err := e.Volumes(ctx, runLabel)
	errs = append(errs, err)
	for _, v := range volumes {
		if !chosen(v.Labels) {
			continue
		}
		if err := e.RemoveVolume(ctx, v.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Volumes = append(r.Volumes, v.Name)
	}
	return r, errors.Join(errs...)
}

// exists reports whether there is a process with an id.
func exists(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// freezer returns what the kernel says of the freezing of a process's group.
func freezer(pid int) (string, error) {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		switch {
		case f[1] == "freezer": // the first version of control groups
			b, err := os.ReadFile("/sys/fs/cgroup/freezer" + f[2] + "/freezer.state")
			if err != nil {
				return "", fmt.Errorf("%w: %w", errNoFreezer, err)
			}
			return strings.TrimSpace(string(b)), nil
		case f[0] == "0":
			b, err := os.ReadFile("/sys/fs/cgroup" + f[2] + "/cgroup.events")
			if err != nil {
				return "", fmt.Errorf("%w: %w", errNoFreezer, err)
			}
			if strings.Contains(string(b), "frozen 1") {
				return frozen, nil
			}
		}
	}
	return "", errNoFreezer
}

// frozen is the state of a frozen group.
const frozen = "FROZEN"

// errNoFreezer says that this machine does not show whether a process is frozen.
var errNoFreezer = errors.New("no control group of the process tells whether it is frozen")
