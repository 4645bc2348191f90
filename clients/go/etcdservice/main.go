// Command etcdservice tests the lock service that an etcd server itself has
// (v3lock), by its JSON gateway: so no client library takes part.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/lockcheck/lockcheck/clients/go/adapter"
)

func main() {
	adapter.Main(adapter.Adapter{
		Name:         "etcd-v3lock",
		Capabilities: []string{"wait"},
		Open: func(_ context.Context, c adapter.Config) (adapter.Lock, error) {
			return &lock{c.URLs[0], int(math.Ceil(c.TTL.Seconds())), map[string]held{}}, nil
		},
	})
}

type lock struct {
	url  string
	ttl  int // seconds
	held map[string]held
}

type held struct{ lease, key string }

// Acquire grants itself a lease and asks the server for the lock. The lease goes on
// only if it is renewed, also while the request waits.
func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	lease, err := l.call(ctx, "lease/grant", fields{"TTL": l.ttl})
	if err != nil {
		return adapter.Grant{}, err
	}
	// A try without a wait still needs the time of a request.
	waiting, cancel := context.WithTimeout(ctx, max(wait, 500*time.Millisecond))
	defer cancel()
	granted, err := l.call(waiting, "lock/lock", fields{"name": base64.StdEncoding.EncodeToString([]byte(key)), "lease": lease.ID})
	if err != nil {
		// With the lease goes the place in the queue: then it is certain.
		if _, revoked := l.call(ctx, "lease/revoke", fields{"ID": lease.ID}); revoked != nil && waiting.Err() != nil {
			return adapter.Grant{}, errors.Join(err, revoked)
		}
		return adapter.Grant{}, fmt.Errorf("%w: %w", adapter.ErrBusy, err)
	}
	l.held[key] = held{lease.ID, granted.Key}
	return adapter.Grant{}, nil
}

func (l *lock) Renew(ctx context.Context, key string) (adapter.Grant, error) {
	h, ok := l.held[key]
	if !ok {
		return adapter.Grant{}, adapter.ErrNotHeld
	}
	r, err := l.call(ctx, "lease/keepalive", fields{"ID": h.lease})
	if err == nil && r.Result.TTL == "" { // it has ended: the server says 0 by leaving it out
		return adapter.Grant{}, adapter.ErrNotHeld
	}
	return adapter.Grant{}, err
}

func (l *lock) Release(ctx context.Context, key string) error {
	h, ok := l.held[key]
	if !ok {
		return adapter.ErrNotHeld
	}
	delete(l.held, key)
	_, err := l.call(ctx, "lock/unlock", fields{"key": h.key})
	return err
}

type fields map[string]any

// answer is what the requests are answered, in one. Numbers of 64 bits are text.
type answer struct {
	ID     string
	Key    string
	Result struct{ TTL string }
}

func (l *lock) call(ctx context.Context, what string, f fields) (a answer, err error) {
	body, err := json.Marshal(f)
	if err != nil {
		return a, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v3/"+what, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return a, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return a, err
	}
	if r.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s: %s: %s", what, r.Status, bytes.TrimSpace(text))
	}
	return a, json.Unmarshal(text, &a)
}
