package guard

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/internal/selfexec"
)

const role = "guard"

// patience is how long the guard tries to get rid of what is left.
const patience = 10 * time.Second

func init() {
	selfexec.Register(role, func([]string) int {
		// Who interrupts or ends the harness may well hit the guard too.
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP)
		if !watch(os.Stdin).clean(patience) {
			return 1
		}
		return 0
	})
}

// belongings are what the guard is to end and remove.
type belongings struct {
	processes map[identity]bool
	dirs      map[string]bool
	segments  map[int]bool
	groups    map[string]group // by their folders
}

// watch keeps the books until the orders end, which is when the harness does.
func watch(orders io.Reader) belongings {
	b := belongings{map[identity]bool{}, map[string]bool{}, map[int]bool{}, map[string]group{}}
	for d := json.NewDecoder(orders); ; {
		var o order
		// A harness that is killed while it writes leaves half a line, and
		// that is an end as well.
		if err := d.Decode(&o); err != nil {
			return b
		}
		switch {
		case o.Kill != nil:
			b.processes[*o.Kill] = true
		case o.Forget != nil:
			delete(b.processes, *o.Forget)
		case o.Remove != "":
			b.dirs[o.Remove] = true
		case o.Removed != "":
			delete(b.dirs, o.Removed)
		case o.Segment != nil:
			b.segments[*o.Segment] = true
		case o.SegmentGone != nil:
			delete(b.segments, *o.SegmentGone)
		case o.Group != nil:
			b.groups[o.Group.Dir] = *o.Group
		case o.GroupGone != "":
			delete(b.groups, o.GroupGone)
		}
	}
}

// clean ends and removes everything, and reports whether nothing is left.
func (b belongings) clean(patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gone := true
	// Before the rest: what gets no processor time takes its time to die.
	free, stop := context.WithTimeout(ctx, patience/2)
	defer stop()
	for _, g := range b.groups {
		gone = g.remove(free) == nil && gone
	}
	dead := kill(ctx, b.living) == nil
	for dir := range b.dirs {
		gone = os.RemoveAll(dir) == nil && gone
	}
	for id := range b.segments {
		gone = removeSegment(id) == nil && gone
	}
	return dead && gone
}

// living returns the processes that are to be killed: the registered ones with
// all that descends from them, and those that work in a folder of ours. The
// latter are found even when their parent died first and they are in a group
// of their own, as Postgres' processes are.
func (b belongings) living(all []process) []process {
	found := map[int]process{}
	for id := range b.processes {
		for _, p := range tree(all, id) {
			found[p.pid] = p
		}
	}
	for _, p := range all {
		if len(b.dirs) > 0 && p.worksIn(b.dirs) {
			found[p.pid] = p
		}
	}
	delete(found, os.Getpid())
	living := make([]process, 0, len(found))
	for _, p := range found {
		living = append(living, p)
	}
	return living
}
