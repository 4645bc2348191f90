// Package starve takes resources from processes: with control groups of Linux,
// or by crowding the processor that they are made to run on.
package starve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockcheck/lockcheck/internal/guard"
)

// Group is a control group that was made for a fault, of version 1 or 2 of
// Linux' control groups. It goes with this program, also if that is killed. Its
// methods are not called concurrently.
type Group struct {
	V2   bool
	dir  string // its folder
	home string // that of the group that its processes come from
}

// NewGroup makes a control group with a controller, such as "cpu", that a
// process and those that are in one group with it can be moved to. The caller
// calls Remove.
func NewGroup(controller string, pid int) (*Group, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("only Linux has control groups")
	}
	at, err := find("/proc", controller, pid)
	if err != nil {
		return nil, err
	}
	if base := filepath.Base(at.home); strings.HasPrefix(base, guard.Prefix) {
		return nil, fmt.Errorf("process %d is in control group %s already, that of another fault", pid, base)
	}
	name := fmt.Sprintf("%s%s-%08x", guard.Prefix, controller, rand.Uint32())
	g := &Group{V2: at.v2, dir: filepath.Join(at.parent, name), home: at.home}
	if err := guard.KeepGroup(g.dir, g.home); err != nil {
		return nil, err
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("make a control group: %w; run as root, or where systemd is, under systemd-run --user --scope", err),
			guard.RemoveGroup(context.Background(), g.dir, g.home))
	}
	return g, nil
}

// Name returns the name of the group.
func (g *Group) Name() string { return filepath.Base(g.dir) }

// Add moves processes into the group, with all their threads. Those that have
// ended are left out.
func (g *Group) Add(pids ...int) error {
	for _, pid := range pids {
		err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("move process %d to a control group: %w", pid, err)
		}
	}
	return nil
}

// Members returns the processes that are in the group.
func (g *Group) Members() ([]int, error) {
	procs, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(string(procs)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Set writes one of the group's settings, such as "memory.high".
func (g *Group) Set(setting, value string) error {
	if err := os.WriteFile(filepath.Join(g.dir, setting), []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", setting, value, err)
	}
	return nil
}

// Get reads one of the group's settings.
func (g *Group) Get(setting string) (string, error) {
	b, err := os.ReadFile(filepath.Join(g.dir, setting))
	return strings.TrimSpace(string(b)), err
}

// Count reads a counter: the line of a file that begins with key, or all there
// is in it if key is "".
func (g *Group) Count(file, key string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case key == "" && len(f) == 1:
			return strconv.ParseInt(f[0], 10, 64)
		case key != "" && len(f) == 2 && f[0] == key:
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no counter %q", file, key)
}

// Remove moves what is in the group back to where it came from, and removes it.
// It may be called repeatedly.
func (g *Group) Remove(ctx context.Context) error {
	return guard.RemoveGroup(ctx, g.dir, g.home)
}

// IsHome reports whether a process is in the group that those of this one came
// from. The error is one that [Gone] knows if the process is gone.
func (g *Group) IsHome(controller string, pid int) (bool, error) {
	at, err := find("/proc", controller, pid)
	return at.home == g.home, err
}

// Home returns the folder of the group that a process is in.
func Home(controller string, pid int) (string, error) {
	at, err := find("/proc", controller, pid)
	return at.home, err
}

// place is where a control group can be made for a process.
type place struct {
	v2     bool
	home   string // the folder of the group that the process is in
	parent string // that of the group in which the new one can be made
}

// find looks for the place in the files of proc, which is /proc but for tests,
// see cgroups(7) and proc_pid_mountinfo(5).
func find(proc, controller string, pid int) (place, error) {
	groups, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return place{}, err
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		return place{}, err
	}
	if at, ok := findV1(groups, mounts, controller); ok {
		return at, nil
	}
	return findV2(groups, mounts, controller)
}

// findV1 looks for the hierarchy of a controller, where a group can have both
// processes and groups.
func findV1(groups, mounts []byte, controller string) (place, bool) {
	for line := range bytes.Lines(groups) {
		f := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(f) != 3 || !slices.Contains(strings.Split(f[1], ","), controller) {
			continue
		}
		for m := range mounted(mounts, "cgroup") {
			if slices.Contains(strings.Split(m.options, ","), controller) {
				if home, ok := m.folder(f[2]); ok {
					return place{home: home, parent: home}, true
				}
			}
		}
	}
	return place{}, false
}

// findV2 looks in the unified hierarchy, where groups that have controllers are
// made only in those without processes: the new one is a sibling.
func findV2(groups, mounts []byte, controller string) (place, error) {
	for line := range bytes.Lines(groups) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), "0::")
		if !ok {
			continue
		}
		for m := range mounted(mounts, "cgroup2") {
			home, ok := m.folder(path)
			if !ok {
				continue
			}
			for parent := home; ; {
				if parent != m.point {
					parent = filepath.Dir(parent) // the group itself has processes
				}
				has, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
				if err != nil {
					return place{}, fmt.Errorf("control groups that processes of %s can be moved to: %w", path, err)
				}
				if slices.Contains(strings.Fields(string(has)), controller) {
					return place{v2: true, home: home, parent: parent}, nil
				}
				if parent == m.point {
					return place{home: home}, fmt.Errorf("no control group above %s gives the %s controller to those in it; as root: echo +%[2]s > %s",
						path, controller, filepath.Join(m.point, "cgroup.subtree_control"))
				}
			}
		}
	}
	return place{}, fmt.Errorf("no control groups with the %s controller can be seen here", controller)
}

// mount is where a hierarchy of control groups can be seen.
type mount struct {
	root    string // the group that is seen there
	point   string // the folder
	options string
}

// mounted yields the mounts of a type of file system.
func mounted(mountinfo []byte, fstype string) func(yield func(mount) bool) {
	return func(yield func(mount) bool) {
		for line := range bytes.Lines(mountinfo) {
			before, after, _ := strings.Cut(string(line), " - ")
			f, g := strings.Fields(before), strings.Fields(after)
			if len(f) < 6 || len(g) < 3 || g[0] != fstype {
				continue
			}
			if !yield(mount{root: unescape.Replace(f[3]), point: unescape.Replace(f[4]), options: g[2]}) {
				return
			}
		}
	}
}

// unescape undoes what the kernel does to the characters that separate fields.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// folder returns the folder of a group, if it can be seen in the mount. One
// outside of our cgroup namespace begins with "/..".
func (m mount) folder(group string) (string, bool) {
	rel, err := filepath.Rel(m.root, group)
	if err != nil || !filepath.IsLocal(rel) || strings.HasPrefix(group, "/..") {
		return "", false
	}
	return filepath.Join(m.point, rel), true
}

// Gone reports whether an error means that a thread or a process has ended, or
// that a group is no more.
func Gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }
