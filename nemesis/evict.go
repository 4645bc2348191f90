package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

func init() {
	Register(Kind{
		Name:    "evict",
		Summary: "leave a Redis server so little memory that it evicts the keys that it has",
		New:     func(map[string]string) (Fault, error) { return &evict{}, nil },
	})
}

// Memory is a server that throws keys away when it is short of memory.
type Memory interface {
	Target
	// LimitMemory has it evict its keys and stay short of memory. It returns
	// how many were evicted.
	LimitMemory(context.Context) (evicted int64, err error)
	// FreeMemory gives it back what it was started with.
	FreeMemory(context.Context) error
}

// evict takes memory away from its targets.
type evict struct{ short []Memory }

// Inject implements Fault. A server without a key has nothing to evict, which
// is an error.
func (e *evict) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("evict: no target")
	}
	var proofs []string
	for _, t := range targets {
		m, ok := t.(Memory)
		if !ok {
			return "", fmt.Errorf("evict: %s is no server that evicts", t.Name())
		}
		e.short = append(e.short, m)
		n, err := m.LimitMemory(ctx)
		if err != nil {
			return "", fmt.Errorf("evict: %w", err)
		}
		if n == 0 {
			return "", fmt.Errorf("evict: %s had no key", t.Name())
		}
		proofs = append(proofs, fmt.Sprintf("%s evicted %d keys", t.Name(), n))
	}
	return Proof(strings.Join(proofs, "; ")), nil
}

// Heal gives the memory back. The keys are gone for good. A server that is down
// has forgotten the limit.
func (e *evict) Heal(ctx context.Context) (Proof, error) {
	var proofs []string
	for _, m := range e.short {
		if p, ok := m.(Processes); ok {
			if pids, err := p.PIDs(); err == nil && len(pids) == 0 {
				proofs = append(proofs, m.Name()+" is down")
				continue
			}
		}
		if err := m.FreeMemory(ctx); err != nil {
			return "", fmt.Errorf("evict: heal: %w", err)
		}
		proofs = append(proofs, m.Name()+" has its memory back")
	}
	e.short = nil
	return Proof(strings.Join(proofs, "; ")), nil
}
