package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/nemesis/starve"
)

// crowd leaves its targets a share of a processor without any privilege: all
// their threads are made to run on one processor, where enough busy processes
// compete with them. Other processes have the other processors.
type crowd struct {
	share  float64
	cpu    int
	busy   *starve.Burners
	pinned []*pinned
}

// pinned is a target whose threads run on one processor.
type pinned struct {
	Target
	before map[process]affinities
}

// affinities are the processors that the threads of a process ran on, by the
// threads that were moved.
type affinities map[int]starve.CPUs

func crowdAvailable() error {
	if err := starve.CanPin(); err != nil {
		return err
	}
	ours, err := starve.Affinity(os.Getpid())
	if err != nil {
		return err
	}
	if len(ours) < 2 {
		return errors.New("there is but one processor, which this program needs as well")
	}
	return nil
}

// Inject returns once all threads of the targets are on the crowded processor,
// and a process more was seen to get no more than twice the share there.
func (c *crowd) Inject(ctx context.Context, targets []Target) (Proof, error) {
	proof, err := c.starve(ctx, targets)
	if err != nil {
		return "", fmt.Errorf("cpu: %w", err)
	}
	return Proof(strings.Join(proof, "; ")), nil
}

func (c *crowd) starve(ctx context.Context, targets []Target) (proof []string, err error) {
	if len(targets) == 0 {
		return nil, errors.New("no target")
	}
	if err := crowdAvailable(); err != nil {
		return nil, err
	}
	if c.cpu, err = common(targets); err != nil {
		return nil, err
	}
	others := int(math.Ceil(1/c.share-1e-9)) - 1
	if c.busy, err = starve.StartBurners(ctx, others, c.cpu); err != nil {
		return nil, err
	}
	for _, t := range targets {
		p := &pinned{t, map[process]affinities{}}
		c.pinned = append(c.pinned, p)
		said, err := p.pin(ctx, c.cpu)
		if err != nil {
			return nil, about(t, err)
		}
		proof = append(proof, said)
	}
	measured, err := c.measure(ctx)
	return append(proof, measured), err
}

// common returns a processor that all targets may run on.
func common(targets []Target) (int, error) {
	var all starve.CPUs
	for i, t := range targets {
		_, ps, err := runningOf(t)
		if err != nil {
			return 0, about(t, err)
		}
		cpus, err := starve.Affinity(ps[0].pid)
		if err != nil {
			return 0, about(t, err)
		}
		if i == 0 {
			all = cpus
		}
		all = slices.DeleteFunc(all, func(cpu int) bool { return !slices.Contains(cpus, cpu) })
	}
	if len(all) == 0 {
		return 0, errors.New("there is no processor that all targets may run on")
	}
	return all[len(all)-1], nil
}

