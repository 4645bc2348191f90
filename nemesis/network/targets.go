// Package network registers the faults of links between nodes: partitions of all
// shapes, one-way cuts, slow and narrow links, connections reset and refused.
// Their targets are nodes of a proxy.Mesh. Each fault proves its effect with
// probes: connections that pass the same proxies, rules and queues as
// the real ones, before the fault, during it, and after it healed.
//
// For what a proxy can't do see package netns.
package network

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// Linked is a nemesis.Target that is a node of a mesh, under its own name.
type Linked interface {
	nemesis.Target
	Links() *proxy.Mesh
}

// meshOf returns the mesh that all targets are nodes of, and their names.
func meshOf(fault string, targets []nemesis.Target) (*proxy.Mesh, []string, error) {
	if len(targets) == 0 {
		return nil, nil, errors.New(fault + ": no target")
	}
	var mesh *proxy.Mesh
	var names []string
	for _, t := range targets {
		linked, ok := t.(Linked)
		if !ok || linked.Links() == nil {
			return nil, nil, fmt.Errorf("%s: the connections of %s do not pass the proxies", fault, t.Name())
		}
		if mesh != nil && mesh != linked.Links() {
			return nil, nil, fmt.Errorf("%s: %s and %s are in different networks", fault, names[0], t.Name())
		}
		mesh = linked.Links()
		names = append(names, t.Name())
	}
	if err := known(fault, mesh, names); err != nil {
		return nil, nil, err
	}
	return mesh, names, nil
}

// known returns an error if a name is no node's.
func known(fault string, mesh *proxy.Mesh, names []string) error {
	all := nodes(mesh)
	for _, name := range names {
		if !slices.Contains(all, name) {
			return fmt.Errorf("%s: no link leads to or from %s: there are links of %s", fault, name, strings.Join(all, ", "))
		}
	}
	return nil
}

// nodes returns the names of all nodes of a mesh, sorted.
func nodes(mesh *proxy.Mesh) []string {
	all := map[string]bool{}
	for _, l := range mesh.Links() {
		all[l.Source], all[l.Target] = true, true
	}
	return slices.Sorted(maps.Keys(all))
}
