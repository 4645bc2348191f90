package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy/engine"
)

// container is a server that is a container. Its data folder is prepared on this
// machine and copied into a volume of the container, at the same path.
type container struct {
	node    *Node
	program program
	site    *contained
	dir     string
	stale   bool // what was prepared has changed since it was copied

	kept *kept // nil if there is no keeper in it

	mu     sync.Mutex
	id     string // "" until compose has made it
	ran    bool   // it has run, with data
	life   *life  // nil if it is down
	handle Container
}

// life is a container from its start to its end.
type life struct {
	done   chan struct{} // closed when it does not run any more, and its log is written
	up     bool          // it has served
	killed bool          // by us
	ended  bool
	err    error // how
}

func newContainer(n *Node, p program, site *contained, dir string) *container {
	c := &container{node: n, program: p, site: site, dir: dir}
	c.handle = Container{run: site.Containers, name: c.name(), alias: n.Name(), server: c}
	return c
}

func (c *container) name() string { return c.site.project + "-" + c.node.Name() }

func (c *container) url() string { return c.program.url() }

func (c *container) engine() *engine.Engine { return c.site.engine }

// start copies its files into it, if it has not got them, and starts it.
func (c *container) start(ctx context.Context) error {
	name := c.node.Name()
	if _, err := os.Stat(c.dir); errors.Is(err, os.ErrNotExist) {
		if c.ran {
			if err := c.remake(ctx); err != nil {
				return fmt.Errorf("make the container of %s anew: %w", name, err)
			}
		}
		if err := c.program.prepare(ctx, c.ran); err != nil {
			return errors.Join(fmt.Errorf("prepare %s: %w", name, err), c.wipe())
		}
		c.stale = true
	}
	if c.stale {
		if err := c.site.push(ctx, c.id, c.dir); err != nil {
			return fmt.Errorf("prepare %s: %w", name, err)
		}
		c.stale = false
	}
	c.ran = true
	l, err := c.launch(ctx)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	living, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.done:
			cancel()
		case <-living.Done():
		}
	}()
	for {
		err := c.program.ready(living, 0)
		if err == nil {
			return c.serves(l)
		}
		select {
		case <-l.done:
			return c.died(l)
		case <-ctx.Done():
			err := fmt.Errorf("start %s: not ready: %w (last: %v)%s", name, context.Cause(ctx), err, tail(c.node.log))
			return errors.Join(err, c.kill(context.WithoutCancel(ctx)))
		case <-time.After(poll):
		}
	}
}

