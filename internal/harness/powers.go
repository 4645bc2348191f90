package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/clock"
	"github.com/lockcheck/lockcheck/nemesis/disk"
	_ "github.com/lockcheck/lockcheck/nemesis/network" // registers its faults
	"github.com/lockcheck/lockcheck/nemesis/network/netns"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// powers are what faults can do to the clients and servers of a run, besides
// signals to their processes. Only what the run's faults need is set up: the
// others cost nothing.
type powers struct {
	mesh          *proxy.Mesh        // nil if connections do not pass proxies
	containers    *deploy.Containers // nil unless servers are containers
	clientsInside bool               // clients are containers too
	netns         *namespaces        // nil if nodes are not in network namespaces
	clocked       bool               // processes have clocks of their own
	disked, write bool               // servers have disks of their own, whose writes are intercepted too

	mu     sync.Mutex
	clocks map[string]*clock.Control // by node
	disks  map[string]*disk.Control
	pids   map[string][]int // processes that were started, by server
}

// Networks, the values of Options.Network.
const (
	ProxyNetwork = "proxy" // faults of the network are done by proxies
	NetnsNetwork = "netns" // all nodes are in network namespaces
)

// newPowers sets up what is needed, of the powers that package nemesis names. full
// says that a fault fills a disk. The network is one of those above, or "" for the
// one that is needed.
func newPowers(network string, needs []string, full bool) (_ *powers, err error) {
	p := &powers{
		clocks: map[string]*clock.Control{}, disks: map[string]*disk.Control{}, pids: map[string][]int{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if network == NetnsNetwork || network == "" && slices.Contains(needs, nemesis.Namespaces) {
		if p.netns, err = newNamespaces(); err != nil {
			return nil, err
		}
	}
	if slices.Contains(needs, nemesis.Links) {
		if p.mesh, err = proxy.NewMesh(); err != nil {
			return nil, err
		}
	}
	p.clocked = slices.Contains(needs, nemesis.Clock)
	p.disked = slices.Contains(needs, nemesis.Disk)
	p.write = p.disked && full
	if p.netns != nil && (p.mesh != nil || p.clocked || p.disked) {
		return nil, inconclusive{errors.New("with nodes in network namespaces there are no faults by proxies, of clocks and of disks: use the network proxy, or packets and faults of processes")}
	}
	return p, nil
}

// startServer starts the process of a server. It is deploy.Options.Start.
func (p *powers) startServer(name string, cmd *exec.Cmd) error {
	if err := p.start(name, cmd, true); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pids[name] = append(p.pids[name], cmd.Process.Pid)
	return nil
}

// startClient starts the process of a client. It is client.Options.Start.
func (p *powers) startClient(name string) func(*exec.Cmd) error {
	if p.clientsInside {
		return nil // what is started here is the docker command
	}
	return func(cmd *exec.Cmd) error { return p.start(name, cmd, false) }
}

// start starts a process with the clock and the disk of its node.
func (p *powers) start(name string, cmd *exec.Cmd, server bool) error {
	if p.netns != nil {
		if err := p.netns.enter(name, cmd); err != nil {
			return err
		}
	}
	own, err := p.patches(name, server)
	if err != nil {
		return err
	}
	patches := make([]execstop.Patch, len(own))
	for i, o := range own {
		patches[i] = o
	}
	return execstop.Start(cmd, execstop.Options{}, patches...)
}

// serverPatches is deploy.Options.Patches.
func (p *powers) serverPatches(name string) ([]execstop.Portable, error) {
	return p.patches(name, true)
}

// patches are the clock and the disk of a node, where there is need of them.
func (p *powers) patches(name string, server bool) ([]execstop.Portable, error) {
	var patches []execstop.Portable
	if p.clocked {
		c, err := control(p, p.clocks, name, clock.New)
		if err != nil {
			return nil, err
		}
		patches = append(patches, c)
	}
	if p.disked && server {
		d, err := control(p, p.disks, name, func() (*disk.Control, error) { return disk.New(disk.Options{Writes: p.write}) })
		if err != nil {
			return nil, err
		}
		patches = append(patches, d)
	}
	return patches, nil
}

// control returns a node's control, which stays the same over restarts.
func control[T any](p *powers, all map[string]*T, name string, make func() (*T, error)) (*T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := all[name]; c != nil {
		return c, nil
	}
	c, err := make()
	if err == nil {
		all[name] = c
	}
	return c, err
}

// peer returns where the other members of a cluster reach a server. It is
// deploy.Options.Peer.
func (p *powers) peer(server, addr string, peers []string) (string, error) {
	if len(peers) == 1 {
		return p.mesh.Listen(peers[0], server, addr)
	}
	if p.containers != nil {
		return p.mesh.ListenPeers(server, addr, peers, p.containerOf)
	}
	owners := proxy.Owners{PIDs: func() map[string][]int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return maps.Clone(p.pids)
	}}
	return p.mesh.ListenPeers(server, addr, peers, owners.Identify)
}

// deployOptions adds the hooks that the powers need.
func (p *powers) deployOptions(o deploy.Options) deploy.Options {
	if p.mesh != nil {
		o.Peer = p.peer
	}
	if p.netns != nil {
		o.Host, o.Dial = p.netns.host, p.netns.dial
	}
	if p.mesh != nil || p.netns != nil || p.clocked || p.disked {
		o.Start = p.startServer
	}
	if p.clocked || p.disked {
		o.Patches = p.serverPatches
	}
	return o
}

// endpoint returns where the harness reaches a server.
func (p *powers) endpoint(n *deploy.Node) (backends.Endpoint, error) {
	e := n.Endpoint()
	if p.netns == nil {
		return e, nil
	}
	u, err := url.Parse(e.URL)
	if err != nil {
		return e, err
	}
	if a, err := netip.ParseAddr(u.Hostname()); err != nil || a.IsLoopback() {
		return e, nil // it runs inside the harness
	}
	u.Host, err = p.netns.outside(u.Host)
	e.URL = u.String()
	return e, err
}

// route returns the URL at which source is to reach what target serves at a
// URL: that of a proxy if there are any, or the one in the nodes' own network.
func (p *powers) route(source, target, at string) (string, error) {
	if p.mesh == nil && p.netns == nil || at == "" {
		return at, nil
	}
	u, err := url.Parse(at)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%s of %s has no host to put a proxy before: %w", at, target, err)
	}
	if p.netns != nil {
		u.Host, err = p.netns.insideOf(u.Host)
	} else {
		u.Host, err = p.mesh.Listen(source, target, u.Host)
	}
	return u.String(), err
}

