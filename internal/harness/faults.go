package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/deploy/engine"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

// FaultCheck is what became of one fault that was injected to see whether it
// works here.
type FaultCheck struct {
	Fault       string            `json:"fault"`
	With        map[string]string `json:"with,omitempty"` // its parameters
	Backend     string            `json:"backend"`
	Targets     []string          `json:"targets"`
	Effective   bool              `json:"effective"`             // injected and healed, both proven, and a lock was granted again
	Unavailable string            `json:"unavailable,omitempty"` // why it cannot be injected there
	Error       string            `json:"error,omitempty"`       // why it is not effective
	Inject      time.Duration     `json:"inject_ns"`             // with its proof
	Heal        time.Duration     `json:"heal_ns"`
	Granted     time.Duration     `json:"granted_ns"` // from healing until a lock was granted again
	Proof       string            `json:"proof,omitempty"`
	Healed      string            `json:"healed,omitempty"`
}

// VerifyFaults injects every registered fault on what it can be injected on of a
// backend: a client, a server of each software, or all servers. It heals each, and
// sees that a lock is granted again. Begin, if it is not nil, is told which fault
// comes next, the nth of so many. The error is that of a run that could not be made,
// or be ended in order; there may be checks all the same. When ctx ends, those that
// were made are returned, and no error for that.
func VerifyFaults(ctx context.Context, o Options, begin func(fault string, n, of int)) ([]FaultCheck, error) {
	sc := &scenarios.Scenario{
		Name: "faults", Clients: []string{"A", "B", "C"}, Key: scenarios.DefaultKey,
		TTL: scenarios.Duration{Time: scenarios.DefaultTTL}, Source: []byte("# every fault, to see whether it works here\n"),
	}
	o.Network = cmp.Or(o.Network, ProxyNetwork)
	o.Resource = "unfenced" // which needs no server that a fault might hit
	afar, err := farEngine(ctx, o.Runtime)
	if err != nil {
		return nil, err
	}
	for _, kind := range nemesis.Names() {
		// Not to be run: it has what every fault needs set up.
		if k, err := nemesis.Find(kind); err == nil && fits(k, o.Network) && !(afar && nearOnly(k)) {
			sc.Nemesis = append(sc.Nemesis, scenarios.Injection{Fault: kind})
		}
	}
	r, err := newRun(sc, o)
	if err != nil {
		return nil, err
	}
	v := &verification{run: r, afar: afar}
	var checks []FaultCheck
	play := func() (err error) {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownTimeout)
			defer cancel()
			err = errors.Join(err, r.tearDown(ctx))
		}()
		if err := r.setUp(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		// After a failover another server is the primary.
		names := last(nemesis.Names(), "failover")
		for n, name := range names {
			if begin != nil {
				begin(name, n+1, len(names))
			}
			for _, t := range v.trials(ctx, name) {
				check := v.verifyFault(ctx, name, t)
				if ctx.Err() != nil {
					return nil // which may be why it is not effective
				}
				checks = append(checks, check)
			}
		}
		return nil
	}
	err = play()
	r.rec.Record(history.Event{Process: history.Harness, Type: history.Info, F: EndEvent})
	if err := errors.Join(err, r.rec.Close()); err != nil {
		return checks, fmt.Errorf("%s: %w", r.meta.Dir, err)
	}
	return checks, writeJSON(filepath.Join(r.meta.Dir, "faults.json"), checks)
}

// farEngine reports whether servers will be containers of another machine.
func farEngine(ctx context.Context, runtime string) (bool, error) {
	if runtime != DockerRuntime {
		return false, nil
	}
	e, err := engine.Connect(ctx)
	return err == nil && !e.Here(), err
}

// nearOnly reports whether a kind of fault needs what only containers of this machine
// have: proxies that they reach, a program of this machine, processes that are seen.
func nearOnly(k nemesis.Kind) bool {
	return len(k.Needs) > 0 && !slices.Equal(k.Needs, []string{nemesis.Containers}) || slices.Contains([]string{"kill", "restart", "failover"}, k.Name)
}

// last returns all with one of them at the end.
func last(all []string, one string) []string {
	return append(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one }), one)
}

// fits reports whether a kind of fault works in a network, one of the harness's.
func fits(k nemesis.Kind, network string) bool {
	if network == NetnsNetwork {
		return len(k.Needs) == 0 || slices.Equal(k.Needs, []string{nemesis.Namespaces})
	}
	return !slices.Contains(k.Needs, nemesis.Namespaces)
}