// launch starts the server, and whoever writes its log and sees its end. Without a
// keeper it is the container that does.
func (c *container) launch(ctx context.Context) (*life, error) {
	if c.kept != nil {
		return c.launchKept(ctx)
	}
	log, err := os.OpenFile(c.node.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	before, err := c.engine().Inspect(ctx, c.id)
	if err == nil {
		err = c.engine().Start(ctx, c.id)
	}
	if err != nil {
		log.Close()
		return nil, err
	}
	l := &life{done: make(chan struct{})}
	c.mu.Lock()
	c.life = l
	c.mu.Unlock()
	go func() {
		defer log.Close()
		// It ends with the container, which Close removes at the latest. What was
		// written before this start is in the log already.
		ctx := context.Background()
		_ = c.engine().Logs(ctx, c.id, before.Ended(), log)
		status, err := c.engine().Wait(ctx, c.id)
		switch {
		case err == nil && status > 128: // as a shell has it
			err = fmt.Errorf("signal: %v (exit status %d)", syscall.Signal(status-128), status)
		case err == nil:
			err = fmt.Errorf("exit status %d", status)
		}
		c.end(l, err)
	}()
	return l, nil
}

func (c *container) end(l *life, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.ended, l.err = true, err
	if c.life == l {
		c.life = nil
	}
	if l.up && !l.killed {
		c.node.fail(fmt.Errorf("%s ended by itself: %w%s", c.node.Name(), err, tail(c.node.log)))
	}
	close(l.done)
}

func (c *container) serves(l *life) error {
	c.mu.Lock()
	l.up = !l.ended
	c.mu.Unlock()
	if !l.up {
		return c.died(l)
	}
	return nil
}

func (c *container) died(l *life) error {
	return fmt.Errorf("%s ended while it started: %w%s", c.node.Name(), l.err, tail(c.node.log))
}

func (c *container) kill(ctx context.Context) error {
	c.mu.Lock()
	l := c.life
	if l != nil {
		l.killed = true
	}
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	end := func() error { return c.engine().Kill(ctx, c.id) }
	if c.kept != nil {
		end = func() error { return c.killKept(ctx) }
	}
	if err := end(); err != nil {
		return err
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wipe forgets what was prepared: the next start makes the container anew, with an
// empty volume.
func (c *container) wipe() error { return os.RemoveAll(c.dir) }

// remake replaces the container, in which no server runs, by one that is made as it
// was, at the same addresses.
func (c *container) remake(ctx context.Context) error {
	if c.kept != nil {
		if err := c.leave(); err != nil {
			return err
		}
	}
	d, err := c.engine().Inspect(ctx, c.id)
	if err != nil {
		return err
	}
	ends := map[string]engine.Endpoint{}
	for network, end := range d.NetworkSettings.Networks {
		ends[network] = engine.Endpoint{IPAMConfig: end.IPAMConfig, Aliases: []string{c.node.Name()}}
	}
	if err := c.engine().Remove(ctx, c.id); err != nil {
		return err
	}
	first := c.site.Network(ClientsNetwork)
	id, err := c.engine().Create(ctx, c.name(), engine.Spec{
		Config: d.Config, HostConfig: d.HostConfig,
		// An engine of this API takes one network when it makes a container.
		Networks: map[string]engine.Endpoint{first: ends[first]},
	})
	if err != nil {
		return err
	}
	c.id = id
	for network, end := range ends {
		if network == first {
			continue
		}
		if err := c.engine().Join(ctx, network, id, end); err != nil {
			return err
		}
	}
	return nil
}

func (c *container) runs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.life != nil
}

// pids returns the processes of the container on this machine.
func (c *container) pids() ([]int, error) {
	if !c.runs() {
		return nil, nil
	}
	if c.kept != nil {
		return c.keptPIDs()
	}
	return c.handle.PIDs()
}

// Image returns the image that the server runs from and its digest, or "" if it is
// no container.
func (n *Node) Image(ctx context.Context) (string, error) {
	c, ok := n.body.(*container)
	if !ok {
		return "", nil
	}
	i, err := c.engine().Image(ctx, c.site.image)
	return c.site.image + " " + i.ID, err
}

// Container returns the container that the server is, nil if it is none.
func (n *Node) Container() *Container {
	if c, ok := n.body.(*container); ok {
		return &c.handle
	}
	return nil
}

// setUpContainers gives nodes that are set up as one their bodies. It is what
// setUp is for processes.
func (l *Local) setUpContainers(ctx context.Context, group []*Node) error {
	if group[0].software.Serve != nil {
		return l.setUp(ctx, group)
	}
	sw := group[0].software
	inside, err := l.options.Containers.contain(sw.Name)
	if err != nil {
		return fmt.Errorf("set up %s: %w", group[0].Name(), err)
	}
	bin, err := inside.binary(ctx, l.cache)
	if err != nil {
		return err
	}
	next := 0
	s := site{
		bin: bin, peer: l.options.Peer, cache: l.cache, reach: l.reach, contained: inside, host: inside.host,
		port: func() (int, error) {
			if inside.published() {
				return l.port()
			}
			next++
			return inside.software.ports[(next-1)%len(inside.software.ports)], nil
		},
	}
	for _, n := range group {
		if err := inside.place(n.Name()); err != nil {
			return err
		}
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
		c := newContainer(n, programs[i], inside, s.dirs[i])
		if err := c.listen(); err != nil {
			return fmt.Errorf("set up %s: %w", n.Name(), err)
		}
		n.body = c
	}
	return nil
}

// layOut sets up all groups, those first that others need, and has compose make
// their containers.
func (l *Local) layOut(ctx context.Context, groups [][]*Node) error {
	if err := l.checkOrder(groups); err != nil {
		return err
	}
	if err := l.options.Containers.network(ctx); err != nil {
		return err
	}
	waiting := groups
	for len(waiting) > 0 {
		var later [][]*Node
		for _, g := range waiting {
			if l.blocked(g) {
				later = append(later, g)
				continue
			}
			if err := l.setUpContainers(ctx, g); err != nil {
				return err
			}
		}
		if len(later) == len(waiting) {
			return fmt.Errorf("%s cannot be set up: what it needs is not", waiting[0][0].Name())
		}
		waiting = later
	}
	var all []*container
	for _, g := range groups {
		for _, n := range g {
			if c, ok := n.body.(*container); ok {
				all = append(all, c)
			}
		}
	}
	return l.options.Containers.make(ctx, l.options.Dir, all)
}

// blocked reports whether a server of a group needs one that is not set up.
func (l *Local) blocked(group []*Node) bool {
	for _, n := range group {
		for _, name := range n.needs() {
			if needed, err := l.node(name); err != nil || needed.body == nil {
				return true
			}
		}
	}
	return false
}
