package harness

import (
	"context"
	"errors"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy"
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
