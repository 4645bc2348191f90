package harness

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

// useServers notes on which servers a run is that it has not started.
func (r *run) useServers() error {
	for _, s := range r.Servers {
		u, err := url.Parse(s.URL)
		if err != nil {
			return fmt.Errorf("the server %s: %w", s.Name, err)
		}
		r.meta.Versions[s.Name] = "not started by this run, at " + u.Redacted()
	}
	if len(r.Servers) > 0 {
		r.space = "lockcheck-" + rand.Text()[:8] + "-"
		r.remark("the servers were running before, and are used as they are: faults hit clients and links only; there the names of locks begin with " + r.space)
	}
	return nil
}

// NameServers gives the endpoints the names that the backend's servers have, in
// their order, so that scenarios can speak of them. It is an error if they are not
// those that the backend needs.
func NameServers(b backends.Backend, o backends.Options, given []backends.Endpoint) ([]backends.Endpoint, error) {
	if b.Servers == nil {
		return nil, fmt.Errorf("backend %s has no servers", b.Name)
	}
	wanted := b.Servers(o)
	var needs, has []string
	for _, w := range wanted {
		needs = append(needs, w.Software)
	}
	for _, s := range given {
		has = append(has, s.Software)
	}
	if !slices.Equal(needs, has) {
		return nil, fmt.Errorf("backend %s needs the servers %s, in this order, and these are %s", b.Name, strings.Join(needs, ", "), strings.Join(has, ", "))
	}
	named := slices.Clone(given)
	for i := range named {
		named[i].Name = wanted[i].Name
	}
	return named, nil
}

// onServersOfOthers says why a scenario cannot be run on servers that the run does
// not start, or "".
func onServersOfOthers(sc *scenarios.Scenario, o Options) string {
	if len(o.Servers) == 0 {
		return ""
	}
	if len(sc.Settings) > 0 {
		return "it sets settings of servers, and these are not ours to set"
	}
	kind, err := resource.Find(ResourceOf(o.Backend, o.Resource))
	if err == nil && kind.Software != "" {
		return fmt.Sprintf("the resource %s needs a database of the run's own: take another, such as --resource unfenced", kind.Name)
	}
	return ""
}

// outOfReachOfOthers says why a fault with these parameters cannot be injected where
// the servers are not the run's own, or "".
func outOfReachOfOthers(kind nemesis.Kind, with map[string]string, on, clients []string) string {
	for _, name := range []string{"groups", "peers"} {
		if strings.Contains(with[name], "leader") || strings.Contains(with[name], "followers") {
			return "nobody asks servers that are not ours which of them leads"
		}
	}
	if slices.Contains(kind.Needs, nemesis.Namespaces) {
		return fmt.Sprintf("fault %s needs servers in network namespaces, and these run already: only faults on clients, and on links through proxies, are available", kind.Name)
	}
	for _, target := range on {
		if !onClients(target, clients) {
			return fmt.Sprintf("fault %s is to hit %s, and the servers are not ours to touch: only faults on clients, and on their links, are available", kind.Name, target)
		}
	}
	return ""
}
