package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockcheck/lockcheck/backends"
)

// observer reads which key under the lock's name is the oldest: its create
// revision is the token of whoever holds the lock.
type observer struct{ cli *clientv3.Client }

func observe(_ context.Context, c backends.Config) (backends.Observer, error) {
	cli, err := dial(c)
	if err != nil {
		return nil, err
	}
	return observer{cli}, nil
}

func (o observer) Holder(ctx context.Context, key string) (backends.Holder, error) {
	// Mutex and election keep a key of each client's under the lock's name, the
	// raw transaction keeps one of that name. No client uses both.
	got, err := o.cli.Txn(ctx).Then(
		clientv3.OpGet(key),
		clientv3.OpGet(key+"/", clientv3.WithFirstCreate()...),
	).Commit()
	if err != nil {
		return backends.Holder{}, fmt.Errorf("observe %s: %w", key, err)
	}
	for _, r := range got.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			return backends.Holder{Token: &kv.CreateRevision}, nil
		}
	}
	return backends.Holder{}, nil
}

func (o observer) Close() error { return o.cli.Close() }
