// Package deploy runs the servers of a lock system: on this machine as child
// processes on free loopback ports, in a folder of the run. Whatever happens to
// the harness, nothing that was started here outlives it.
//
// Which programs can be run is a registry of [Software], a file each.
package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// startLimit is how long servers may take to start, whatever the context says.
const startLimit = 60 * time.Second

// Options say how servers are run.
type Options struct {
	// Dir is the folder for the servers' logs, NAME.log each. It is made if
	// it is missing, and stays. Required.
	Dir string
	// Bin has the path of the program to run for a software, where it is not
	// to be searched for: "redis" → "/opt/redis/bin/redis-server". For
	// "postgres" it is the server's, with initdb next to it. "etcd" may also
	// be "embedded".
	Bin map[string]string
	// Cache shares what is costly to make with other runtimes. Nil means
	// that this one makes its own, and removes it when it is closed.
	Cache *Cache
	// Start starts the process of a server, such as one that traces it first;
	// nil means cmd.Start. It runs on the thread that all children are bound
	// to, see guard.StartBy.
	Start func(server string, cmd *exec.Cmd) error
	// Patches are what the process of a server in a container is given as it starts;
	// nil means nothing. See Containers.Patched.
	Patches func(server string) ([]execstop.Portable, error)
	// Peer returns the loopback address at which the other members of a cluster
	// are to reach what a server serves them at addr, such as that of a proxy;
	// nil means addr itself. Peers are the names of those members.
	Peer func(server, addr string, peers []string) (string, error)
	// Host returns the address on which a server listens, which Start has it
	// reach: that of a network namespace. Nil means 127.0.0.1. Only PostgreSQL
	// servers without standby can be elsewhere; others are not started.
	Host func(server string) (string, error)
	// Containers runs servers as containers; nil runs them as processes. Close
	// ends it. Bin, Start, Host and Dial are not used then.
	Containers *Containers
	// Dial connects to a server at its Host; nil means as usual.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Local runs servers as processes of this machine. Its methods may be called
// concurrently.
type Local struct {
	options  Options
	root     string // of the data folders
	ports    *ports
	port     func() (int, error) // ports.take
	cache    *Cache
	ownCache bool

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	busy   sync.RWMutex // held by what Close has to wait for

	mu    sync.Mutex
	nodes map[string]*Node

	closing sync.Once
	closed  error
}

var errClosed = errors.New("the servers are being stopped")

// NewLocal returns a runtime without servers. The caller closes it.
func NewLocal(o Options) (*Local, error) {
	if o.Dir == "" {
		return nil, errors.New("no folder for the servers' logs")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for the servers' logs: %w", err)
	}
	for name := range o.Bin {
		if _, err := find(name); err != nil {
			return nil, err
		}
	}
	root, err := guard.TempDir()
	if err != nil {
		return nil, err
	}
	// Some servers run as another user, who has to get through.
	if err := os.Chmod(root, 0o711); err != nil {
		return nil, errors.Join(err, guard.RemoveDir(root))
	}
	l := &Local{options: o, root: root, ports: newPorts(), cache: o.Cache, nodes: map[string]*Node{}}
	l.port = l.ports.take
	if l.cache == nil {
		l.cache, l.ownCache = NewCache(), true
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l, nil
}

// Start starts servers, all at once but those that need others, which start
// after these, and returns when all of them serve, in the order given. Etcd servers that are started together are one cluster. If one
// cannot be started, none is left running. The context is only for the start.
func (l *Local) Start(ctx context.Context, servers []backends.Server) ([]*Node, error) {
	ctx, done, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()

	nodes := make([]*Node, len(servers))
	for i, s := range servers {
		if nodes[i], err = l.add(s); err != nil {
			l.drop(nodes[:i])
			return nil, err
		}
	}
	groups := together(nodes)
	if l.options.Containers != nil {
		err = l.layOut(ctx, groups)
	}
	if err == nil {
		err = l.inOrder(ctx, groups)
	}
	if err != nil {
		for _, n := range nodes {
			err = errors.Join(err, n.kill(context.WithoutCancel(ctx)))
			if c, ok := n.body.(*container); ok {
				err = errors.Join(err, c.free())
			}
		}
		l.drop(nodes)
		return nil, err
	}
	return nodes, nil
}

// begin starts an operation that Close waits for, and ends.
func (l *Local) begin(ctx context.Context) (context.Context, func(), error) {
	l.busy.RLock()
	if err := l.ctx.Err(); err != nil {
		l.busy.RUnlock()
		return nil, nil, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, stop := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it took longer than %v", startLimit))
	unhook := context.AfterFunc(l.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		unhook()
		stop()
		cancel(nil)
		l.busy.RUnlock()
	}, nil
}

// plainName is what can be the name of a file everywhere.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// add makes the node of a server, which does not run yet.
func (l *Local) add(s backends.Server) (*Node, error) {
	if !plainName.MatchString(s.Name) {
		return nil, fmt.Errorf("server name %q: want letters, digits, dots, underscores and hyphens", s.Name)
	}
	sw, err := find(s.Software)
	if err != nil {
		return nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	n := &Node{
		local:    l,
		server:   s,
		software: sw,
		log:      filepath.Join(l.options.Dir, s.Name+".log"),
		exited:   make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[s.Name] != nil {
		return nil, fmt.Errorf("there are two servers named %q", s.Name)
	}
	l.nodes[s.Name] = n
	return n, nil
}

func (l *Local) drop(nodes []*Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range nodes {
		delete(l.nodes, n.Name())
	}
}

// together groups the nodes that have to be set up as one.
func together(nodes []*Node) [][]*Node {
	var groups [][]*Node
	cluster := map[string]int{} // software → index of its group
	for _, n := range nodes {
		i, ok := cluster[n.software.Name]
		switch {
		case ok:
			groups[i] = append(groups[i], n)
			continue
		case n.software.cluster:
			cluster[n.software.Name] = len(groups)
		}
		groups = append(groups, []*Node{n})
	}
	return groups
}

// portTries bounds how often other ports are tried after somebody else took
// one between its choice and its use.
const portTries = 3

func (l *Local) startGroup(ctx context.Context, group []*Node) error {
	for try := 1; ; try++ {
		var err error
		if l.options.Containers == nil { // else it is set up already
			err = l.setUp(ctx, group)
		}
		if err == nil {
			err = forEach(ctx, group, func(ctx context.Context, n *Node) error { return n.body.start(ctx) })
		}
		var taken *portTakenError
		if err == nil || !errors.As(err, &taken) || try == portTries {
			return err
		}
		for _, n := range group {
			if err := n.kill(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			if err := n.body.wipe(); err != nil {
				return err
			}
		}
	}
}

// setUp gives the nodes of a group their bodies.
func (l *Local) setUp(ctx context.Context, group []*Node) error {
	sw := group[0].software
	if sw.Serve != nil {
		for _, n := range group {
			n.body = &service{node: n}
		}
		return nil
	}
	bin, err := l.cache.binary(ctx, sw, l.options.Bin[cmp.Or(sw.binary, sw.Name)])
	if err != nil {
		return err
	}
	if l.options.Host != nil && sw.Name != "postgres" {
		return fmt.Errorf("set up %s: a server of %s cannot be in a network namespace: only those of postgres can", group[0].Name(), sw.Name)
	}
	s := site{bin: bin, host: l.options.Host, dial: l.options.Dial, port: l.port, peer: l.options.Peer, cache: l.cache, reach: l.reach}
	for _, n := range group {
		dir := filepath.Join(l.root, n.Name())
		s.servers = append(s.servers, n.server)
		s.dirs = append(s.dirs, dir)
		n.version = bin.Version
	}
	programs, err := sw.programs(s)
	if err != nil {
		return fmt.Errorf("set up %s: %w", group[0].Name(), err)
	}
	for i, n := range group {
		n.body = &process{node: n, program: programs[i], dir: s.dirs[i]}
	}
	return nil
}

// Close stops all servers, whatever is going on, and removes their data; logs
// stay. Further calls wait for the first and return the same.
func (l *Local) Close() error {
	l.closing.Do(func() {
		l.cancel(errClosed)
		l.busy.Lock() // waits until what was going on has ended
		defer l.busy.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		var nodes []*Node
		for _, n := range l.nodes {
			nodes = append(nodes, n)
		}
		l.closed = errors.Join(
			forEach(ctx, nodes, func(_ context.Context, n *Node) error { return n.kill(ctx) }),
			l.removeContainers(ctx),
			l.closeKeepers(),
			l.ports.close(),
			guard.RemoveDir(l.root),
		)
		if l.ownCache {
			l.closed = errors.Join(l.closed, l.cache.Close())
		}
	})
	return l.closed
}

func (l *Local) removeContainers(ctx context.Context) error {
	if l.options.Containers == nil {
		return nil
	}
	return l.options.Containers.close(ctx)
}

// closeKeepers frees what keepers of containers, which are gone, have here.
func (l *Local) closeKeepers() error {
	var errs []error
	for _, n := range l.nodes {
		if c, ok := n.body.(*container); ok {
			errs = append(errs, c.free())
		}
	}
	return errors.Join(errs...)
}

// forEach calls f for all at once, waits for all, and returns the first error;
// the context of the others ends with it.
func forEach[T any](ctx context.Context, all []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, x := range all {
		wg.Go(func() {
			if err := f(ctx, x); err != nil {
				once.Do(func() {
					first = err
					cancel(errors.New("another server failed to start"))
				})
			}
		})
	}
	wg.Wait()
	return first
}
