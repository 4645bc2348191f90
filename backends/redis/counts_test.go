package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

// Each try is counted, also one that is refused, and a release is none.
func TestTriesAreCounted(t *testing.T) {
	b, url := server(t)
	o, err := b.Observe(t.Context(), backends.Config{
		Servers: []backends.Endpoint{{Name: "redis", Software: "redis", URL: url}}, TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	a, other := client(t, b, url, time.Hour), client(t, b, url, time.Hour)
	for want := range int64(4) {
		n, err := o.(backends.Counter).Counts(t.Context())
		if err != nil || n != (backends.Counts{Tries: want}) {
			t.Fatalf("after %d tries the count is %+v, %v", want, n, err)
		}
		switch want {
		case 0:
			_, err = a.Acquire(t.Context(), "k", 0)
		case 1:
			if _, err = other.Acquire(t.Context(), "k", 0); errors.Is(err, backends.ErrBusy) {
				err = a.Release(t.Context(), "k")
			}
		case 2:
			_, err = other.Acquire(t.Context(), "k", 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
