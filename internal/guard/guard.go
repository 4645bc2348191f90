// Package guard sees to it that nothing outlives the harness: no process that
// it started and no folder that it made, even if it is killed with SIGKILL.
//
// It does so in two ways. On Linux every child is told by the kernel to die
// with its parent. And on all systems a second process, the guard, holds the
// end of a pipe whose other end only the harness has: when that closes, the
// harness is gone, and the guard kills and removes what is still registered
// with it. The guard is this program again, so main and TestMain must call
// [selfexec.Main] first.
//
// The guard is started with the first process or folder. All functions may be
// called concurrently.
package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// Prefix is how the names of all temporary folders begin.
const Prefix = "lockcheck-"

// Start starts cmd as [exec.Cmd.Start] does, in a process group of its own, and
// so that it dies with this process. The caller calls cmd.Wait, then [Forget].
func Start(cmd *exec.Cmd) error { return StartBy(cmd, cmd.Start) }

// StartBy is [Start] with another function that starts cmd, such as one that
// traces it first. It runs on the thread of the operating system that all
// children are bound to, so it must return.
func StartBy(cmd *exec.Cmd, start func() error) error {
	g, err := own()
	if err != nil {
		return err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
	if err := g.fork(start); err != nil {
		return err
	}
	p, err := lookup(cmd.Process.Pid)
	if err == nil {
		err = g.keep(order{Kill: &identity{p.pid, p.start}})
	}
	if err != nil {
		err = errors.Join(err, cmd.Process.Kill())
		_ = cmd.Wait() // only says that it was killed
		return fmt.Errorf("protect process %d of %s: %w", cmd.Process.Pid, cmd.Path, err)
	}
	g.mu.Lock()
	g.started[cmd] = identity{p.pid, p.start}
	g.mu.Unlock()
	return nil
}

// Forget ends the protection of a process that has ended and was waited for.
// It does nothing if cmd was not started by [Start] or is forgotten already.
func Forget(cmd *exec.Cmd) {
	g, err := own()
	if err != nil {
		return
	}
	g.mu.Lock()
	id, ok := g.started[cmd]
	delete(g.started, cmd)
	g.mu.Unlock()
	if ok {
		// The worst that a lost message does is a look at a process that
		// is gone: the guard compares start times.
		_ = g.keep(order{Forget: &id})
	}
}

// Kill sends SIGKILL to the process of cmd, which was started by [Start], to
// all its descendants and to its process group, stopped ones too, and returns
// when all have ended. It leaves cmd.Wait to the caller.
func Kill(ctx context.Context, cmd *exec.Cmd) error {
	g, err := own()
	if err != nil {
		return err
	}
	g.mu.Lock()
	id, ok := g.started[cmd]
	g.mu.Unlock()
	if !ok {
		return nil // it has ended: the caller has forgotten it
	}
	return kill(ctx, func(all []process) []process { return tree(all, id) })
}

// Tree returns the ids of a process, its descendants, and the other members of
// its process group; zombies are left out. It is empty if the process is gone.
func Tree(pid int) ([]int, error) {
	all, err := table()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range all {
		if p.pid == pid {
			for _, q := range tree(all, identity{pid, p.start}) {
				pids = append(pids, q.pid)
			}
		}
	}
	return pids, nil
}

// TempDir makes a temporary folder that is removed when this process ends, at
// the latest. Its name begins with [Prefix]; its mode is 0700.
func TempDir() (string, error) {
	g, err := own()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", Prefix)
	if err == nil {
		// The guard compares it with what the kernel calls it.
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("make a temporary folder (TMPDIR says where): %w", err)
	}
	if err := g.keep(order{Remove: dir}); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// RemoveDir removes a folder made by [TempDir] now, with all that is in it. It
// returns nil if there is no such folder.
func RemoveDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	g, err := own()
	if err != nil {
		return err
	}
	return g.keep(order{Removed: dir})
}

// KeepSegment has a System V shared memory segment removed if this process
// ends before [RemoveSegment] is called. Servers that are killed leave theirs
// behind.
func KeepSegment(id int) error {
	g, err := own()
	if err != nil {
		return err
	}
	return g.keep(order{Segment: &id})
}

// RemoveSegment removes a System V shared memory segment now. It returns nil
// if there is no such segment.
func RemoveSegment(id int) error {
	if err := removeSegment(id); err != nil {
		return err
	}
	g, err := own()
	if err != nil {
		return err
	}
	return g.keep(order{SegmentGone: &id})
}

// An order is a line that the harness writes to the guard. One field is set.
type order struct {
	Kill        *identity `json:"kill,omitempty"`
	Forget      *identity `json:"forget,omitempty"`
	Remove      string    `json:"remove,omitempty"`
	Removed     string    `json:"removed,omitempty"`
	Segment     *int      `json:"segment,omitempty"`
	SegmentGone *int      `json:"segment_gone,omitempty"`
	Group       *group    `json:"group,omitempty"`
	GroupGone   string    `json:"group_gone,omitempty"`
}

// An identity tells a process from a later one with the same id.
type identity struct {
	PID   int   `json:"pid"`
	Start int64 `json:"start"`
}

// A guardian is the harness's side of the guard.
type guardian struct {
	forks chan func()

	mu      sync.Mutex
	pipe    io.Writer
	started map[*exec.Cmd]identity
}

// own returns the guard of this process, and starts it if there is none.
var own = sync.OnceValues(newGuardian)

// isGuard is set in the guard's environment. Were it set here, main would not
// have called selfexec.Main, and each guard would start another.
const isGuard = "LOCKCHECK_IS_GUARD"

func newGuardian() (*guardian, error) {
	if os.Getenv(isGuard) != "" {
		return nil, errors.New("this program runs parts of itself as processes, but its main (or TestMain) does not call selfexec.Main")
	}
	argv, err := selfexec.Command(role)
	if err != nil {
		return nil, err
	}
	// Its output is nobody's: whoever reads the harness's output to its end
	// must not have to wait for the guard.
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), isGuard+"=1")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the guard process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard process: %w", err)
	}
	go cmd.Wait() // reaps it if somebody kills it
	g := &guardian{forks: make(chan func()), pipe: pipe, started: map[*exec.Cmd]identity{}}
	go func() {
		// The kernel takes the end of the thread that forked for the
		// parent's: this one lives as long as the process.
		runtime.LockOSThread()
		for f := range g.forks {
			f()
		}
	}()
	return g, nil
}

// fork runs start on the thread that children are bound to.
func (g *guardian) fork(start func() error) error {
	done := make(chan error)
	g.forks <- func() { done <- start() }
	return <-done
}

// keep tells the guard. What is written reaches it even if this process is
// killed right after.
func (g *guardian) keep(o order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := g.pipe.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the guard process is gone, so what is started could outlive this program: %w", err)
	}
	return nil
}