// trial is one way to try a fault: targets, and parameters with which it is quickly
// seen to work.
type trial struct {
	on   []string
	with with
}

// with is the parameters of a fault.
type with = map[string]string

// verification is a run that tries faults.
type verification struct {
	*run
	keys int  // names of locks that were used
	afar bool // servers are containers of another machine
}

// trials are the ways to try a kind of fault on this backend.
func (v *verification) trials(ctx context.Context, kind string) []trial {
	client, doomed := v.scenario.Clients[:1], v.scenario.Clients[2:] // nothing else needs the latter
	servers := v.oneOfEach()
	// each is a trial on each of the others, then on each kind of server.
	each := func(w with, others ...[]string) (all []trial) {
		for _, on := range append(others, servers...) {
			all = append(all, trial{on, w})
		}
		return all
	}
	switch kind {
	case "disk":
		return each(with{"fsync": "slow 50ms"})
	case "evict", "restart":
		return each(nil)
	case "kill":
		return each(nil, doomed)
	case "flapping":
		return each(with{"period": "100ms"}, client)
	case "cpu":
		return append(each(nil, client), trial{client, with{"by": "crowd"}})
	case "clock":
		all := append(each(with{"jump": "10s"}, client), trial{client, with{"rate": "0.5", "family": "both"}})
		for _, on := range servers[:min(1, len(servers))] {
			all = append(all, trial{on, with{"rate": "1.1"}}, trial{on, with{"strobe": "100ms,5s"}})
		}
		return all
	case "partition":
		all := each(nil, client)
		for _, w := range []with{
			{"mode": "drop"}, {"mode": "refuse"}, {"direction": "to"}, {"direction": "from"}, {"direction": "replies"},
		} {
			all = append(all, trial{client, w})
		}
		if members, _ := v.replicas(ctx); len(members) > 2 {
			for _, w := range []with{
				{"shape": "split", "groups": members[0] + "|" + strings.Join(members[1:], ",")},
				{"shape": "halves"}, {"shape": "bridge"}, {"shape": "ring"},
			} {
				all = append(all, trial{members, w})
			}
		}
		return all
	case "terminate-session":
		return []trial{{append(v.sessionServer(), client...), nil}}
	case "failover":
		return v.failovers(ctx)
	}
	return each(nil, client)
}

// oneOfEach is the first of the servers of each software, each as targets.
func (v *verification) oneOfEach() (all [][]string) {
	seen := map[string]bool{}
	for _, n := range v.nodes {
		if !seen[n.Software()] {
			seen[n.Software()] = true
			all = append(all, []string{n.Name()})
		}
	}
	return all
}

// replicas are the servers that have the same data, or why there are none.
func (r *run) replicas(ctx context.Context) (all []string, why string) {
	primaries := 0
	for _, n := range r.nodes {
		role, err := n.Role(ctx)
		if err != nil {
			continue // it is of a software that has none
		}
		all = append(all, n.Name())
		if role == deploy.Primary {
			primaries++
		}
	}
	switch {
	case len(all) < 2:
		return nil, "there is one server: nobody can take over"
	case primaries > 1:
		return nil, "its servers do not follow each other: nobody can take over"
	}
	return all, ""
}

// failovers are the ways in which another server can take over here.
func (v *verification) failovers(ctx context.Context) []trial {
	all, _ := v.replicas(ctx)
	if len(all) == 0 {
		return []trial{{v.serverNames(), nil}}
	}
	for _, n := range v.nodes {
		switch n.Software() {
		case "redis-sentinel":
			return []trial{{all, with{"how": "elect"}}}
		case "etcd":
			return []trial{{all, with{"how": "elect"}}, {all, with{"how": "handover"}}}
		}
	}
	return []trial{{all, with{"how": "promote"}}}
}

// sessionServer is the server that clients have sessions on, if there is one.
func (v *verification) sessionServer() []string {
	for _, n := range v.nodes {
		if n.Software() == "postgres" {
			return []string{n.Name()}
		}
	}
	return nil
}

