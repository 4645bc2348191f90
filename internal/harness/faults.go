package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

// FaultCheck is what became of one fault that was injected to see whether it
// works here.
type FaultCheck struct {
	Fault       string        `json:"fault"`
	Backend     string        `json:"backend"`
	Target      string        `json:"target"`
	Effective   bool          `json:"effective"`             // injected and healed, both proven
	Unavailable string        `json:"unavailable,omitempty"` // why it cannot be injected there
	Error       string        `json:"error,omitempty"`       // why it is not effective
	Inject      time.Duration `json:"inject_ns"`             // with its proof
	Heal        time.Duration `json:"heal_ns"`
	Proof       string        `json:"proof,omitempty"`
	Healed      string        `json:"healed,omitempty"`
}

// VerifyFaults injects every registered fault on every kind of target of a
// backend, a client and a server, and heals it. The error is that of a run that
// could not be made.
func VerifyFaults(ctx context.Context, o Options) ([]FaultCheck, error) {
	sc := &scenarios.Scenario{
		Name: "faults", Clients: []string{"A", "B", "C"}, Key: scenarios.DefaultKey,
		TTL: scenarios.Duration{Time: scenarios.DefaultTTL}, Source: []byte("# every fault, to see whether it works here\n"),
	}
	o.Network = cmp.Or(o.Network, ProxyNetwork)
	for _, kind := range nemesis.Names() {
		// Not to be run: it has what every fault needs set up.
		if k, err := nemesis.Find(kind); err == nil && fits(k, o.Network) {
			sc.Nemesis = append(sc.Nemesis, scenarios.Injection{Fault: kind})
		}
	}
	r, err := newRun(sc, o)
	if err != nil {
		return nil, err
	}
	var checks []FaultCheck
	play := func() (err error) {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownTimeout)
			defer cancel()
			err = errors.Join(err, r.tearDown(ctx))
		}()
		if err := r.setUp(ctx); err != nil {
			return err
		}
		for _, name := range nemesis.Names() {
			for _, targets := range r.targetsOf(name) {
				if err := ctx.Err(); err != nil {
					return err
				}
				checks = append(checks, r.verifyFault(ctx, name, targets))
			}
		}
		return nil
	}
	err = play()
	r.rec.Record(history.Event{Process: history.Harness, Type: history.Info, F: endEvent})
	if err := errors.Join(err, r.rec.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", r.meta.Dir, err)
	}
	return checks, writeJSON(filepath.Join(r.meta.Dir, "faults.json"), checks)
}

// fits reports whether a kind of fault works in a network, one of the harness's.
func fits(k nemesis.Kind, network string) bool {
	if network == NetnsNetwork {
		return len(k.Needs) == 0 || slices.Equal(k.Needs, []string{nemesis.Namespaces})
	}
	return !slices.Contains(k.Needs, nemesis.Namespaces)
}

// targetsOf are the sets of targets to try a fault on: a client, and a server if
// there is one.
func (r *run) targetsOf(fault string) [][]string {
	clients, servers := r.scenario.Clients, r.serverNames()
	if len(servers) == 0 {
		return [][]string{clients[:1]}
	}
	switch fault {
	case "disk", "evict", "restart":
		return [][]string{servers[:1]}
	case "failover":
		return [][]string{servers}
	case "terminate-session":
		return [][]string{{servers[0], clients[0]}}
	case "kill":
		return [][]string{clients[2:], servers[:1]} // nothing else needs that client
	}
	return [][]string{clients[:1], servers[:1]}
}

// trial are parameters with which a fault can be seen to work.
func trial(fault string) map[string]string {
	switch fault {
	case "clock":
		return map[string]string{"jump": "10s"}
	case "disk":
		return map[string]string{"fsync": "slow 50ms"}
	case "flapping":
		return map[string]string{"period": "100ms"}
	}
	return nil
}

func (r *run) verifyFault(ctx context.Context, name string, on []string) FaultCheck {
	c := FaultCheck{Fault: name, Backend: r.Backend.Name, Target: on[0]}
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
	if why := r.lacks(kind, on[0]); why != "" {
		c.Unavailable = why
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, 2*injectTimeout)
	defer cancel()
	if name == "evict" || name == "terminate-session" {
		// There must be a key to evict, a session to end.
		holder := r.clients[on[len(on)-1]]
		if holder == nil {
			holder = r.clients[r.scenario.Clients[1]]
		}
		req := client.Request{F: history.Acquire, Key: name}
		for range 2 { // the first may find that its connection was reset before
			e, err := holder.Do(ctx, req)
			if err != nil {
				c.Error = err.Error()
				return c
			}
			if e.Type == history.OK {
				break
			}
		}
	}
	begin := time.Now()
	proof, f, err := r.prove(ctx, name, trial(name), on)
	c.Inject, c.Proof = time.Since(begin), string(proof)
	if err != nil {
		c.Error = err.Error()
	}
	if f == nil {
		return c
	}
	begin = time.Now()
	healed, healErr := r.proveHealed(ctx, f)
	err = errors.Join(err, healErr)
	c.Heal, c.Healed = time.Since(begin), string(healed)
	if c.Effective = err == nil; !c.Effective {
		c.Error = err.Error()
	}
	return c
}

// lacks says why a fault makes no sense on a target, or "".
func (r *run) lacks(kind nemesis.Kind, target string) string {
	t, err := r.target(target)
	if err != nil {
		return err.Error()
	}
	if p, ok := t.(nemesis.Processes); ok && !slices.Contains(kind.Needs, nemesis.Links) {
		if _, err := p.PIDs(); err != nil {
			return err.Error() // it runs inside the harness
		}
	}
	software := ""
	if s, ok := t.(interface{ Software() string }); ok {
		software = s.Software()
	}
	switch {
	case !fits(kind, r.Network):
		return fmt.Sprintf("not in the network %s: try another --network", r.Network)
	case slices.Contains(kind.Needs, nemesis.Containers) && !contained(t):
		return target + " is no container: try --runtime docker"
	case kind.Name == "evict" && software != "redis":
		return target + " is no Redis server, which evicts keys"
	case kind.Name == "terminate-session" && software != "postgres":
		return target + " is no database server with sessions"
	case kind.Name == "failover" && len(r.serverNames()) < 2:
		return "there is one server: nobody can take over"
	}
	return ""
}
