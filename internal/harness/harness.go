// Package harness makes one run: it starts the servers, the resource and the
// clients, walks through the scenario, injects its faults, and has the history
// checked. Everything about the run is in one folder.
package harness

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// Options say on what a scenario runs.
type Options struct {
	Backend  backends.Backend
	Resource string            // kind of resource; "" is the backend's default
	Nodes    int               // number of servers; 0 is the backend's default
	TTL      time.Duration     // lease to ask for; 0 is the scenario's
	Seed     int64             // of everything random
	Repeat   int               // which repeat this is, from 1
	Client   []string          // command line of an external client; nil is the backend's own
	Bin      map[string]string // paths of server binaries by software, where not to be searched
	Cache    *deploy.Cache     // shared by runs; nil is one of the run's own
	// Servers run already, and are the backend's in its order: the run uses them and
	// does nothing else to them. Nil starts those that the backend needs.
	Servers  []backends.Endpoint
	Out      string            // folder in which the run's folder is made
	Replay   string            // the command that makes this run again
	Network  string            // ProxyNetwork, NetnsNetwork, or "" for the one that the scenario's faults need
	Runtime  string            // LocalRuntime or DockerRuntime; "" is local
	Versions map[string]string // of images by software, in containers; see deploy.ContainerOptions
	// ClientImage is the image that clients run from, in containers; "" runs them
	// as processes of this machine.
	ClientImage string
	Gate        []string // properties whose violation counts; nil is all
	Known       []string // properties whose violation is known, and does not count
	// Watch is told every event of the history, in order, as it is recorded. It
	// must be quick: the run waits for it. Nil is nobody.
	Watch func(history.Event)
}

// HistoryFile is the name of the history in a run's folder.
const HistoryFile = "history.jsonl"

// Other files of a run's folder.
const (
	runFile    = "run.json"
	reportFile = "report.txt"
	sourceFile = "scenario.yaml"
)

// clientVersion precedes the name of a client program among the versions of a run.
const clientVersion = "client "

// teardownTimeout bounds the end of a run: healing, closing clients, stopping
// servers. It is not cut short by an interrupt, so that nothing is left behind.
const teardownTimeout = 20 * time.Second

// openTimeout is how long a client may take to start and to connect.
const openTimeout = 15 * time.Second

// markVariable is in the environment of clients, and of all that they start, with a value
// of the run's own.
const markVariable = "LOCKCHECK_CLIENT_OF"

// closeTimeout is how long a client may take to answer what it is at and to
// close; then it is killed.
const closeTimeout = time.Second

// run is a run that is going on.
type run struct {
	Options
	mark       string // of what clients start, see markVariable
	space      string // before the names of locks on servers that others use too
	scenario   *scenarios.Scenario
	ttl        time.Duration
	meta       reports.Run
	rec        *history.Recorder
	servers    *deploy.Local
	containers *deploy.Containers // nil unless servers are containers
	nodes      []*deploy.Node
	resource   *resource.Resource
	clients    map[string]*directed
	observer   *observer // nil for none
	powers     *powers
	campaign   *campaign
	led        string // who led before the last fault of a step, if another is waited for

	faultsMu sync.Mutex
	faults   []*fault        // in effect, in the order of injection
	hit      map[string]bool // targets of any fault so far
}

// fault is a fault that the scenario has brought into effect.
type fault struct {
	kind    string
	targets []string
	nemesis.Fault
}

// Run runs a scenario once and returns what came of it. The error is of the
// kind that leaves no run behind, such as a folder that cannot be written; a
// run that failed later is returned with the status of an error. When ctx ends,
// the run is ended in order, and what was recorded is kept and checked.
func Run(ctx context.Context, sc *scenarios.Scenario, o Options) (*reports.Run, error) {
	start := time.Now()
	r, err := newRun(sc, o)
	if err != nil {
		return nil, err
	}
	if err := r.play(ctx); err != nil {
		r.fail(ctx, err)
	}
	r.rec.Record(history.Event{Process: history.Harness, Type: history.Info, F: EndEvent})
	if err := r.rec.Close(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.meta.Dir, err)
	}
	meta := r.meta // a copy: whoever keeps it is not to keep the run's servers and connections
	meta.Duration = time.Since(start)
	return &meta, conclude(&meta, o.Gate)
}

// ResourceOf is the kind of resource that a run has if one is asked for; "" is the
// backend's default.
func ResourceOf(b backends.Backend, asked string) string {
	return cmp.Or(asked, b.Resource, "unfenced")
}

