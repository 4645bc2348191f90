package guard

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// A process is a line of the table of processes.
type process struct {
	pid, ppid, pgid int
	start           int64 // in the system's units; with pid it identifies the process
	zombie          bool
}

// tree picks a process, its descendants and the other members of its process
// group out of all, without zombies. Another process that has got the same id
// since is not taken for it.
func tree(all []process, root identity) []process {
	in := map[int]bool{}
	for _, p := range all {
		switch {
		case p.pid == root.PID && p.start != root.Start:
			return nil // the id, and thus that of the group, is another's now
		case p.pid == root.PID, p.pgid == root.PID && p.start >= root.Start:
			in[p.pid] = true
		}
	}
	// Parents need not precede their children in the table.
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if in[p.ppid] && !in[p.pid] {
				in[p.pid], grown = true, true
			}
		}
	}
	var found []process
	for _, p := range all {
		if in[p.pid] && !p.zombie {
			found = append(found, p)
		}
	}
	return found
}

// poll is how often processes are looked at that were killed.
const poll = time.Millisecond

// kill sends SIGKILL to the processes that victims picks out of the table, and
// looks again until there are none. Before that it stops them, so that none
// can fork a child that is in no table while its parent dies.
func kill(ctx context.Context, victims func(all []process) []process) error {
	for stopped := map[identity]bool{}; ; {
		all, err := table()
		if err != nil {
			return err
		}
		fresh := false
		for _, p := range victims(all) {
			if id := (identity{p.pid, p.start}); !stopped[id] {
				stopped[id], fresh = true, true
				_ = syscall.Kill(p.pid, syscall.SIGSTOP) // ended meanwhile: the next look tells
			}
		}
		if fresh {
			continue
		}
		// Of what was seen once nothing is lost when its parent dies.
		var living []process
		for _, p := range all {
			if stopped[identity{p.pid, p.start}] && !p.zombie {
				living = append(living, p)
			}
		}
		if len(living) == 0 {
			return nil
		}
		for _, p := range living {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				return fmt.Errorf("kill process %d: %w", p.pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d is still there after SIGKILL: %w", living[0].pid, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}
