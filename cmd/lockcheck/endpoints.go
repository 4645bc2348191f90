package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/harness"
)

// endpointFlags name servers that the user runs.
type endpointFlags struct {
	urls    []string
	servers []backends.Endpoint // once resolve has read them
}

func (f *endpointFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.urls, "endpoints", nil, "servers that run already, as redis://, postgres:// or http:// (etcd) URLs, instead of new ones: they are not touched, so there are faults on clients and links only")
	for _, other := range []string{"bin", "nodes", "runtime", "versions"} {
		c.MarkFlagsMutuallyExclusive("endpoints", other)
	}
}

// resolve reads the URLs as the servers of the one backend that was chosen.
func (f *endpointFlags) resolve(bs []string) error {
	if len(f.urls) == 0 {
		return nil
	}
	if len(bs) != 1 || bs[0] == "all" {
		return usagef("--endpoints are the servers of one lock system: say with --backend of which")
	}
	given, err := parseEndpoints(f.urls)
	if err != nil {
		return err
	}
	b, err := backends.Find(bs[0])
	if err != nil {
		return usage(err)
	}
	o := backends.Options{}
	if slices.Contains(b.Nodes, len(given)) {
		o.Nodes = len(given)
	}
	if f.servers, err = harness.NameServers(b, o, given); err != nil {
		return usagef("--endpoints: %w", err)
	}
	return nil
}

// parseEndpoints reads the URLs of servers that the user runs.
func parseEndpoints(urls []string) ([]backends.Endpoint, error) {
	var all []backends.Endpoint
	for i, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			u = &url.URL{} // which is none of those below
		}
		software := map[string]string{
			"redis": "redis", "rediss": "redis", "postgres": "postgres", "postgresql": "postgres", "http": "etcd", "https": "etcd",
		}[u.Scheme]
		if software == "" || u.Host == "" {
			return nil, usagef("--endpoints %s: want a URL such as redis://127.0.0.1:6379, http://127.0.0.1:2379 (etcd) or postgres://user@127.0.0.1/db", s)
		}
		if !loopback(u.Hostname()) {
			return nil, usagef("--endpoints %s: the servers of tests must be on the loopback interface: forward a port to %s, for example with ssh -L", s, u.Host)
		}
		all = append(all, backends.Endpoint{Name: fmt.Sprintf("%s-%d", software, i+1), Software: software, URL: s})
	}
	return all, nil
}

func loopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback()
	}
	ips, err := net.LookupIP(host)
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false
		}
	}
	return err == nil && len(ips) > 0
}
