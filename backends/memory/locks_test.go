package memory

import (
	"testing"
	"time"
)

func TestLocks(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(func() time.Time { return now })
	const ttl = time.Second
	steps := []struct {
		after    time.Duration
		do       string
		owner    string
		ok       bool
		token    int64
		whatFor  string
		otherKey bool
	}{
		{0, "acquire", "a", true, 1, "the lock is free", false},
		{0, "acquire", "b", false, 0, "a holds it", false},
		{0, "acquire", "b", true, 2, "another key is another lock, with a token of the same order", true},
		{0, "release", "b", false, 0, "only the owner releases", false},
		{0, "renew", "b", false, 0, "only the owner renews", false},
		{999 * time.Millisecond, "renew", "a", true, 1, "the lease stands", false},
		{999 * time.Millisecond, "acquire", "b", false, 0, "it was renewed", false},
		{time.Millisecond, "acquire", "b", true, 3, "the lease has ended", false},
		{0, "renew", "a", false, 0, "a renewal after the end does not take it back", false},
		{0, "release", "a", false, 0, "a late release does not free another's", false},
		{0, "release", "b", true, 0, "the owner releases", false},
		{0, "release", "b", false, 0, "once", false},
		{0, "acquire", "a", true, 4, "free again", false},
		{ttl, "release", "a", false, 0, "a release after the end says so", false},
	}
	for i, s := range steps {
		now = now.Add(s.after)
		key := "k"
		if s.otherKey {
			key = "other"
		}
		var token int64
		var ok bool
		switch s.do {
		case "acquire":
			token, ok = l.Acquire(key, s.owner, ttl)
		case "renew":
			token, ok = l.Renew(key, s.owner, ttl)
		case "release":
			ok = l.Release(key, s.owner)
		}
		if ok != s.ok || token != s.token {
			t.Fatalf("step %d, %s by %s: got %v, token %d, want %v, token %d: %s", i, s.do, s.owner, ok, token, s.ok, s.token, s.whatFor)
		}
	}
}
