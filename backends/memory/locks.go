// Package memory is a correct lease lock in the memory of one process, with
// fencing tokens: the lock that others are compared with, and one that needs
// nothing installed. Its server runs in the harness, its clients reach it over
// HTTP as those of any other lock.
package memory

import (
	"sync"
	"time"
)

// Locks are lease locks by key. They are safe for concurrent use.
type Locks struct {
	now func() time.Time

	mu     sync.Mutex
	leases map[string]lease
	last   int64 // token granted
}

type lease struct {
	owner string
	token int64
	until time.Time // exclusive
}

// New returns locks that live by the given clock, which must not go backwards.
func New(now func() time.Time) *Locks {
	return &Locks{now: now, leases: map[string]lease{}}
}

// Acquire grants the lock to owner, a name that no other acquire has, unless a
// lease stands. Tokens rise from grant to grant.
func (l *Locks) Acquire(key, owner string, ttl time.Duration) (token int64, granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if now.Before(l.leases[key].until) {
		return 0, false
	}
	l.last++
	l.leases[key] = lease{owner, l.last, now.Add(ttl)}
	return l.last, true
}

// Renew extends the owner's lease to ttl from now, if it stands.
func (l *Locks) Renew(key, owner string, ttl time.Duration) (token int64, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s := l.leases[key]
	if s.owner != owner || !now.Before(s.until) {
		return 0, false
	}
	s.until = now.Add(ttl)
	l.leases[key] = s
	return s.token, true
}

// Release ends the owner's lease, if it stands.
func (l *Locks) Release(key, owner string) (held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.leases[key]
	if s.owner != owner || !l.now().Before(s.until) {
		return false
	}
	delete(l.leases, key)
	return true
}
