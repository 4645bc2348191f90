package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
)

// Disked is a target that was started with a disk of its own.
type Disked interface {
	// Disk returns the control of the target's disk, nil if it has none.
	Disk() *Control
}

// Syncer is a target that can be made to sync, which proves a slow or failing
// disk better than any look from outside.
type Syncer interface {
	// Sync has the target write something and sync it, such as by a command
	// under "appendfsync always". It may return an error while the disk
	// fails.
	Sync(ctx context.Context) error
}

func init() {
	nemesis.Register(nemesis.Kind{
		Name:      "disk",
		Summary:   "make the disk of single processes slow, failing or full",
		Available: Available,
		Needs:     []string{nemesis.Disk},
		New: func(params map[string]string) (nemesis.Fault, error) {
			b, err := parse(params)
			if err != nil {
				return nil, err
			}
			return &fault{behaviour: b}, nil
		},
		Params: map[string]string{
			"fsync": "slow and a time, such as slow 200ms, or fail and an error: fail EIO",
			"full":  "true: writes to files fail with ENOSPC",
		},
	})
}

// failures are the errors that fsync(2) may return and a disk may cause.
var failures = map[string]syscall.Errno{
	"EIO":    syscall.EIO,
	"ENOSPC": syscall.ENOSPC,
	"EDQUOT": syscall.EDQUOT,
	"EROFS":  syscall.EROFS,
}

// parse reads the parameters. All that a Control would refuse is refused here,
// but for the lack of Options.Writes.
func parse(params map[string]string) (Behaviour, error) {
	var b Behaviour
	if v, ok := params["fsync"]; ok {
		how, what, _ := strings.Cut(strings.TrimSpace(v), " ")
		what = strings.TrimSpace(what)
		switch how {
		case "slow":
			d, err := time.ParseDuration(what)
			if err != nil || d <= 0 || d > MaxDelay {
				return b, fmt.Errorf("disk: fsync %q: want a time up to %v, such as slow 200ms", v, MaxDelay)
			}
			b.Delay = d
		case "fail":
			e, ok := failures[what]
			if !ok {
				return b, fmt.Errorf("disk: fsync %q: want one of the errors %s, such as fail EIO", v, strings.Join(slices.Sorted(maps.Keys(failures)), ", "))
			}
			b.Fail = e
		default:
			return b, fmt.Errorf("disk: fsync %q: want slow 200ms or fail EIO", v)
		}
	}
	if v, ok := params["full"]; ok {
		full, err := strconv.ParseBool(v)
		if err != nil {
			return b, fmt.Errorf("disk: full %q: want true or false", v)
		}
		b.Full = full
	}
	if b == (Behaviour{}) {
		return b, errors.New("disk: nothing to do: give fsync or full")
	}
	return b, nil
}

// fault is the fault "disk". A target has one disk, so of two such faults on
// one target the later replaces the earlier, and the first to heal ends both.
type fault struct {
	behaviour Behaviour
	touched   []touch
}

// touch is a target that was touched, and what had been intercepted before.
type touch struct {
	target nemesis.Target
	disk   *Control
	before Counts
}

// Inject implements nemesis.Fault. The proof of each target is that the system
// calls of its processes are intercepted, that a probe with the same disk sees
// what it should, and if the target is a Syncer that its own syncs were hit.
func (f *fault) Inject(ctx context.Context, targets []nemesis.Target) (nemesis.Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("disk: no target")
	}
	var touched []touch
	for _, t := range targets {
		d, ok := t.(Disked)
		if !ok || d.Disk() == nil {
			return "", fmt.Errorf("disk: %s was not started with a disk of its own", t.Name())
		}
		touched = append(touched, touch{t, d.Disk(), d.Disk().Counts()})
	}
	for _, t := range touched {
		f.touched = append(f.touched, t)
		if err := t.disk.Set(f.behaviour); err != nil {
			return "", fmt.Errorf("disk: %s: %w", t.target.Name(), err)
		}
	}
	var proofs []string
	for _, t := range touched {
		proof, err := t.prove(ctx, f.behaviour)
		if err != nil {
			return "", fmt.Errorf("disk: %s: %w", t.target.Name(), err)
		}
		proofs = append(proofs, t.target.Name()+": "+proof)
	}
	return nemesis.Proof(strings.Join(proofs, "; ")), nil
}

func (t touch) prove(ctx context.Context, b Behaviour) (string, error) {
	p, hasPIDs := t.target.(nemesis.Processes)
	s, syncs := t.target.(Syncer)
	if !hasPIDs && !syncs {
		return "", errors.New("it can't be seen whether it has the disk: it shows no processes and can't be made to sync")
	}
	var proofs []string
	if hasPIDs {
		n, err := nemesis.EachProcess(p, func(pid int) error { return follow(pid, b) })
		if err != nil {
			return "", err
		}
		proofs = append(proofs, fmt.Sprintf("processes whose system calls are intercepted: %d of %d", n, n))
	}
	proof, err := t.disk.probe(ctx, b)
	if err != nil {
		return "", err
	}
	proofs = append(proofs, "probe: "+proof)
	if syncs {
		before := t.disk.Counts()
		said := s.Sync(ctx)
		after := t.disk.Counts()
		if after.Delayed+after.Failed+after.Refused == before.Delayed+before.Failed+before.Refused {
			return "", fmt.Errorf("it was made to sync (answer: %v), but no call of it was hit", said)
		}
		proofs = append(proofs, fmt.Sprintf("its own calls: %v", after.minus(before)))
	}
	return strings.Join(proofs, ", "), nil
}

// follow returns an error if the calls of a process are not intercepted.
func follow(pid int, b Behaviour) error {
	ok, err := intercepted(pid)
	if err == nil && !ok {
		err = fmt.Errorf("process %d was started without a disk of its own", pid)
	}
	if err == nil && b.Full {
		// Which is how it is seen whether a write goes to a file.
		_, err = os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	}
	return err
}

// Heal implements nemesis.Fault. The proof says how many calls the fault has
// hit, those of probes included.
func (f *fault) Heal(ctx context.Context) (nemesis.Proof, error) {
	if len(f.touched) == 0 {
		return "no disk was changed", nil
	}
	var proofs []string
	var errs []error
	for _, t := range f.touched {
		err := t.disk.Set(Behaviour{})
		hit := t.disk.Counts().minus(t.before)
		if err == nil {
			var proof string
			if proof, err = t.disk.probe(ctx, Behaviour{}); err == nil {
				proofs = append(proofs, fmt.Sprintf("%s: probe: %s, while the fault lasted: %v", t.target.Name(), proof, hit))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("disk: heal %s: %w", t.target.Name(), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	f.touched = nil
	return nemesis.Proof(strings.Join(proofs, "; ")), nil
}

func (c Counts) minus(d Counts) Counts {
	return Counts{c.Syncs - d.Syncs, c.Delayed - d.Delayed, c.Failed - d.Failed, c.Writes - d.Writes, c.Refused - d.Refused}
}

func (c Counts) String() string {
	return fmt.Sprintf("%d syncs, %d delayed, %d failed, %d writes refused", c.Syncs, c.Delayed, c.Failed, c.Refused)
}
