// Package registry keeps things under the names that users type.
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Registry has things of one sort by name. The zero value is not usable; see
// New. Register is for init functions: after them a registry is only read, and
// may be from several goroutines.
type Registry[T any] struct {
	sort string
	all  map[string]T
}

// New returns an empty registry for things of a sort, such as "backend", which
// is what messages call them.
func New[T any](sort string) *Registry[T] {
	return &Registry[T]{sort: sort, all: map[string]T{}}
}

// Register adds a thing. It panics if the name is taken, since that is a
// mistake in the program.
func (r *Registry[T]) Register(name string, thing T) {
	if _, taken := r.all[name]; taken {
		panic(r.sort + " " + name + " is registered twice")
	}
	r.all[name] = thing
}

// Names returns all names, sorted.
func (r *Registry[T]) Names() []string { return slices.Sorted(maps.Keys(r.all)) }

// Find returns the thing registered under name, or an error that says which
// names there are.
func (r *Registry[T]) Find(name string) (T, error) {
	thing, ok := r.all[name]
	if !ok {
		return thing, fmt.Errorf("unknown %s %q: there are %s", r.sort, name, strings.Join(r.Names(), ", "))
	}
	return thing, nil
}
