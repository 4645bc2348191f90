package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockcheck/lockcheck/backends"
)

// Roles of a server among those that have the same data.
const (
	Primary  = "primary"  // takes writes: also the leader of an etcd cluster
	Replica  = "replica"  // follows one that does
	Electing = "electing" // knows of no primary
)

// replicated is a program whose data others have too.
type replicated interface {
	// role returns what the server says that it is.
	role(context.Context) (string, error)
	// promote makes the server, which runs, the primary, and returns once it
	// says so.
	promote(context.Context) error
	// follow makes a server that is down a replica of another when it
	// starts.
	follow(peer) error
}

// named returns the Software.needs of servers that name others in options.
func named(options ...string) func(backends.Server) []string {
	return func(s backends.Server) []string {
		var names []string
		for _, o := range options {
			if name := s.Options[o]; name != "" {
				names = append(names, name)
			}
		}
		return names
	}
}

func (n *Node) replicated() (replicated, error) {
	if r, ok := n.program().(replicated); ok {
		return r, nil
	}
	return nil, fmt.Errorf("%s is %s: it has no replicas", n.Name(), n.Software())
}

// Role returns what the server says of itself: [Primary], [Replica] or
// [Electing]. It is an error to ask one that is down.
func (n *Node) Role(ctx context.Context) (string, error) {
	r, err := n.replicated()
	if err != nil {
		return "", err
	}
	if c, ok := n.body.(*container); ok && !c.runs() {
		// There nobody would even refuse the connection.
		return "", fmt.Errorf("ask %s for its role: it is down", n.Name())
	}
	role, err := r.role(ctx)
	if err != nil {
		return "", fmt.Errorf("ask %s for its role: %w", n.Name(), err)
	}
	return role, nil
}

// Promote makes the server the primary and returns once it says that it is. It
// does nothing to the primary that there was; only the leader of an etcd
// cluster hands over.
func (n *Node) Promote(ctx context.Context) error {
	ctx, done, err := n.local.begin(ctx)
	if err != nil {
		return fmt.Errorf("promote %s: %w", n.Name(), err)
	}
	defer done()
	r, err := n.replicated()
	if err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	n.ops.Lock()
	defer n.ops.Unlock()
	if err := r.promote(ctx); err != nil {
		return fmt.Errorf("promote %s: %w", n.Name(), err)
	}
	return nil
}

// Follow kills the server if it runs and starts it as a replica of the one
// named primary, which serves. It returns when the two are connected. A member
// of an etcd cluster finds its leader by itself.
func (n *Node) Follow(ctx context.Context, primary string) error {
	ctx, done, err := n.local.begin(ctx)
	if err != nil {
		return fmt.Errorf("have %s follow %s: %w", n.Name(), primary, err)
	}
	defer done()
	r, err := n.replicated()
	if err != nil {
		return err
	}
	if primary == n.Name() {
		return errors.New(primary + " cannot follow itself")
	}
	to, err := n.local.reach(n.Name(), primary)
	if err != nil {
		return err
	}
	if err := n.kill(ctx); err != nil {
		return err
	}
	n.ops.Lock()
	defer n.ops.Unlock()
	if err := r.follow(to); err != nil {
		return fmt.Errorf("have %s follow %s: %w", n.Name(), primary, err)
	}
	if c, ok := n.body.(*container); ok {
		c.stale = true
	}
	return n.body.start(ctx)
}
