package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/netns"
	"github.com/lockcheck/lockcheck/scenarios"
)

// runFlags are the flags of the commands that make runs.
type runFlags struct {
	backends  []string
	resources []string
	nodes     int
	ttl       time.Duration
	repeat    int
	seed      int64
	out       string
	json      bool
	gate      []string
	client    string
	bin       map[string]string
	network   string
	runtime   runtimeFlags
	endpoints endpointFlags
	ci        ciFlags
}

func (f *runFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringSliceVar(&f.backends, "backend", nil, `lock system to run on, repeatable; "all" is every lock whose servers are found`)
	fs.StringSliceVar(&f.resources, "resource", nil, "what the lock protects, repeatable: "+strings.Join(resource.Names(), ", "))
	fs.IntVar(&f.nodes, "nodes", 0, "number of servers (default: the backend's)")
	fs.DurationVar(&f.ttl, "ttl", 0, "lease to ask for (default: the scenario's)")
	fs.IntVar(&f.repeat, "repeat", 1, "how often to run each")
	fs.Int64Var(&f.seed, "seed", 0, "seed of everything random (default: a new one)")
	fs.StringVar(&f.out, "out", "lockcheck-runs", "folder for the folders of runs")
	fs.BoolVar(&f.json, "json", false, "print one JSON object a run")
	fs.StringSliceVar(&f.gate, "gate", nil, "properties whose violation counts (default: all)")
	fs.StringVar(&f.client, "client", "", `client program instead of the backend's own: 'CMD ARGS', or a JSON array of arguments`)
	fs.StringToStringVar(&f.bin, "bin", nil, "server binary to use, as software=path; etcd=embedded for the built-in one")
	f.addNetwork(c)
	f.runtime.add(c)
	f.ci.add(c)
	for flag, names := range map[string][]string{
		"backend": append(backends.Names(), "all"), "resource": resource.Names(), "gate": properties,
	} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	}
}

func (f *runFlags) addNetwork(c *cobra.Command) {
	c.Flags().StringVar(&f.network, "network", "", "how faults of the network are done: by a proxy, or with each node in a network namespace, netns (default: as the faults need it)")
	_ = c.RegisterFlagCompletionFunc("network", cobra.FixedCompletions(networks, cobra.ShellCompDirectiveNoFileComp))
}

var networks = []string{harness.ProxyNetwork, harness.NetnsNetwork}

// checkNetwork refuses networks that there are not, here or at all.
func (f *runFlags) checkNetwork() error {
	if f.network != "" && !slices.Contains(networks, f.network) {
		return usagef("--network: unknown network %q: there are %s", f.network, strings.Join(networks, ", "))
	}
	if f.network == harness.NetnsNetwork {
		if err := netns.Available(); err != nil {
			return environment(fmt.Errorf("--network netns: %w", err))
		}
	}
	return nil
}

var properties = []string{
	checker.Mutex, checker.Lease, checker.Token, checker.Fence, checker.State, checker.Release, checker.Liveness,
}

// checkProperties refuses names in --gate that are no properties.
func checkProperties(gate []string) error {
	for _, g := range gate {
		if !slices.Contains(properties, g) {
			return usagef("--gate: unknown property %q: there are %s", g, strings.Join(properties, ", "))
		}
	}
	return nil
}

// plan is what a command line asks for: every scenario on every backend with
// every resource.
type plan struct {
	verb    string
	flags   runFlags
	command []string // of an external client
	units   []unit
	missing []missing
	faults  []harness.Weighted // of random schedules; nil for the scenarios' own
	pace    pace
	known   *baseline // violations that do not count
	cut     bool      // some runs were not made, since one failed; run sets it
}

// unit is one combination, to be run flags.repeat times.
type unit struct {
	scenario *scenarios.Scenario
	backend  backends.Backend
	resource string
	bin      map[string]string // programs of its servers; nil is as the flags say
	versions map[string]string // and of their images
}