// newRun makes the run's folder and starts its history.
func newRun(sc *scenarios.Scenario, o Options) (*run, error) {
	r := &run{Options: o, mark: rand.Text(), scenario: sc, clients: map[string]*directed{}, hit: map[string]bool{}}
	r.Resource = ResourceOf(o.Backend, o.Resource)
	r.ttl = cmp.Or(o.TTL, sc.TTL.Of(0))
	var remark string
	if o.Backend.MinTTL != nil {
		if least := o.Backend.MinTTL(backends.Options{Nodes: o.Nodes, TTL: r.ttl}); r.ttl < least {
			remark = fmt.Sprintf("the least lease that %s grants is %v: used instead of %v", o.Backend.Name, least, r.ttl)
			r.ttl = least
		}
	}
	dir, err := makeRunDir(o.Out, fmt.Sprintf("%s-%s-%s", sc.Name, o.Backend.Name, r.Resource))
	if err != nil {
		return nil, err
	}
	r.meta = reports.Run{
		Schema:   reports.Schema,
		Scenario: sc.Name,
		Backend:  o.Backend.Name,
		Resource: r.Resource,
		Runtime:  cmp.Or(o.Runtime, LocalRuntime),
		Seed:     o.Seed,
		Repeat:   o.Repeat,
		TTL:      r.ttl,
		Versions: map[string]string{},
		Dir:      dir,
		Replay:   o.Replay,
		Violates: sc.Violates,
		Known:    o.Known,
	}
	if err := writeJSON(filepath.Join(dir, runFile), r.meta); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, sourceFile), sc.Source, 0o600); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	if err := saveOptions(dir, o); err != nil {
		return nil, err
	}
	if r.rec, err = history.Create(filepath.Join(dir, HistoryFile)); err != nil {
		return nil, err
	}
	if o.Watch != nil {
		r.rec.Watch(o.Watch)
	}
	header := encode(map[string]any{
		"schema": reports.Schema, "scenario": sc.Name, "backend": o.Backend.Name, "resource": r.Resource,
		"ttl_ms": r.ttl.Milliseconds(), "seed": o.Seed, "bound_ms": sc.Bound.Of(r.ttl).Milliseconds(),
		"figures": sc.Measures(o.Backend.Name, r.Resource),
	})
	r.rec.Record(history.Event{Process: history.Harness, Type: history.Info, F: history.Run, Value: header})
	if remark != "" {
		r.remark(remark)
	}
	return r, nil
}

// remark records something that a reader should know.
func (r *run) remark(text string) {
	r.rec.Record(history.Event{Process: history.Harness, Type: history.Info, F: remarkEvent, Error: text})
}

// play starts everything, walks through the scenario and ends everything.
func (r *run) play(ctx context.Context) (err error) {
	defer func() {
		// The end of a run must come whole, also after an interrupt.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownTimeout)
		defer cancel()
		err = errors.Join(err, r.tearDown(ctx))
	}()
	if err := r.setUp(ctx); err != nil {
		return err
	}
	return r.watched(func() error {
		if r.scenario.Workload != nil {
			return r.workload(ctx)
		}
		r.countServers(ctx)
		defer r.countServers(ctx)
		return r.directed(ctx)
	})
}

// setUp starts the servers, then the resource and the clients.
func (r *run) setUp(ctx context.Context) error {
	needed, full := needs(r.scenario)
	var err error
	if r.Runtime == DockerRuntime {
		r.Network = cmp.Or(r.Network, ProxyNetwork) // containers have their own namespaces
	}
	if r.powers, err = newPowers(r.Network, needed, full); err != nil {
		return err
	}
	if r.Runtime == DockerRuntime {
		if r.containers, err = deploy.NewContainers(ctx, deploy.ContainerOptions{Versions: r.Versions}); err != nil {
			return err
		}
		if err := r.powers.contain(r.containers, r.ClientImage != ""); err != nil {
			return err
		}
	}
	wanted := r.serversWanted()
	if len(wanted) > 0 {
		r.servers, err = deploy.NewLocal(r.powers.deployOptions(deploy.Options{
			Dir: r.meta.Dir, Bin: r.Bin, Cache: r.Cache, Containers: r.containers,
		}))
		if err != nil {
			return err
		}
		if r.nodes, err = r.servers.Start(ctx, wanted); err != nil {
			return err
		}
	}
	var endpoints []backends.Endpoint
	var dsn string
	var standbys []string
	for _, n := range r.nodes {
		r.meta.Versions[n.Software()] = n.Version()
		if n.Container() != nil {
			if r.meta.Versions["image "+n.Software()], err = n.Image(ctx); err != nil {
				return err
			}
		}
		e, err := r.powers.endpoint(n)
		if err != nil {
			return err
		}
		switch n.Software() {
		case "postgres":
			dsn = e.URL
		case "postgres-standby":
			standbys = append(standbys, e.URL)
		}
		if n.Name() != resourceServer {
			endpoints = append(endpoints, e)
		}
	}
	if err := r.useServers(); err != nil {
		return err
	}
	endpoints = append(endpoints, r.Servers...)
	if len(standbys) == 0 && dsn != "" && restarts(r.scenario) {
		standbys = []string{dsn} // it goes on with itself
	}
	r.resource, err = resource.Open(ctx, r.Resource, resource.Options{Recorder: r.rec, DSN: dsn, Standbys: standbys})
	if err != nil {
		return err
	}
	if err := r.startClients(ctx, endpoints); err != nil {
		return err
	}
	r.excuse()
	r.keep()
	return r.startObserver(ctx, endpoints)
}

