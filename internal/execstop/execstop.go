// Package execstop starts a program and alters its process at the moment
// between the exec and the program's first instruction, when memory and
// registers are in a known state and nothing has been read yet. It works for
// every binary, static or not, and needs no more than the right to trace one's
// own child: no capability, no compiler, no file that the child could see.
//
// Why not a launcher process: as the tracer is the parent, the child asks to be
// traced (PTRACE_TRACEME), which is allowed where attaching is not (Yama, or a
// root without CAP_SYS_PTRACE whose child runs as another user), and the child
// needs no right to execute this program. Pid, process group, credentials,
// Pdeathsig and standard files are what [exec.Cmd] says, and it costs less than
// a millisecond. The price is that the tracer is the thread that forks: see
// [Start].
package execstop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// Patch is a change made to a process before it runs.
type Patch interface {
	// Files returns files that the process gets for Apply, which is to close
	// them there. They belong to the patch.
	Files() []*os.File
	// Apply makes the change. Fds are the numbers that Files have in the
	// process.
	Apply(t *Tracee, fds []int) error
}

// Options say at which exec the patches are applied.
type Options struct {
	// Program is the binary to wait for, if others come before it in the
	// same process, such as a wrapper script that ends in exec: a path, or a
	// name that is looked up as a shell would. Links are followed. Empty
	// means the first binary that is no mere wrapper (env, nice, ...): so a
	// script that begins with "#!/usr/bin/env python3" needs no Program.
	Program string
	// Patience limits the wait for Program; 0 means 10 s.
	Patience time.Duration
}

// Start starts cmd as [exec.Cmd.Start] does, with patches applied. On an error
// no process is left behind, and cmd can't be used again.
//
// It forks and traces on the calling thread. A caller that sets Pdeathsig must
// therefore call it on a thread that lives on, as it would call cmd.Start.
//
// Patches hold for the process and whatever it forks, until an exec: a
// program that a patched one executes runs without.
func Start(cmd *exec.Cmd, o Options, patches ...Patch) error {
	if len(patches) == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return start(cmd, o, patches)
}

// wrappers are programs that do nothing but prepare and execute another.
var wrappers = []string{"chrt", "env", "gosu", "ionice", "nice", "nohup", "setpriv", "stdbuf", "su-exec", "taskset"}

// find returns the file of the program that o names, nil if none.
func (o Options) find() (os.FileInfo, error) {
	if o.Program == "" {
		return nil, nil
	}
	path := o.Program
	if filepath.Base(path) == path {
		var err error
		if path, err = exec.LookPath(path); err != nil {
			return nil, fmt.Errorf("find the program to wait for: %w", err)
		}
	}
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find the program to wait for: %w", err)
	}
	return fi, nil
}
