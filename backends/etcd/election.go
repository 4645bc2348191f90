package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

func init() {
	register("etcd-election", "leadership of an etcd election: session and election of its client library", lockElection)
}

// lead is for how long a client that found no leader may wait to become one, if
// it is not to wait: another may have come first.
const lead = time.Second

// lockElection is concurrency.Election: the lock's holder is its leader. The
// library can only wait for leadership, so a single try is a look whether
// there is a leader, and then a short wait.
func lockElection(ctx context.Context, s *concurrency.Session, name string, wait bool) (owner, error) {
	e := concurrency.NewElection(s, name)
	campaign := ctx
	if !wait {
		_, err := e.Leader(ctx)
		if err == nil {
			return owner{}, errBusy
		}
		if !errors.Is(err, concurrency.ErrElectionNoLeader) {
			return owner{}, err
		}
		var cancel context.CancelFunc
		campaign, cancel = context.WithTimeout(ctx, lead)
		defer cancel()
	}
	err := e.Campaign(campaign, "")
	if err != nil && !wait && ctx.Err() == nil && campaign.Err() != nil {
		return owner{}, errBusy
	}
	if err != nil {
		return owner{}, err
	}
	return owner{e.Key(), e.Rev()}, nil
}
