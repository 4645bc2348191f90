package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/scenarios"
)

// leaderTimeout bounds the question to one server whether it leads: one that is
// frozen does not answer.
const leaderTimeout = 300 * time.Millisecond

// leader returns the server that says that it leads: the leader of an etcd
// cluster, or a primary. Servers that do not answer are passed over: what is
// asked is who leads those that are left.
func leader(ctx context.Context, nodes []*deploy.Node) (*deploy.Node, error) {
	errs := []error{errors.New("no server says that it leads")}
	for _, n := range nodes {
		if n.Name() == resourceServer {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
		role, err := n.Role(ctx)
		cancel()
		if err == nil && role == deploy.Primary {
			return n, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// noteLeader remembers who leads, if a step waits for another.
func (r *run) noteLeader(ctx context.Context) error {
	if !slices.ContainsFunc(r.scenario.Steps, func(s scenarios.Step) bool { return s.Await == scenarios.NewLeader }) {
		return nil
	}
	n, err := leader(ctx, r.nodes)
	if err != nil {
		return err
	}
	r.led = n.Name()
	return nil
}

// newLeader waits until a server says that it leads which did not before the last
// fault of a step. Who led then may say so too.
func (r *run) newLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, injectTimeout)
	defer cancel()
	others := slices.DeleteFunc(slices.Clone(r.nodes), func(n *deploy.Node) bool { return n.Name() == r.led })
	tick := time.NewTicker(tryInterval)
	defer tick.Stop()
	for {
		_, err := leader(ctx, others)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return inconclusive{fmt.Errorf("no other leader than %s within %v: %w", r.led, injectTimeout, err)}
		}
	}
}
