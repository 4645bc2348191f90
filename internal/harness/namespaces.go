package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"sync"

	"github.com/lockcheck/lockcheck/nemesis/network/netns"
)

// namespaces are the network of a run whose clients and servers are each in a
// network namespace. The harness is in none of them: it and they reach each other
// through relays. What clients and servers say to each other passes none.
type namespaces struct {
	net *netns.Net

	mu     sync.Mutex
	inside map[string]string // address for the harness → for the nodes
	relays []*relay
}

func newNamespaces() (*namespaces, error) {
	n, err := netns.NewNet()
	if err != nil {
		return nil, fmt.Errorf("make network namespaces: %w", err)
	}
	return &namespaces{net: n, inside: map[string]string{}}, nil
}

// enter has a command run in the namespace of a node.
func (n *namespaces) enter(name string, cmd *exec.Cmd) error {
	node, err := n.net.Node(name)
	if err != nil {
		return err
	}
	var as *netns.Credential
	if attr := cmd.SysProcAttr; attr != nil && attr.Credential != nil {
		as = &netns.Credential{UID: attr.Credential.Uid, GID: attr.Credential.Gid}
		attr.Credential = nil
	}
	argv := node.Command(as, append([]string{cmd.Path}, cmd.Args[1:]...)...)
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	cmd.Path, cmd.Args = path, argv
	return nil
}

// host is the address of a node. It is deploy.Options.Host.
func (n *namespaces) host(name string) (string, error) {
	node, err := n.net.Node(name)
	if err != nil {
		return "", err
	}
	return node.Addr.String(), nil
}

// dial connects the harness to an address of the network. It is
// deploy.Options.Dial.
func (n *namespaces) dial(_ context.Context, _, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	return n.net.Dial(to)
}

// outside returns where the harness reaches an address of the network.
func (n *namespaces) outside(addr string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inside[l.Addr().String()] = addr
	n.relays = append(n.relays, newRelay(l, func() (net.Conn, error) { return n.dial(context.Background(), "tcp", addr) }))
	return l.Addr().String(), nil
}

// insideOf returns where nodes reach what the harness reaches at an address. If
// that is no node's, it is the resource, which gets a node of its own.
func (n *namespaces) insideOf(addr string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.inside[addr]; ok {
		return at, nil
	}
	if _, err := n.net.Node(resourceNode); err != nil {
		return "", err
	}
	l, err := n.net.Listen(resourceNode)
	if err != nil {
		return "", err
	}
	n.inside[addr] = l.Addr().String()
	n.relays = append(n.relays, newRelay(l, func() (net.Conn, error) { return net.Dial("tcp", addr) }))
	return l.Addr().String(), nil
}

// close ends the network. Its processes have ended.
func (n *namespaces) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, r := range n.relays {
		errs = append(errs, r.close())
	}
	n.relays = nil
	return errors.Join(append(errs, n.net.Close())...)
}

// relay joins each connection that it accepts with one that it makes.
type relay struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	busy     sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func newRelay(l net.Listener, dial func() (net.Conn, error)) *relay {
	r := &relay{listener: l, dial: dial, open: map[net.Conn]bool{}}
	r.busy.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			r.busy.Go(func() { r.join(c) })
		}
	})
	return r
}

// join carries bytes both ways until both sides have ended.
func (r *relay) join(a net.Conn) {
	if !r.keep(a) {
		return
	}
	defer r.drop(a)
	b, err := r.dial()
	if err != nil || !r.keep(b) {
		return
	}
	defer r.drop(b)
	var both sync.WaitGroup
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // a connection that breaks ends on both sides
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	both.Go(func() { carry(a, b) })
	both.Go(func() { carry(b, a) })
	both.Wait()
}

// keep reports whether the relay is still open; else it closes c.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		c.Close()
		return false
	}
	r.open[c] = true
	return true
}

func (r *relay) drop(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
	c.Close()
}

func (r *relay) close() error {
	err := r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		c.Close()
	}
	r.mu.Unlock()
	r.busy.Wait()
	return err
}