// restarts reports whether servers may be restarted in a run of the scenario.
func restarts(sc *scenarios.Scenario) bool {
	return slices.ContainsFunc(sc.Steps, func(s scenarios.Step) bool { return s.Fault == "restart" }) ||
		slices.ContainsFunc(sc.Nemesis, func(i scenarios.Injection) bool { return i.Fault == "restart" })
}

// resourceServer is the name of the server that a resource needs for itself.
const resourceServer = "resource-db"

// serversWanted are the backend's servers, and the resource's if it is in a
// database that the backend does not have.
func (r *run) serversWanted() []backends.Server {
	var wanted []backends.Server
	if r.Backend.Servers != nil && len(r.Servers) == 0 {
		// A copy: the backend may return the same slice to the next run.
		wanted = slices.Clone(r.Backend.Servers(backends.Options{Nodes: r.Nodes, TTL: r.ttl}))
	}
	for i, s := range wanted {
		if len(r.scenario.Settings) > 0 {
			wanted[i].Options = maps.Clone(s.Options)
			if wanted[i].Options == nil {
				wanted[i].Options = map[string]string{}
			}
			maps.Copy(wanted[i].Options, r.scenario.Settings)
		}
	}
	kind, err := resource.Find(r.Resource)
	if err != nil || kind.Software == "" {
		return wanted // an unknown kind is refused when it is opened
	}
	for _, s := range wanted {
		if s.Software == kind.Software {
			return wanted
		}
	}
	return append(wanted, backends.Server{Name: resourceServer, Software: kind.Software})
}

// startClients starts the scenario's clients side by side and connects them.
func (r *run) startClients(ctx context.Context, endpoints []backends.Endpoint) error {
	commands := map[string][]string{}
	for _, name := range r.scenario.Clients {
		command := r.Client
		if as := r.scenario.As[name]; as != "" || len(command) == 0 {
			var err error
			if command, err = selfexec.Command("worker", cmp.Or(as, r.Backend.Name)); err != nil {
				return err
			}
		}
		commands[name] = command
	}
	type started struct {
		d   *directed
		err error
	}
	results := make(chan started)
	for _, name := range r.scenario.Clients {
		go func() {
			d, err := r.startClient(ctx, name, commands[name], endpoints)
			results <- started{d, err}
		}()
	}
	var errs []error
	for range r.scenario.Clients {
		s := <-results
		if s.d != nil {
			r.clients[s.d.Name()] = s.d
			r.meta.Versions[clientVersion+s.d.hello.Name] = s.d.hello.Version
		}
		errs = append(errs, s.err)
	}
	return errors.Join(errs...)
}

// excuse records what does not count, given what the clients can do.
func (r *run) excuse() {
	var can []string
	for _, c := range client.Capabilities() {
		all := true
		for _, d := range r.clients {
			all = all && d.hello.Can(c)
		}
		if all {
			can = append(can, c)
		}
	}
	excused := r.scenario.Excused(can)
	for _, p := range slices.Sorted(maps.Keys(excused)) {
		r.rec.Record(history.Event{
			Process: history.Harness, Type: history.Info, F: excusedEvent, Key: p, Error: excused[p],
		})
	}
}

// keep records which clients renew their grants by themselves.
func (r *run) keep() {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.clients)) {
		if r.clients[name].hello.Can(client.CanKeep) {
			all = append(all, name)
		}
	}
	if len(all) > 0 {
		r.rec.Record(history.Event{
			Process: history.Harness, Type: history.Info, F: history.Keep, Value: encode(map[string]any{"on": all}),
		})
	}
}

