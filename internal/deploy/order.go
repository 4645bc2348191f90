package deploy

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// peer is a server as another one reaches it.
type peer struct {
	address string // host and port
	program program
}

// needs returns the names of the servers that n names in its options and cannot start without.
func (n *Node) needs() []string {
	if n.software.needs == nil {
		return nil
	}
	return n.software.needs(n.server)
}

// inOrder starts groups of servers at once, each as soon as those serve that it
// needs. One that was started before is not waited for.
func (l *Local) inOrder(ctx context.Context, groups [][]*Node) error {
	serves := map[string]chan struct{}{}
	for _, g := range groups {
		for _, n := range g {
			serves[n.Name()] = make(chan struct{})
		}
	}
	if err := l.checkOrder(groups); err != nil {
		return err
	}
	return forEach(ctx, groups, func(ctx context.Context, group []*Node) error {
		for _, n := range group {
			for _, name := range n.needs() {
				ready, ok := serves[name]
				if !ok {
					continue
				}
				select {
				case <-ready:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		if err := l.startGroup(ctx, group); err != nil {
			return err
		}
		for _, n := range group {
			close(serves[n.Name()])
		}
		return nil
	})
}

// checkOrder returns an error if a server needs one that there is not, or if
// servers need each other, so that none could ever start.
func (l *Local) checkOrder(groups [][]*Node) error {
	waiting := slices.Clone(groups)
	starting := map[string]bool{}
	for _, g := range groups {
		for _, n := range g {
			starting[n.Name()] = true
		}
	}
	for _, g := range groups {
		for _, n := range g {
			for _, name := range n.needs() {
				if _, err := l.node(name); err != nil {
					return fmt.Errorf("server %s needs %s: %w", n.Name(), name, err)
				}
			}
		}
	}
	for len(waiting) > 0 {
		blocked := slices.DeleteFunc(slices.Clone(waiting), func(g []*Node) bool {
			return !slices.ContainsFunc(g, func(n *Node) bool {
				return slices.ContainsFunc(n.needs(), func(name string) bool { return starting[name] })
			})
		})
		if len(blocked) == len(waiting) {
			var names []string
			for _, g := range blocked {
				names = append(names, g[0].Name())
			}
			return fmt.Errorf("the servers %s cannot start: each needs another of them first", strings.Join(names, ", "))
		}
		for _, g := range waiting {
			if !slices.ContainsFunc(blocked, func(b []*Node) bool { return b[0] == g[0] }) {
				for _, n := range g {
					delete(starting, n.Name())
				}
			}
		}
		waiting = blocked
	}
	return nil
}

func (l *Local) node(name string) (*Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[name]
	if n == nil {
		return nil, fmt.Errorf("there is no server named %q", name)
	}
	return n, nil
}

// reach returns how the server named from reaches the one named to, which has
// started.
func (l *Local) reach(from, to string) (peer, error) {
	n, err := l.node(to)
	if err != nil {
		return peer{}, err
	}
	p := n.program()
	if p == nil {
		return peer{}, fmt.Errorf("%s is no process of its own, %s cannot use it", to, from)
	}
	at, err := l.addressFor(n, p)
	if err != nil {
		return peer{}, fmt.Errorf("address of %s: %w", to, err)
	}
	if l.options.Peer != nil {
		if at, err = l.options.Peer(to, at, []string{from}); err != nil {
			return peer{}, fmt.Errorf("address of %s for %s: %w", to, from, err)
		}
	}
	return peer{at, p}, nil
}

// addressFor is where other servers reach a server's program.
func (l *Local) addressFor(n *Node, p program) (string, error) {
	u, err := url.Parse(p.url())
	if err != nil {
		return "", err
	}
	if l.options.Containers != nil {
		return net.JoinHostPort(l.options.Containers.Address(n.Name(), PeersNetwork), u.Port()), nil
	}
	return u.Host, nil
}