// verifyFault injects a fault while a client holds a lock, heals it, and sees that a
// lock is granted again.
func (v *verification) verifyFault(ctx context.Context, name string, t trial) FaultCheck {
	c := FaultCheck{Fault: name, With: t.with, Backend: v.Backend.Name, Targets: t.on}
	kind, err := nemesis.Find(name)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	if kind.Available != nil {
		if err := kind.Available(); err != nil {
			c.Unavailable = err.Error()
			return c
		}
	}
	if c.Unavailable = v.lacks(ctx, kind, t.on); c.Unavailable != "" {
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, 2*injectTimeout+2*grantTimeout)
	defer cancel()
	fail := func(err error) {
		if err != nil && c.Error == "" {
			c.Error = err.Error()
		}
	}
	// So that there are connections, a session to end, and a key to evict.
	holder := v.clients[v.scenario.Clients[0]]
	key, err := v.granted(ctx, holder)
	if err != nil {
		fail(fmt.Errorf("before the fault: %w", err))
		return c
	}
	begin := time.Now()
	proof, f, err := v.prove(ctx, name, t.with, t.on)
	c.Inject, c.Proof = time.Since(begin), string(proof)
	fail(err)
	if f == nil {
		return c
	}
	begin = time.Now()
	healed, err := v.proveHealed(ctx, f)
	c.Heal, c.Healed = time.Since(begin), string(healed)
	fail(err)
	begin = time.Now()
	// What became of that lock is not the question.
	_, err = holder.Do(ctx, client.Request{F: history.Release, Key: key})
	if err == nil {
		key, err = v.granted(ctx, holder)
	}
	c.Granted = time.Since(begin)
	if err != nil {
		fail(fmt.Errorf("after it healed: %w", err))
	} else if _, err := holder.Do(ctx, client.Request{F: history.Release, Key: key}); err != nil {
		fail(err)
	}
	c.Effective = c.Error == ""
	return c
}

// grantTimeout bounds the wait for a lock that nobody has.
const grantTimeout = 15 * time.Second

// granted has a client try to acquire a lock that nobody else has, until it is
// granted, and returns its name: each try is for another, since a try whose
// outcome is unknown may have taken it.
func (v *verification) granted(ctx context.Context, holder *directed) (key string, err error) {
	ctx, cancel := context.WithTimeout(ctx, grantTimeout)
	defer cancel()
	var e history.Event
	for {
		v.keys++
		key = fmt.Sprintf("%s-%d", v.scenario.Key, v.keys)
		answer, err := holder.Do(ctx, client.Request{F: history.Acquire, Key: key})
		switch {
		case err != nil:
			return "", fmt.Errorf("no lock was granted (the last answer: %s): %w", cmp.Or(e.Error, "none"), err)
		case answer.Type == history.OK:
			return key, nil
		}
		e = answer
		select {
		case <-time.After(tryInterval):
		case <-ctx.Done():
			return "", fmt.Errorf("no lock was granted in %v: %s", grantTimeout, e.Error)
		}
	}
}

// lacks says why a fault makes no sense on targets, or "".
func (v *verification) lacks(ctx context.Context, kind nemesis.Kind, on []string) string {
	t, err := v.target(on[0])
	if err != nil {
		return err.Error()
	}
	if v.afar && nearOnly(kind) && (len(kind.Needs) > 0 || contained(t)) {
		return "not with an engine on another machine"
	}
	if p, ok := t.(nemesis.Processes); ok && !slices.Contains(kind.Needs, nemesis.Links) && !(v.afar && contained(t)) {
		if _, err := p.PIDs(); err != nil {
			return err.Error() // it runs inside the harness
		}
	}
	if err := v.powers.patched(kind, t); err != nil {
		return err.Error()
	}
	software := ""
	if s, ok := t.(interface{ Software() string }); ok {
		software = s.Software()
	}
	switch {
	case !fits(kind, v.Network):
		return fmt.Sprintf("not in the network %s: try another --network", v.Network)
	case slices.Contains(kind.Needs, nemesis.Containers) && !contained(t):
		return on[0] + " is no container: try --runtime docker"
	case (kind.Name == "cpu" || kind.Name == "memory") && contained(t):
		return on[0] + " is a container, whose processes are its engine's to move into control groups"
	case kind.Name == "evict" && software != "redis":
		return on[0] + " is no Redis server, which evicts keys"
	case kind.Name == "terminate-session" && software != "postgres":
		return on[0] + " is no database server with sessions"
	case kind.Name == "failover":
		_, why := v.replicas(ctx)
		return why
	}
	return ""
}
