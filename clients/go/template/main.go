// Command template is an adapter to copy: a lock that is a file, which exists
// while somebody holds it. Replace what has to do with files.
package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
	held map[string]bool
}

// open connects one client: c.URLs are the servers, c.TTL is the lease to ask for.
func open(ctx context.Context, c adapter.Config) (adapter.Lock, error) {
	dir := filepath.Join(os.TempDir(), "my-locks")
	return &lock{dir, map[string]bool{}}, os.MkdirAll(dir, 0o700)
}

func (l *lock) Acquire(ctx context.Context, key string, wait time.Duration) (adapter.Grant, error) {
	f, err := os.OpenFile(l.path(key), os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return adapter.Grant{}, adapter.ErrBusy // certainly not granted
	}
	if err != nil {
		return adapter.Grant{}, err // nobody knows
	}
	l.held[key] = true
	return adapter.Grant{}, f.Close()
}

func (l *lock) Release(ctx context.Context, key string) error {
	if !l.held[key] {
		return adapter.ErrNotHeld
	}
	delete(l.held, key)
	return os.Remove(l.path(key))
}

func (l *lock) path(key string) string {
	return filepath.Join(l.dir, filepath.Base(filepath.Clean("/"+key)))
}