// pin has all threads run on a processor, and returns when all do.
func (p *pinned) pin(ctx context.Context, cpu int) (string, error) {
	ps := p.Target.(Processes)
	ours, oursErr := starve.Home("cpu", os.Getpid())
	var pids []string
	var threads int
	// A look may find what was started by a thread that was not there yet.
	err := await(ctx, fmt.Sprintf("all its threads are on processor %d", cpu), func() (bool, error) {
		procs, err := running(ps)
		if err != nil {
			return false, err
		}
		pids, threads = nil, 0
		all := true
		for _, proc := range procs {
			// Where groups do not divide processors, there is none to compare.
			if its, err := starve.Home("cpu", proc.pid); err == nil && oursErr == nil && its != ours {
				return false, fmt.Errorf("process %d is in control group %s, where nothing of ours competes with it", proc.pid, its)
			}
			n, there, err := p.pinThreads(proc, cpu)
			if err != nil && !starve.Gone(err) {
				return false, err
			}
			all = all && there
			threads += n
			pids = append(pids, fmt.Sprint(proc.pid))
		}
		return all, nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: process %s with %d threads on processor %d only", p.Name(), strings.Join(pids, ", "), threads, cpu), nil
}

// pinThreads has those threads of a process run on a processor that do not yet,
// and reports how many there are, and whether all did.
func (p *pinned) pinThreads(proc process, cpu int) (n int, there bool, err error) {
	tids, err := starve.Threads(proc.pid)
	if err != nil {
		return 0, false, err
	}
	if p.before[proc] == nil {
		p.before[proc] = affinities{}
	}
	there = true
	for _, tid := range tids {
		was, err := starve.Affinity(tid)
		if err != nil {
			return 0, false, err
		}
		if slices.Equal(was, starve.CPUs{cpu}) {
			continue
		}
		if err := starve.Yields(tid); err != nil {
			return 0, false, err
		}
		there = false
		p.before[proc][tid] = was
		if err := starve.SetAffinity(tid, starve.CPUs{cpu}); err != nil {
			return 0, false, err
		}
	}
	return len(tids), there, nil
}

// measure compares what the crowd gets with what one process more gets.
func (c *crowd) measure(ctx context.Context) (_ string, err error) {
	probe, err := starve.StartBurners(ctx, 1, c.cpu)
	defer func() { err = errors.Join(err, probe.Close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return "", err
	}
	look := func() (all, one time.Duration, err error) {
		if all, err = c.busy.Used(); err == nil {
			one, err = probe.Used()
		}
		return all + one, one, err
	}
	began := time.Now()
	all0, one0, err := look()
	if err != nil {
		return "", err
	}
	// The scheduler lets each run for some milliseconds at a time: this makes
	// rounds enough for it to be fair.
	const enough = 400 * time.Millisecond
	var all, one time.Duration
	err = await(ctx, fmt.Sprintf("processor %d is crowded", c.cpu), func() (bool, error) {
		all, one, err = look()
		all, one = all-all0, one-one0
		return all >= enough, err
	})
	if err != nil {
		return "", err
	}
	if most := time.Duration(2 * c.share * float64(all)); one > most {
		return "", fmt.Errorf("a process beside the crowd ran for %v while all together ran for %v, want %v at most", one, all, most)
	}
	return fmt.Sprintf("%d busy processes and one more there ran for %v of %v, the one for %v", len(c.busy.PIDs()),
		all.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), one.Round(100*time.Microsecond)), nil
}

// Heal ends the crowd and has the threads run where they ran before; those that
// were started since, where the first thread of their process did.
func (c *crowd) Heal(ctx context.Context) (Proof, error) {
	var proof []string
	var errs []error
	if c.busy != nil {
		errs = append(errs, c.busy.Close(ctx))
	}
	for _, p := range c.pinned {
		said, err := p.release(ctx, c.cpu)
		proof, errs = append(proof, said), append(errs, about(p, err))
	}
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("cpu: %w", err)
	}
	c.busy, c.pinned = nil, nil
	return Proof(strings.Join(proof, "; ")), nil
}

// release undoes pin, also for what was started since.
func (p *pinned) release(ctx context.Context, cpu int) (string, error) {
	var threads int
	err := await(ctx, "all its threads run where they ran before", func() (bool, error) {
		procs, err := p.grown()
		if err != nil {
			return false, err
		}
		threads = 0
		all := true
		for proc, before := range procs {
			n, free, err := releaseThreads(proc, before, cpu)
			if err != nil && !starve.Gone(err) {
				return false, err
			}
			all = all && free
			threads += n
		}
		return all, nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %d threads run where they ran before, the crowd is gone", p.Name(), threads), nil
}

// grown returns what is left of the processes that were pinned and what they
// have started since, with where their threads ran, or are to run.
func (p *pinned) grown() (map[process]affinities, error) {
	all := map[process]affinities{}
	add := func(pid int, otherwise starve.CPUs) {
		s, err := processState(pid)
		if err != nil || s.code == 'Z' {
			return // it has ended
		}
		proc := process{pid, s.start}
		switch before, known := p.before[proc]; {
		case known:
			all[proc] = before
		case all[proc] == nil:
			all[proc] = affinities{pid: otherwise}
		}
	}
	var some starve.CPUs // for those whose parent has ended
	for proc, before := range p.before {
		first := before[proc.pid]
		if first != nil {
			some = first
		}
		if s, err := processState(proc.pid); err != nil || s.start != proc.start {
			continue
		}
		pids, err := guard.Tree(proc.pid)
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			add(pid, first)
		}
	}
	if pids, err := p.Target.(Processes).PIDs(); err == nil { // else none is left
		for _, pid := range pids {
			add(pid, some)
		}
	}
	return all, nil
}

// releaseThreads lets those threads of a process go that are on the crowded
// processor only, and reports how many there are, and whether none was.
func releaseThreads(proc process, before affinities, cpu int) (n int, free bool, err error) {
	tids, err := starve.Threads(proc.pid)
	if err != nil {
		return 0, false, err
	}
	free = true
	for _, tid := range tids {
		now, err := starve.Affinity(tid)
		if err != nil {
			return 0, false, err
		}
		to, known := before[tid]
		if !known {
			to = before[proc.pid]
		}
		// A thread that has chosen other processors since keeps them.
		if to == nil || slices.Equal(now, to) || !slices.Equal(now, starve.CPUs{cpu}) {
			continue
		}
		free = false
		if err := starve.SetAffinity(tid, to); err != nil {
			return 0, false, err
		}
	}
	return len(tids), free, nil
}
