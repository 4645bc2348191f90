package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

func init() {
	Register(Kind{
		Name:    "pause",
		Summary: "freeze processes with SIGSTOP, and containers by the freezer, as a long garbage collection or a suspended machine does",
		New:     func(map[string]string) (Fault, error) { return &pause{}, nil },
	})
}

// stateTimeout bounds the wait for the kernel to stop or to continue a process,
// which takes about a millisecond.
const stateTimeout = 5 * time.Second

// pause freezes all processes of its targets.
type pause struct {
	frozen     []process
	containers []Container
}

// process is an operating system process, told apart from a later one with the
// same id by its start time.
type process struct {
	pid   int
	start string
}

// Inject stops every process of the targets and waits until the system reports
// each as stopped. Processes that end meanwhile are left out, as long as one of
// each target is stopped.
func (p *pause) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("pause: no target")
	}
	var proof []string
	for _, t := range targets {
		stopped, err := p.freeze(ctx, t)
		if err != nil {
			return "", fmt.Errorf("pause %s: %w", t.Name(), err)
		}
		proof = append(proof, stopped...)
	}
	return Proof(strings.Join(proof, ", ")), nil
}

func (p *pause) freeze(ctx context.Context, t Target) (proof []string, err error) {
	if c := containerOf(t); c != nil {
		p.containers = append(p.containers, c)
		said, err := c.Freeze(ctx)
		return []string{said}, err
	}
	ps, ok := t.(Processes)
	if !ok {
		return nil, errors.New("it is not made of processes")
	}
	pids, err := ps.PIDs()
	if err != nil {
		return nil, err
	}
	var stopping []process
	for _, pid := range pids {
		s, err := processState(pid)
		if err != nil {
			continue // it has ended since
		}
		switch err := syscall.Kill(pid, syscall.SIGSTOP); {
		case errors.Is(err, syscall.ESRCH):
		case err != nil:
			return nil, fmt.Errorf("stop process %d: %w", pid, err)
		default:
			stopping = append(stopping, process{pid, s.start})
		}
	}
	p.frozen = append(p.frozen, stopping...)
	for _, f := range stopping {
		switch s, err := awaitState(ctx, f, func(s state) bool { return s.code == 'T' }); {
		case errors.Is(err, errEnded):
		case err != nil:
			return nil, err
		default:
			proof = append(proof, fmt.Sprintf("process %d in state %c", f.pid, s.code))
		}
	}
	if len(proof) == 0 {
		return nil, errors.New("no process is running")
	}
	return proof, nil
}

// Heal lets every stopped process go on and waits until none is stopped any
// more. A process that is gone needs no healing.
func (p *pause) Heal(ctx context.Context) (Proof, error) {
	var proof []string
	var errs []error
	for _, f := range p.frozen {
		s, err := processState(f.pid)
		if err == nil && s.start == f.start {
			if err = syscall.Kill(f.pid, syscall.SIGCONT); err == nil {
				s, err = awaitState(ctx, f, func(s state) bool { return s.code != 'T' })
			}
		} else {
			err = errEnded
		}
		switch {
		case errors.Is(err, errEnded), errors.Is(err, syscall.ESRCH):
			proof = append(proof, fmt.Sprintf("process %d is gone", f.pid))
		case err != nil:
			errs = append(errs, fmt.Errorf("continue process %d: %w", f.pid, err))
		default:
			proof = append(proof, fmt.Sprintf("process %d in state %c", f.pid, s.code))
		}
	}
	p.frozen = nil
	for _, c := range p.containers {
		said, err := c.Thaw(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		proof = append(proof, said)
	}
	p.containers = nil
	return Proof(strings.Join(proof, ", ")), errors.Join(errs...)
}

// state is what the system says of a process.
type state struct {
	code  byte   // R, S, D, T, Z, ...
	start string // start time, opaque
}

// errEnded says that a process has ended.
var errEnded = errors.New("the process has ended")

// awaitState waits until ok holds of the state of p. The error is errEnded if it
// ends first.
func awaitState(ctx context.Context, p process, ok func(state) bool) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		s, err := processState(p.pid)
		if err != nil || s.start != p.start || s.code == 'Z' {
			return s, errEnded
		}
		if ok(s) {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, fmt.Errorf("process %d is still in state %c: %w", p.pid, s.code, ctx.Err())
		}
	}
}

// awaitEnd waits until p has ended. One that nobody has waited for yet has.
func awaitEnd(ctx context.Context, p process) error {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		s, err := processState(p.pid)
		if err != nil || s.start != p.start || s.code == 'Z' {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("process %d is still there, in state %c: %w", p.pid, s.code, ctx.Err())
		}
	}
}