// endpoints routes endpoints.
func (p *powers) endpoints(source string, all []backends.Endpoint) ([]backends.Endpoint, error) {
	routed := slices.Clone(all)
	for i, e := range all {
		var err error
		if routed[i].URL, err = p.route(source, e.Name, e.URL); err != nil {
			return nil, err
		}
	}
	return routed, nil
}

// close frees what the powers hold. The processes must have ended.
func (p *powers) close() error {
	var errs []error
	if p.mesh != nil {
		errs = append(errs, p.mesh.Close())
	}
	if p.netns != nil {
		errs = append(errs, p.netns.close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clocks {
		errs = append(errs, c.Close())
	}
	for _, d := range p.disks {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

func (p *powers) clock(name string) *clock.Control {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clocks[name]
}

func (p *powers) disk(name string) *disk.Control {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.disks[name]
}

// network is nil if nodes are not in network namespaces.
func (p *powers) network() *netns.Net {
	if p.netns == nil {
		return nil
	}
	return p.netns.net
}

// These make a client a target of the faults that need them.

// Links implements network.Linked.
func (d *directed) Links() *proxy.Mesh { return d.powers.mesh }

// Namespaces implements netns.Inside.
func (d *directed) Namespaces() *netns.Net { return d.powers.network() }

// Clock implements clock.Clocked.
func (d *directed) Clock() *clock.Control { return d.powers.clock(d.Name()) }

// server is a server as a target of faults.
type server struct {
	*deploy.Node
	powers *powers
}

// Links implements network.Linked.
func (s server) Links() *proxy.Mesh { return s.powers.mesh }

// Namespaces implements netns.Inside.
func (s server) Namespaces() *netns.Net { return s.powers.network() }

// Clock implements clock.Clocked.
func (s server) Clock() *clock.Control { return s.powers.clock(s.Name()) }

// Container implements nemesis.Contained.
func (s server) Container() nemesis.Container {
	if c := s.Node.Container(); c != nil {
		return c
	}
	return nil
}

// Disk implements disk.Disked.
func (s server) Disk() *disk.Control { return s.powers.disk(s.Name()) }

// timed is a server that tells the time. Faults compare their targets, so it is used
// by its pointer.
type timed struct {
	server
	read func(ctx context.Context, url string) (time.Time, error)
}

// ReadClock implements clock.Reader.
func (t timed) ReadClock(ctx context.Context) (time.Time, error) {
	return t.read(ctx, t.Endpoint().URL)
}

// target returns a server as a target.
func (p *powers) target(n *deploy.Node) nemesis.Target {
	s := server{n, p}
	switch n.Software() {
	case "redis":
		return &timed{s, redisTime}
	case "postgres":
		return &timed{s, postgresTime}
	}
	return s
}

// store is the protected resource as a target: its network only.
type store struct{ powers *powers }

// Name implements nemesis.Target.
func (store) Name() string { return resourceNode }

// Links implements network.Linked.
func (s store) Links() *proxy.Mesh { return s.powers.mesh }

// Namespaces implements netns.Inside.
func (s store) Namespaces() *netns.Net { return s.powers.network() }

// resourceNode is the name of the resource among the nodes.
const resourceNode = "resource"

// redisTime asks a Redis server for its clock.
func redisTime(ctx context.Context, at string) (time.Time, error) {
	lines, err := redisAsk(ctx, at, "TIME")
	if err != nil {
		return time.Time{}, err
	}
	// *2, $10, seconds, $6, microseconds
	if len(lines) != 5 {
		return time.Time{}, fmt.Errorf("the answer to TIME is %q", lines)
	}
	s, err1 := strconv.ParseInt(lines[2], 10, 64)
	us, err2 := strconv.ParseInt(lines[4], 10, 64)
	return time.Unix(s, us*1000), errors.Join(err1, err2)
}

// redisAsk sends a command without arguments on a connection of its own, and
// returns the lines of the answer.
func redisAsk(ctx context.Context, at, command string) ([]string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := fmt.Fprintf(conn, "%s\r\nQUIT\r\n", command); err != nil {
		return nil, err
	}
	var lines []string
	s := bufio.NewScanner(conn)
	for s.Scan() && len(lines) < 1000 {
		lines = append(lines, s.Text())
	}
	if n := len(lines); n > 0 { // the answer to QUIT
		return lines[:n-1], nil
	}
	return nil, errors.Join(fmt.Errorf("no answer to %s", command), s.Err())
}

// postgresTime asks a PostgreSQL server for its clock.
func postgresTime(ctx context.Context, at string) (t time.Time, err error) {
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return t, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return t, conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&t)
}
