package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

func init() {
	Register(Kind{
		Name:    "kill",
		Summary: "end processes with SIGKILL; servers come back with their data when it heals, clients never do",
		New:     func(map[string]string) (Fault, error) { return &kill{}, nil },
	})
}

// Restarter is a Target that can be brought back after it was killed: a server.
type Restarter interface {
	Target
	Processes
	// Kill ends it as SIGKILL does and returns when it is gone.
	Kill(context.Context) error
	// Restart starts it, with the data that it had on disk or without, and
	// returns when it serves. If it runs it is killed first.
	Restart(ctx context.Context, keepData bool) error
}

// kill ends its targets.
type kill struct {
	down    []Restarter
	clients []string // that are gone for good
}

// Inject kills every process of the targets and waits until all are gone.
func (k *kill) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("kill: no target")
	}
	var proofs []string
	for _, t := range targets {
		proof, err := k.end(ctx, t)
		if err != nil {
			return "", fmt.Errorf("kill %s: %w", t.Name(), err)
		}
		proofs = append(proofs, t.Name()+": "+proof)
	}
	return Proof(strings.Join(proofs, "; ")), nil
}

func (k *kill) end(ctx context.Context, t Target) (string, error) {
	if r, ok := t.(Restarter); ok {
		ps, err := running(r)
		if err != nil {
			return "", err
		}
		k.down = append(k.down, r)
		if err := r.Kill(ctx); err != nil {
			return "", err
		}
		return gone(ctx, ps)
	}
	p, ok := t.(Processes)
	if !ok {
		return "", errors.New("it is not made of processes")
	}
	ps, err := running(p)
	if err != nil {
		return "", err
	}
	k.clients = append(k.clients, t.Name())
	if c := containerOf(t); c != nil {
		if err := c.Kill(ctx); err != nil {
			return "", err
		}
		return gone(ctx, ps)
	}
	for _, p := range ps {
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return "", fmt.Errorf("process %d: %w", p.pid, err)
		}
	}
	return gone(ctx, ps)
}

// running returns the processes of a target, of which there must be some.
func running(t Processes) ([]process, error) {
	pids, err := t.PIDs()
	if err != nil {
		return nil, err
	}
	var all []process
	for _, pid := range pids {
		// One that has ended since it was listed is none.
		if s, err := processState(pid); err == nil && s.code != 'Z' {
			all = append(all, process{pid, s.start})
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no process is running")
	}
	return all, nil
}

// gone waits until processes have ended, and says so.
func gone(ctx context.Context, all []process) (string, error) {
	var pids []string
	for _, p := range all {
		if err := awaitEnd(ctx, p); err != nil {
			return "", err
		}
		pids = append(pids, fmt.Sprint(p.pid))
	}
	return fmt.Sprintf("gone: process %s", strings.Join(pids, ", ")), nil
}

// Heal starts the servers again that are still down.
func (k *kill) Heal(ctx context.Context) (Proof, error) {
	proof, err := startAgain(ctx, k.down)
	if err != nil {
		return "", fmt.Errorf("kill: %w", err)
	}
	for _, name := range k.clients {
		proof = append(proof, name+" stays dead")
	}
	k.down, k.clients = nil, nil
	return Proof(strings.Join(proof, "; ")), nil
}

// startAgain starts the servers that are down, with their data, all at once: the
// members of a cluster may need each other.
func startAgain(ctx context.Context, down []Restarter) ([]string, error) {
	return atOnce(down, func(r Restarter) (string, error) {
		if pids, err := r.PIDs(); err == nil && len(pids) > 0 {
			return fmt.Sprintf("%s runs: process %d", r.Name(), pids[0]), nil
		}
		return start(ctx, r, true)
	})
}

// start starts a server and says as which processes it runs.
func start(ctx context.Context, r Restarter, keepData bool) (string, error) {
	if err := r.Restart(ctx, keepData); err != nil {
		return "", err
	}
	ps, err := running(r)
	if err != nil {
		return "", fmt.Errorf("%s after its restart: %w", r.Name(), err)
	}
	return fmt.Sprintf("%s runs again: process %d", r.Name(), ps[0].pid), nil
}

// atOnce calls f for all at once and returns what it said of each, in order, or
// the errors.
func atOnce[T any](all []T, f func(T) (string, error)) ([]string, error) {
	said, errs := make([]string, len(all)), make([]error, len(all))
	done := make(chan struct{})
	for i, x := range all {
		go func() {
			said[i], errs[i] = f(x)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	return said, errors.Join(errs...)
}
