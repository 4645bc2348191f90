package etcd_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockcheck/lockcheck/backends"
)

// What is counted is events that somebody who watches was sent, each once for each
// of them, and nothing else that happens.
func TestEventsAreCounted(t *testing.T) {
	b, servers := cluster(t)
	o, err := b.Observe(t.Context(), backends.Config{Servers: servers, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	count := func() int64 {
		t.Helper()
		n, err := o.(backends.Counter).Counts(t.Context())
		if err != nil || n.Tries != 0 {
			t.Fatalf("%+v, %v", n, err)
		}
		return n.Events
	}
	before := count()
	cli := admin(t, servers)
	first, second := cli.Watch(t.Context(), "watched"), cli.Watch(t.Context(), "watched")
	for _, key := range []string{"watched", "other", "watched"} {
		if _, err := cli.Put(t.Context(), key, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cli.Delete(t.Context(), "watched"); err != nil {
		t.Fatal(err)
	}
	for _, events := range []<-chan clientv3.WatchResponse{first, second} {
		for n := 0; n < 3; {
			r := <-events
			if err := r.Err(); err != nil || len(r.Events) == 0 {
				t.Fatalf("%d events, %v", len(r.Events), err)
			}
			n += len(r.Events)
		}
	}
	if n := count() - before; n != 6 {
		t.Errorf("%d events were counted, want 3 for each of 2 watchers", n)
	}
}