// missing is what was asked for, but cannot be run here.
type missing struct {
	what string // "backend redis"
	why  error
}

// newPlan checks flags and arguments and works out the combinations.
func newPlan(verb string, f runFlags, names []string, defaultAll bool) (*plan, error) {
	p := &plan{verb: verb, flags: f, pace: pace{parallel: 1}}
	if f.repeat < 1 {
		return nil, usagef("--repeat %d: must be at least 1", f.repeat)
	}
	if f.ttl < 0 || f.nodes < 0 {
		return nil, usagef("--ttl and --nodes cannot be negative")
	}
	if err := checkProperties(f.gate); err != nil {
		return nil, err
	}
	if err := f.checkNetwork(); err != nil {
		return nil, err
	}
	if err := p.flags.runtime.check(f); err != nil {
		return nil, err
	}
	if err := p.flags.endpoints.resolve(f.backends); err != nil {
		return nil, err
	}
	for _, name := range f.resources {
		if !slices.Contains(resource.Names(), name) {
			return nil, usagef("--resource: unknown resource %q: there are %s", name, strings.Join(resource.Names(), ", "))
		}
	}
	for name := range f.bin {
		if !slices.Contains(deploy.Names(), name) {
			return nil, usagef("--bin: unknown software %q: there are %s", name, strings.Join(deploy.Names(), ", "))
		}
	}
	var err error
	if p.command, err = splitCommand(f.client); err != nil {
		return nil, err
	}
	scs, err := scenarios.LoadAll(names...)
	if err != nil {
		return nil, usage(err)
	}
	known := scenarios.Known{Backends: backends.Names(), Resources: resource.Names(), Faults: nemesis.Names(), Software: deploy.Names()}
	for _, sc := range scs {
		known.Params = func(fault string, with map[string]string) error {
			return harness.CheckParams(fault, with, cmp.Or(f.ttl, sc.TTL.Of(0)))
		}
		if err := sc.Check(known); err != nil {
			return nil, usage(err)
		}
	}
	bs, err := p.chooseBackends(defaultAll, scs)
	if err != nil {
		return nil, err
	}
	if p.flags.seed == 0 {
		p.flags.seed = int64(rand.Uint32())
	}
	for _, sc := range scs {
		for _, b := range bs {
			// One that stands apart was chosen for the scenarios that name it.
			if !sc.Supports(b.Name) || p.all(defaultAll) && b.Apart != "" && !slices.Contains(sc.Backends, b.Name) {
				continue
			}
			resources := f.resources
			if len(resources) == 0 {
				resources = sc.Resources
			}
			if len(resources) == 0 {
				resources = []string{""}
			}
			for _, r := range resources {
				if r != "" && len(b.Resources) > 0 && !slices.Contains(b.Resources, r) {
					continue
				}
				p.units = append(p.units, unit{scenario: sc, backend: b, resource: r})
			}
		}
	}
	if err := p.withinReach(); err != nil {
		return nil, err
	}
	if p.units, err = p.withVersions(p.units); err != nil {
		return nil, err
	}
	if len(p.units) == 0 {
		return nil, usagef("nothing to run: no chosen scenario is meant for a chosen backend and resource")
	}
	return p, nil
}

// withinReach leaves out the units whose faults could not reach the lock. It is an
// error of the environment if there are no others.
func (p *plan) withinReach() error {
	var reached []unit
	var why error
	for _, u := range p.units {
		if s := harness.OutOfReach(u.scenario, p.options(u)); s != "" {
			why = fmt.Errorf("%s is unavailable: %s", p.title(u), s)
			p.missing = append(p.missing, missing{p.title(u), errors.New(s)})
			continue
		}
		reached = append(reached, u)
	}
	p.units = reached
	if len(reached) == 0 && why != nil {
		return environment(why)
	}
	return nil
}

