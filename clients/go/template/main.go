// Command template is an adapter to copy: a lock that is a locked file. The system
// unlocks it when its process ends. Replace what has to do with files.
package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/clients/go/adapter"
)

func main() {
	adapter.Main(adapter.Adapter{
		Name: "template", // and Module: the library's import path
		// What the lock can do: wait, token, lease, lost, deadline, reentrant.
		// With a Renew or Check method it can renew and check, too.
		Capabilities: nil,
		Open:         open,
	})
}

type lock struct {
	dir  string
	held map[string]*os.File
}

// open connects one client: c.URLs are the servers, c.TTL is the lease to ask for.
// All clients do this at the same time.
func open(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
	dir := filepath.Join(os.TempDir(), "my-locks")
	return &lock{dir, map[string]*os.File{}}, os.MkdirAll(dir, 0o700)
}

func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	f, err := os.Create(filepath.Join(l.dir, url.QueryEscape(key)))
	if err != nil {
		return adapter.Grant{}, err // nobody knows
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return adapter.Grant{}, adapter.ErrBusy // certainly not granted
	}
	if err == nil {
		l.held[key] = f
	}
	return adapter.Grant{}, err
}

func (l *lock) Release(ctx context.Context, key string) error {
	f := l.held[key]
	if f == nil {
		return adapter.ErrNotHeld // certainly not held
	}
	delete(l.held, key)
	return f.Close()
}
