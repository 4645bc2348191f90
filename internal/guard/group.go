package guard

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A group is a control group of Linux: its folder, and that of the group to
// which its processes go when it is removed.
type group struct {
	Dir  string `json:"dir"`
	Home string `json:"home"`
}

// KeepGroup has a control group removed if this process ends before
// [RemoveGroup] is called; its processes are moved to the group home first. The
// folder dir need not be there yet.
func KeepGroup(dir, home string) error {
	g, err := own()
	if err != nil {
		return err
	}
	return g.keep(order{Group: &group{dir, home}})
}

// RemoveGroup moves the processes of a control group to the group home, and
// removes it. It returns nil if there is no such group. Until ctx is over it
// tries again: processes fork while they are moved, and take a while to end.
func RemoveGroup(ctx context.Context, dir, home string) error {
	if err := (group{dir, home}).remove(ctx); err != nil {
		return err
	}
	g, err := own()
	if err != nil {
		return err
	}
	return g.keep(order{GroupGone: dir})
}

func (g group) remove(ctx context.Context) error {
	for {
		procs, err := os.ReadFile(filepath.Join(g.Dir, "cgroup.procs"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, pid := range strings.Fields(string(procs)) {
			if err := os.WriteFile(filepath.Join(g.Home, "cgroup.procs"), []byte(pid), 0); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
		err = syscall.Rmdir(g.Dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) {
			return &fs.PathError{Op: "rmdir", Path: g.Dir, Err: err}
		}
		select {
		case <-ctx.Done():
			return &fs.PathError{Op: "rmdir", Path: g.Dir, Err: err}
		case <-time.After(poll):
		}
	}
}