// options are those of a unit's runs that do not differ between them.
func (p *plan) options(u unit) harness.Options {
	return harness.Options{
		Backend:     u.backend,
		Resource:    u.resource,
		Nodes:       p.flags.nodes,
		TTL:         p.flags.ttl,
		Client:      p.command,
		Bin:         p.binOf(u),
		Gate:        p.flags.gate,
		Network:     p.flags.network,
		Runtime:     p.flags.runtime.name,
		Versions:    p.versionsOf(u),
		ClientImage: p.flags.runtime.clientImage,
		Servers:     p.flags.endpoints.servers,
	}
}

// availableFaults refuses faults that cannot be injected here, or not where a unit
// runs.
func (p *plan) availableFaults(kinds []harness.Weighted) error {
	for _, w := range kinds {
		k, err := nemesis.Find(w.Kind)
		if err != nil {
			return usage(err)
		}
		if k.Available != nil {
			if err := k.Available(); err != nil {
				return environment(fmt.Errorf("fault %s is unavailable: %w", w.Kind, err))
			}
		}
		for _, u := range p.units {
			if why := harness.FaultOutOfReach(w.Kind, p.options(u)); why != "" {
				return environment(fmt.Errorf("%s: %s", p.title(u), why))
			}
		}
	}
	return nil
}

// all reports whether all backends are asked for, rather than some by name.
func (p *plan) all(byDefault bool) bool {
	return slices.Contains(p.flags.backends, "all") || len(p.flags.backends) == 0 && byDefault
}

// chooseBackends returns the backends that the flags name. All of them include
// those that stand apart only if one of the scenarios names them.
func (p *plan) chooseBackends(defaultAll bool, scs []*scenarios.Scenario) ([]backends.Backend, error) {
	names := p.flags.backends
	if len(names) == 0 && defaultAll {
		names = []string{"all"}
	}
	if len(names) == 0 {
		b, err := defaultBackend(p.flags)
		return []backends.Backend{b}, err
	}
	var bs []backends.Backend
	for _, name := range names {
		if name == "all" {
			for _, n := range backends.Names() {
				b, err := backends.Find(n)
				if err != nil {
					return nil, err
				}
				named := slices.ContainsFunc(scs, func(sc *scenarios.Scenario) bool { return slices.Contains(sc.Backends, n) })
				if b.Apart != "" && !named || p.flags.nodes > 0 && !slices.Contains(b.Nodes, p.flags.nodes) {
					continue
				}
				if err := available(b, p.flags); err != nil {
					p.missing = append(p.missing, missing{"backend " + n, err})
					continue
				}
				bs = append(bs, b)
			}
			continue
		}
		b, err := backends.Find(name)
		if err != nil {
			return nil, usage(err)
		}
		if n := p.flags.nodes; n > 0 && !slices.Contains(b.Nodes, n) {
			return nil, usagef("--nodes %d: backend %s can have %s", n, name, choices(b.Nodes))
		}
		if err := available(b, p.flags); err != nil {
			return nil, environment(fmt.Errorf("backend %s: %w", name, err))
		}
		bs = append(bs, b)
	}
	return bs, nil
}

// choices lists numbers of servers that can be chosen.
func choices(nodes []int) string {
	if len(nodes) == 0 {
		return "no other number of servers than its own"
	}
	var all []string
	for _, n := range nodes {
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, ", ")
}

// defaultBackend is the first whose servers are found, in order of the speed
// with which they start; etcd always is, since it is also built in.
func defaultBackend(f runFlags) (backends.Backend, error) {
	var missing error
	for _, name := range []string{"redis", "postgres-session", "etcd"} {
		b, err := backends.Find(name)
		if err != nil {
			return b, err
		}
		if f.nodes > 0 && !slices.Contains(b.Nodes, f.nodes) {
			continue
		}
		if missing = available(b, f); missing == nil {
			return b, nil
		}
	}
	if missing == nil {
		return backends.Backend{}, usagef("--nodes %d: no backend that is chosen by default can have so many", f.nodes)
	}
	return backends.Backend{}, environment(missing)
}

