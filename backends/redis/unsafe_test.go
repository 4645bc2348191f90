package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

// What the release of a client does to the lock of another, when its own lease has
// ended: only the one that does not compare frees it.
func TestLateReleases(t *testing.T) {
	_, url := server(t)
	for name, frees := range map[string]bool{"redis": false, "redis-get-del": false, "redis-del": true} {
		t.Run(name, func(t *testing.T) {
			b, err := backends.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			key := "late-" + name
			late := client(t, b, url, 50*time.Millisecond)
			holder, third := client(t, b, url, time.Hour), client(t, b, url, time.Hour)
			if _, err := late.Acquire(t.Context(), key, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := holder.Acquire(t.Context(), key, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if err := late.Release(t.Context(), key); (err == nil) != frees {
				t.Errorf("late release: error %v", err)
			}
			_, err = third.Acquire(t.Context(), key, 0)
			if frees && err != nil || !frees && !errors.Is(err, backends.ErrBusy) {
				t.Errorf("a third client: error %v, freed %v", err, frees)
			}
		})
	}
}
