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
		Summary: "freeze processes with SIGSTOP, as a long garbage collection or a suspended machine does",
		New:     func(map[string]string) (Fault, error) { return &pause{}, nil },
	})
}

// stateTimeout bounds the wait for the kernel to stop or to continue a process,
// which takes about a millisecond.
const stateTimeout = 5 * time.Second

// pause freezes all processes of its targets.
type pause struct {
	frozen []process
}

// process is an operating system process, told apart from a later one with the
// same id by its start time.
type process struct {
	pid   int
	start string
}

// Inject stops every process of the targets and waits until the system reports
// each as stopped.
func (p *pause) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("pause: no target")
	}
	for _, t := range targets {
		ps, ok := t.(Processes)
		if !ok {
			return "", fmt.Errorf("pause: %s is not made of processes", t.Name())
		}
		pids, err := ps.PIDs()
		if err != nil {
			return "", fmt.Errorf("pause %s: %w", t.Name(), err)
		}
		if len(pids) == 0 {
			return "", fmt.Errorf("pause %s: no process is running", t.Name())
		}
		for _, pid := range pids {
			s, err := processState(pid)
			if err != nil {
				return "", fmt.Errorf("pause %s: %w", t.Name(), err)
			}
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				return "", fmt.Errorf("pause %s: stop process %d: %w", t.Name(), pid, err)
			}
			p.frozen = append(p.frozen, process{pid, s.start})
		}
	}
	var proof []string
	for _, f := range p.frozen {
		s, err := awaitState(ctx, f, func(s state) bool { return s.code == 'T' })
		if err != nil {
			return "", fmt.Errorf("pause: %w", err)
		}
		proof = append(proof, fmt.Sprintf("process %d in state %c", f.pid, s.code))
	}
	return Proof(strings.Join(proof, ", ")), nil
}

// Heal lets every stopped process go on and waits until none is stopped any
// more. A process that is gone needs no healing.
func (p *pause) Heal(ctx context.Context) (Proof, error) {
	var proof []string
	var errs []error
	for _, f := range p.frozen {
		s, err := processState(f.pid)
		if err != nil || s.start != f.start {
			proof = append(proof, fmt.Sprintf("process %d is gone", f.pid))
			continue
		}
		if err := syscall.Kill(f.pid, syscall.SIGCONT); err != nil {
			errs = append(errs, fmt.Errorf("continue process %d: %w", f.pid, err))
			continue
		}
		if s, err = awaitState(ctx, f, func(s state) bool { return s.code != 'T' }); err != nil {
			errs = append(errs, err)
			continue
		}
		proof = append(proof, fmt.Sprintf("process %d in state %c", f.pid, s.code))
	}
	p.frozen = nil
	return Proof(strings.Join(proof, ", ")), errors.Join(errs...)
}

// state is what the system says of a process.
type state struct {
	code  byte   // R, S, D, T, Z, ...
	start string // start time, opaque
}

// awaitState waits until ok holds of the state of p.
func awaitState(ctx context.Context, p process, ok func(state) bool) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for {
		s, err := processState(p.pid)
		if err != nil {
			return s, err
		}
		if s.start != p.start || s.code == 'Z' {
			return s, fmt.Errorf("process %d has ended", p.pid)
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