// available returns nil if all servers of a backend are found here.
func available(b backends.Backend, f runFlags) error {
	if b.Servers == nil || len(f.endpoints.servers) > 0 {
		return nil
	}
	servers := b.Servers(backends.Options{Nodes: f.nodes, TTL: f.ttl})
	if f.runtime.docker() {
		return f.runtime.available(servers)
	}
	for _, s := range servers {
		if _, err := deploy.Find(context.Background(), s.Software, f.bin[s.Software]); err != nil {
			return err
		}
	}
	return nil
}

// splitCommand splits the command line of a client without a shell.
func splitCommand(s string) ([]string, error) {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "[") {
		return strings.Fields(s), nil
	}
	var args []string
	if err := json.Unmarshal([]byte(s), &args); err != nil || len(args) == 0 {
		return nil, usagef(`--client %s: not a JSON array of strings such as ["./my-lock", "an argument"]`, s)
	}
	return args, nil
}

// title names what a unit runs.
func (p *plan) title(u unit) string {
	return fmt.Sprintf("%s on %s, %s", u.scenario.Name, u.backend.Name, p.resourceOf(u))
}

// resourceOf is the resource of a unit's runs.
func (p *plan) resourceOf(u unit) string { return harness.ResourceOf(u.backend, u.resource) }

// scenario is what the nth run of a unit runs: the unit's scenario, or its
// workload under a random schedule.
func (p *plan) scenario(u unit, n int) (*scenarios.Scenario, error) {
	if len(p.faults) == 0 {
		return u.scenario, nil
	}
	o := backends.Options{Nodes: p.flags.nodes, TTL: p.flags.ttl}
	if o.TTL == 0 {
		o.TTL = u.scenario.TTL.Of(0)
	}
	if u.backend.MinTTL != nil {
		o.TTL = max(o.TTL, u.backend.MinTTL(o))
	}
	return harness.Compose(u.scenario, p.flags.seed+int64(n), p.faults, o.TTL, p.topologyOf(u.backend, o))
}

// replay is the command line that makes a run again.
func (p *plan) replay(u unit, n int) string {
	args := []string{"lockcheck", p.verb, reference(u.scenario), "--backend", u.backend.Name}
	if u.resource != "" {
		args = append(args, "--resource", u.resource)
	}
	if p.flags.nodes > 0 {
		args = append(args, "--nodes", strconv.Itoa(p.flags.nodes))
	}
	if p.flags.ttl > 0 {
		args = append(args, "--ttl", p.flags.ttl.String())
	}
	if len(p.faults) > 0 {
		var kinds []string
		for _, w := range p.faults {
			kinds = append(kinds, w.String())
		}
		args = append(args, "--faults", strings.Join(kinds, ","))
	}
	if p.flags.network != "" {
		args = append(args, "--network", p.flags.network)
	}
	for _, at := range p.flags.endpoints.urls {
		args = append(args, "--endpoints", quote(at))
	}
	args = append(args, p.flags.runtime.args(p.versionsOf(u))...)
	args = append(args, "--seed", strconv.FormatInt(p.flags.seed+int64(n), 10))
	if p.flags.client != "" {
		args = append(args, "--client", quote(p.flags.client))
	}
	for software, path := range p.binOf(u) {
		args = append(args, "--bin", quote(software+"="+path))
	}
	return strings.Join(args, " ")
}

// binOf are the programs that a unit's servers are run from.
func (p *plan) binOf(u unit) map[string]string {
	if u.bin != nil {
		return u.bin
	}
	return p.flags.bin
}

// versionsOf are the versions of the images that a unit's servers are run from.
func (p *plan) versionsOf(u unit) map[string]string {
	if u.versions != nil {
		return u.versions
	}
	return p.flags.runtime.versions()
}

// reference is how a command line names a scenario.
func reference(sc *scenarios.Scenario) string {
	if sc.Embedded {
		return sc.Name
	}
	return quote(sc.File)
}

// quote quotes s for a POSIX shell where it needs that.
func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
