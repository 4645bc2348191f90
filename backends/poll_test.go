package backends_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

func TestPoll(t *testing.T) {
	const ttl = time.Second
	broken := errors.New("connection reset")
	for _, c := range []struct {
		name    string
		wait    time.Duration
		free    time.Duration // when the lock is free
		err     error         // instead of being granted then
		want    error
		atLeast time.Duration
		atMost  time.Duration
	}{
		{"free at once", 0, 0, nil, nil, 0, 0},
		{"a single try without a wait", 0, time.Hour, nil, backends.ErrBusy, 0, 0},
		{"free in time", time.Minute, 50 * time.Millisecond, nil, nil, 50 * time.Millisecond, 60 * time.Millisecond},
		{"not free in time", 100 * time.Millisecond, time.Hour, nil, backends.ErrBusy, 90 * time.Millisecond, 100 * time.Millisecond},
		{"an unknown outcome ends it", time.Minute, 20 * time.Millisecond, broken, broken, 20 * time.Millisecond, 30 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var tried time.Duration
				g, err := backends.Poll(t.Context(), c.wait, func(context.Context) (backends.Grant, error) {
					tried = time.Since(begin)
					if tried < c.free {
						return backends.Grant{}, backends.ErrBusy
					}
					return backends.Grant{TTL: ttl}, c.err
				})
				if !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
				if took := time.Since(begin); took < c.atLeast || took > c.atMost {
					t.Errorf("took %v, want %v to %v", took, c.atLeast, c.atMost)
				}
				if err == nil && g.TTL != tried+ttl {
					t.Errorf("lease of %v from the invocation on, want that of the try at %v", g.TTL, tried)
				}
			})
		})
	}
}
