package deploy

import (
	"context"
	"errors"
	"sync"

	"github.com/lockcheck/lockcheck/internal/guard"
)

// Cache keeps what is costly to find out or to make: the versions of programs,
// and initialised Postgres clusters. It may be shared by runtimes one after the
// other and at the same time.
type Cache struct {
	mu        sync.Mutex
	binaries  map[[2]string]Binary // by software and path asked for
	templates map[string]*template // by path of the server
}

// NewCache returns an empty cache. The caller closes it.
func NewCache() *Cache {
	return &Cache{binaries: map[[2]string]Binary{}, templates: map[string]*template{}}
}

// binary is Find, once.
func (c *Cache) binary(ctx context.Context, s Software, path string) (Binary, error) {
	key := [2]string{s.Name, path}
	c.mu.Lock()
	bin, ok := c.binaries[key]
	c.mu.Unlock()
	if ok {
		return bin, nil
	}
	bin, err := s.find(ctx, path)
	if err != nil {
		return Binary{}, err
	}
	c.mu.Lock()
	c.binaries[key] = bin
	c.mu.Unlock()
	return bin, nil
}

// contained is the program of an image, which ask is called for once.
func (c *Cache) contained(image string, ask func() (Binary, error)) (Binary, error) {
	key := [2]string{"image", image}
	c.mu.Lock()
	bin, ok := c.binaries[key]
	c.mu.Unlock()
	if ok {
		return bin, nil
	}
	bin, err := ask()
	if err != nil {
		return Binary{}, err
	}
	c.mu.Lock()
	c.binaries[key] = bin
	c.mu.Unlock()
	return bin, nil
}

// template returns the initialised cluster of a server, which make is called
// for once.
func (c *Cache) template(path string, make func() (*template, error)) (*template, error) {
	// Held while it is made: others wait for it rather than make their own.
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.templates[path]; ok {
		return t, nil
	}
	t, err := make()
	if err != nil {
		return nil, err
	}
	c.templates[path] = t
	return t, nil
}

// Close removes what was made. The cache can be used again.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for path, t := range c.templates {
		err = errors.Join(err, guard.RemoveDir(t.root))
		delete(c.templates, path)
	}
	return err
}
