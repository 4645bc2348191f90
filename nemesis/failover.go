package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

func init() {
	Register(Kind{
		Name:    "failover",
		Summary: "make another of the servers the primary or leader; name all that have the same data",
		Params: map[string]string{
			"how": "promote (kill the primary and promote another; the default), elect (kill it and wait until the others have one), or handover (kill nothing: an etcd leader hands over, others stay primary too)",
			"to":  "the server that is to be promoted; by default the first that is not the primary",
		},
		New: func(params map[string]string) (Fault, error) {
			f := &failover{how: params["how"], to: params["to"]}
			switch f.how {
			case "":
				f.how = promote
			case promote, handover:
			case elect:
				if f.to != "" {
					return nil, errors.New("failover: who is elected cannot be chosen: drop the parameter to")
				}
			default:
				return nil, fmt.Errorf("failover: how %q: want promote, elect or handover", f.how)
			}
			return f, nil
		},
	})
}

const (
	promote  = "promote"
	elect    = "elect"
	handover = "handover"
)

// primary is the role of a server that takes writes, or leads.
const primary = "primary"

// Replicated is a server whose data others have too.
type Replicated interface {
	Restarter
	// Role returns "primary", or what else the server says that it is.
	Role(context.Context) (string, error)
	// Promote makes it the primary and returns once it says so.
	Promote(context.Context) error
	// Follow starts it, if it runs anew, as a replica of the named primary.
	Follow(ctx context.Context, primary string) error
}

// electLimit bounds the wait for a primary that the servers choose themselves.
const electLimit = 30 * time.Second

// failover moves the primary.
type failover struct {
	how, to string

	all []Replicated
	old Replicated
	new Replicated // nil until it was seen to be the primary
}

// Inject makes another of the targets the primary and returns once that says
// that it is.
func (f *failover) Inject(ctx context.Context, targets []Target) (Proof, error) {
	if len(targets) < 2 {
		return "", fmt.Errorf("failover: %d servers: name all that have the same data, two or more", len(targets))
	}
	for _, t := range targets {
		r, ok := t.(Replicated)
		if !ok {
			return "", fmt.Errorf("failover: %s is no server with replicas", t.Name())
		}
		role, err := r.Role(ctx)
		if err != nil {
			return "", fmt.Errorf("failover: %w", err)
		}
		if role == primary {
			if f.old != nil {
				return "", fmt.Errorf("failover: there are two primaries already, %s and %s", f.old.Name(), r.Name())
			}
			f.old = r
		}
		f.all = append(f.all, r)
	}
	if f.old == nil {
		return "", errors.New("failover: none of the servers is the primary now")
	}
	next, err := f.next()
	if err != nil {
		return "", err
	}
	proof := fmt.Sprintf("%s was the primary", f.old.Name())
	if f.how != handover {
		ps, err := running(f.old)
		if err != nil {
			return "", fmt.Errorf("failover: %s: %w", f.old.Name(), err)
		}
		if err := f.old.Kill(ctx); err != nil {
			return "", fmt.Errorf("failover: %w", err)
		}
		said, err := gone(ctx, ps)
		if err != nil {
			return "", fmt.Errorf("failover: %w", err)
		}
		proof += ", " + said
	}
	if f.how == elect {
		if next, err = f.elected(ctx); err != nil {
			return "", err
		}
	} else if err := next.Promote(ctx); err != nil {
		return "", fmt.Errorf("failover: %w", err)
	}
	role, err := next.Role(ctx)
	if err != nil || role != primary {
		return "", fmt.Errorf("failover: %s says that it is %q, not the primary: %v", next.Name(), role, err)
	}
	f.new = next
	proof += fmt.Sprintf("; %s says that it is now", next.Name())
	if f.how == handover {
		role, err := f.old.Role(ctx)
		if err != nil {
			return "", fmt.Errorf("failover: %w", err)
		}
		proof += fmt.Sprintf(", and %s that it is %s", f.old.Name(), role)
	}
	return Proof(proof), nil
}

// next returns the server that is to be promoted.
func (f *failover) next() (Replicated, error) {
	i := slices.IndexFunc(f.all, func(r Replicated) bool {
		return r != f.old && (f.to == "" || r.Name() == f.to)
	})
	if i < 0 {
		return nil, fmt.Errorf("failover: %s is not among the targets, or is the primary already", f.to)
	}
	return f.all[i], nil
}

// elected waits until one of the other servers is the primary.
func (f *failover) elected(ctx context.Context) (Replicated, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, electLimit, fmt.Errorf("none within %v", electLimit))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, r := range f.all {
			// One that does not answer yet may do so the next time.
			if role, err := r.Role(ctx); r != f.old && err == nil && role == primary {
				return r, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("failover: no new primary: %w", context.Cause(ctx))
		}
	}
}

// Heal has the old primary come back as a replica of the new one, which stays
// what it is.
func (f *failover) Heal(ctx context.Context) (Proof, error) {
	if f.old == nil {
		f.all = nil
		return "nothing was failed over", nil
	}
	proof, err := f.back(ctx)
	if err != nil {
		return "", fmt.Errorf("failover: heal: %w", err)
	}
	f.all, f.old, f.new = nil, nil, nil
	return proof, nil
}

func (f *failover) back(ctx context.Context) (Proof, error) {
	pids, err := f.old.PIDs()
	if err != nil {
		return "", err
	}
	if f.new == nil { // it did not come to that
		if len(pids) > 0 {
			return Proof(f.old.Name() + " runs"), nil
		}
		said, err := start(ctx, f.old, true)
		return Proof(said), err
	}
	if role, err := f.old.Role(ctx); len(pids) == 0 || err == nil && role == primary {
		if err := f.old.Follow(ctx, f.new.Name()); err != nil {
			return "", err
		}
	}
	var roles []string
	for _, r := range []Replicated{f.new, f.old} {
		role, err := r.Role(ctx)
		if err != nil {
			return "", err
		}
		roles = append(roles, fmt.Sprintf("%s says that it is %s", r.Name(), role))
	}
	return Proof(strings.Join(roles, ", ")), nil
}
