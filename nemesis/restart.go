package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

func init() {
	Register(Kind{
		Name:    "restart",
		Summary: "kill servers with SIGKILL and start them again, with the data that was on disk or with none",
		Params: map[string]string{
			"data":  "keep (what the server has on disk; the default) or lose (all of it)",
			"after": "how long they stay down, such as 500ms; 0s by default",
		},
		New: func(params map[string]string) (Fault, error) {
			r := &restart{keep: true}
			switch params["data"] {
			case "", "keep":
			case "lose":
				r.keep = false
			default:
				return nil, fmt.Errorf("restart: data %q: want keep or lose", params["data"])
			}
			if after, ok := params["after"]; ok {
				var err error
				if r.after, err = time.ParseDuration(after); err != nil || r.after < 0 || r.after > maxDown {
					return nil, fmt.Errorf("restart: after %q: want a time of at most %v, such as 500ms", after, maxDown)
				}
			}
			return r, nil
		},
	})
}

const maxDown = 10 * time.Minute

// restart has its targets go down and come back. It is over when Inject returns;
// Heal brings back what did not come.
type restart struct {
	keep   bool
	after  time.Duration
	killed []Restarter
}

// Inject kills the targets, waits, and starts them again.
func (f *restart) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) == 0 {
		return "", errors.New("restart: no target")
	}
	var all []Restarter
	for _, t := range targets {
		r, ok := t.(Restarter)
		if !ok {
			return "", fmt.Errorf("restart: %s is no server that can be started again", t.Name())
		}
		all = append(all, r)
	}
	began := time.Now()
	killed, err := atOnce(all, func(r Restarter) (string, error) {
		ps, err := running(r)
		if err != nil {
			return "", fmt.Errorf("restart %s: %w", r.Name(), err)
		}
		if err := r.Kill(ctx); err != nil {
			return "", fmt.Errorf("restart: %w", err)
		}
		return gone(ctx, ps)
	})
	f.killed = all
	if err != nil {
		return "", err
	}
	select {
	case <-time.After(f.after):
	case <-ctx.Done():
		return "", fmt.Errorf("restart: while the servers were down: %w", context.Cause(ctx))
	}
	data := "with its data"
	if !f.keep {
		data = "without its data"
	}
	started, err := atOnce(all, func(r Restarter) (string, error) {
		said, err := start(ctx, r, f.keep)
		return fmt.Sprintf("%s, %s, %v later", said, data, time.Since(began).Round(time.Millisecond)), err
	})
	if err != nil {
		return "", fmt.Errorf("restart: %w", err)
	}
	var proofs []string
	for i := range all {
		proofs = append(proofs, killed[i]+"; "+started[i])
	}
	return Proof(strings.Join(proofs, "; ")), nil
}

// Heal starts those that are down.
func (f *restart) Heal(ctx context.Context) (Proof, error) {
	proof, err := startAgain(ctx, f.killed)
	if err != nil {
		return "", fmt.Errorf("restart: %w", err)
	}
	f.killed = nil
	return Proof(strings.Join(proof, "; ")), nil
}
