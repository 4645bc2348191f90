package harness

import (
	"fmt"
	"slices"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

// OutOfReach says why a fault of the scenario cannot reach what it is meant for, with
// the lock that the options name, or "": a fault that hits what the lock does not
// use would take effect, and test nothing.
func OutOfReach(sc *scenarios.Scenario, o Options) string {
	if why := onServersOfOthers(sc, o); why != "" {
		return why
	}
	for _, s := range sc.Steps {
		if s.Fault == "" {
			continue
		}
		if why := outOfReach(s.Fault, s.With, s.On, sc.Clients, o); why != "" {
			return why
		}
	}
	for _, i := range sc.Nemesis {
		if why := outOfReach(i.Fault, i.With, i.On, sc.Clients, o); why != "" {
			return why
		}
	}
	return ""
}

// FaultOutOfReach is OutOfReach for a kind of fault that may hit anything.
func FaultOutOfReach(kind string, o Options) string {
	return outOfReach(kind, nil, []string{"holder"}, nil, o)
}

func outOfReach(name string, with map[string]string, on, clients []string, o Options) string {
	kind, err := nemesis.Find(name)
	if err != nil {
		return "" // which is told elsewhere
	}
	if len(o.Servers) > 0 {
		return outOfReachOfOthers(kind, with, on, clients)
	}
	if !serverless(o) {
		return ""
	}
	if networked(kind) {
		return fmt.Sprintf("fault %s is one of the network, and the lock has no servers here: those of %s are for its own clients", name, o.Backend.Name)
	}
	for _, target := range on {
		if !onClients(target, clients) {
			return fmt.Sprintf("fault %s is to hit %s, and the lock has no servers here: those of %s are for its own clients", name, target, o.Backend.Name)
		}
	}
	return ""
}

// networked reports whether a fault is one of links or packets.
func networked(kind nemesis.Kind) bool {
	return slices.Contains(kind.Needs, nemesis.Links) || slices.Contains(kind.Needs, nemesis.Namespaces)
}

// onClients reports whether a target is always a client.
func onClients(target string, clients []string) bool {
	return slices.Contains([]string{"holder", "waiter", "clients"}, target) || slices.Contains(clients, target)
}

// serverless reports whether the lock is an external client's, and so has nothing to
// do with the built-in servers of the backend, which speak a protocol of their own.
func serverless(o Options) bool {
	if len(o.Client) == 0 || o.Backend.Servers == nil {
		return false
	}
	return !slices.ContainsFunc(o.Backend.Servers(backends.Options{Nodes: o.Nodes, TTL: o.TTL}), func(s backends.Server) bool {
		return s.Software != "memory"
	})
}
