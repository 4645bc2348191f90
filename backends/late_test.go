package backends_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

func TestTooLate(t *testing.T) {
	const ttl = time.Second
	for _, c := range []struct {
		name string
		took time.Duration
		late bool
	}{
		{"at once", 0, false},
		{"just in time", ttl - time.Nanosecond, false},
		{"when the lease ends", ttl, true},
		{"when the lease is over", 3 * ttl, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := time.Now()
				time.Sleep(c.took)
				err := backends.TooLate(asked, ttl)
				if (err != nil) != c.late {
					t.Errorf("error %v, want one: %v", err, c.late)
				}
				if err != nil && !backends.IsFailed(err) {
					t.Errorf("error %v, want a certain failure", err)
				}
			})
		})
	}
}