// startClient returns the client also with an error, if it has to be closed.
func (r *run) startClient(ctx context.Context, name string, command []string, endpoints []backends.Endpoint) (*directed, error) {
	var inside *deploy.Container
	if r.ClientImage != "" {
		var err error
		if inside, command, err = r.clientContainer(ctx, name); err != nil {
			return nil, err
		}
	}
	p, err := client.Start(client.Options{
		Name:     name,
		Command:  command,
		Stderr:   filepath.Join(r.meta.Dir, "client-"+name+".log"),
		Recorder: r.rec,
		Space:    r.space,
		Env:      []string{markVariable + "=" + r.mark},
		Start:    r.powers.startClient(name),
	})
	if err != nil {
		return nil, err
	}
	d := &directed{Proc: p, powers: r.powers, inside: inside}
	o := client.OpenOptions{TTL: r.ttl}
	if o.Servers, err = r.powers.endpoints(name, endpoints); err != nil {
		return d, err
	}
	if o.ResourceDSN, err = r.powers.route(name, resourceNode, r.resource.DSN()); err != nil {
		return d, err
	}
	if d.resource, err = r.powers.route(name, resourceNode, r.resource.ReadURL(name, "")); err != nil {
		return d, err
	}
	soon, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	d.hello, err = p.Open(soon, o)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("client %s did not answer \"open\" within %v: does it read its standard input, and write a line for each request at once? (lockcheck protocol-check tells more)", name, openTimeout)
	}
	return d, err
}

// wasHit reports whether a fault was injected on the target.
func (r *run) wasHit(name string) bool {
	r.faultsMu.Lock()
	defer r.faultsMu.Unlock()
	return r.hit[name]
}

// resourceURL is a URL of the resource as a client is to reach it.
func (r *run) resourceURL(d *directed, at string) string {
	if r.powers.mesh == nil && r.powers.netns == nil {
		return at
	}
	u, err1 := url.Parse(at)
	own, err2 := url.Parse(d.resource)
	if err1 != nil || err2 != nil {
		return at // both are URLs of the resource's own making
	}
	u.Host = own.Host
	return u.String()
}

// serverNames are the names of the lock's servers.
func (r *run) serverNames() []string {
	var all []string
	for _, n := range r.nodes {
		if n.Name() != resourceServer {
			all = append(all, n.Name())
		}
	}
	for _, s := range r.Servers {
		all = append(all, s.Name)
	}
	return all
}

// tearDown heals what is left of faults, ends the clients, and then what they
// talk to.
func (r *run) tearDown(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(slices.Clone(r.faults)) {
		errs = append(errs, r.heal(ctx, f))
	}
	errs = append(errs, r.observer.stop())
	closed := make(chan error)
	if len(r.clients) > 0 {
		r.rec.Record(history.Event{
			Process: history.Harness, Type: history.Info, F: history.Close,
			Value: encode(map[string]any{"on": slices.Sorted(maps.Keys(r.clients))}),
		})
	}
	for _, c := range r.clients {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, closeTimeout)
			defer cancel()
			err := c.Close(ctx)
			if r.wasHit(c.Name()) {
				err = nil // it may have ended under the fault, which the history tells
			}
			closed <- err
		}()
	}
	for range r.clients {
		errs = append(errs, <-closed)
	}
	if len(r.Client) > 0 {
		// What such a client has started may have left its process group.
		guard.EndStrays(markVariable + "=" + r.mark)
	}
	if r.resource != nil {
		errs = append(errs, r.resource.Sync(ctx), r.resource.Close())
	}
	if r.servers != nil {
		errs = append(errs, r.servers.Close())
	}
	if r.powers != nil {
		errs = append(errs, r.powers.close())
	}
	return errors.Join(errs...)
}

// makeRunDir makes a new private folder for a run in out.
func makeRunDir(out, name string) (string, error) {
	if err := os.MkdirAll(out, 0o700); err != nil {
		return "", fmt.Errorf("make the folder for runs: %w (choose another with --out)", err)
	}
	stamp := time.Now().Format("20060102T150405.000")
	for n := range 1000 {
		dir := filepath.Join(out, fmt.Sprintf("%s-%s", stamp, name))
		if n > 0 {
			dir += fmt.Sprintf("-%d", n)
		}
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("make the run's folder: %w (choose another place with --out)", err)
		}
		return dir, nil
	}
	return "", fmt.Errorf("make the run's folder: a thousand of them are in %s already with the time %s", out, stamp)
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
