// Package proxy runs every connection between nodes through a TCP proxy in this
// process, made of toxiproxy's pipelines, so that each link, that is each
// ordered pair of nodes, can be cut or made slow, both directions or one.
//
// What a userspace proxy can't do: connect() to it succeeds whatever the state
// of the link, and keepalives and retransmissions are the kernel's with the
// proxy, not with the other end. Package netns cuts below TCP.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
)

// dialTimeout bounds the proxy's connect to a target, which is on this machine.
const dialTimeout = 5 * time.Second

// A Link is an ordered pair of nodes: the connections that Source opens to
// Target. What travels up goes from Source to Target, what travels down
// are the replies.
type Link struct {
	Source, Target string
}

func (l Link) String() string { return l.Source + "->" + l.Target }

// Mesh is the proxies of one run. Its methods may be called concurrently.
type Mesh struct {
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	api    *toxiproxy.ApiServer // only for the types: it never listens
	sink   *sink                // what probes are connected to
	alive  sync.WaitGroup       // accept loops and connections

	// at returns the address of this machine on which sources reach the mesh,
	// see SetHost; nil means 127.0.0.1.
	at func(source string) netip.Addr

	change sync.Mutex // held while rules change, so that gates get them in order

	mu        sync.Mutex // all below, and the fields of links and listeners that say so
	links     map[Link]*link
	listeners map[listenerKey]*listener
	upstreams map[upstreamKey]*upstream
	lastID    int
	closed    bool

	dialing sync.Mutex // held while a probe dials, until it is in probes
	probes  map[probeKey]*Probe
}

type (
	upstreamKey struct{ target, addr string }
	listenerKey struct {
		source string // "" for one that several sources share
		upstreamKey
	}
)

// upstream is where a target listens, now.
type upstream struct {
	addr string // under Mesh.mu
}

// NewMesh returns a mesh without links. The caller must Close it.
func NewMesh() (*Mesh, error) {
	s, err := newSink()
	if err != nil {
		return nil, fmt.Errorf("start the mesh: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Mesh{
		ctx:       ctx,
		cancel:    cancel,
		api:       &toxiproxy.ApiServer{Metrics: toxiproxy.NewMetricsContainer(nil)},
		sink:      s,
		links:     map[Link]*link{},
		listeners: map[listenerKey]*listener{},
		upstreams: map[upstreamKey]*upstream{},
		probes:    map[probeKey]*Probe{},
	}, nil
}

// SetHost has the mesh listen elsewhere than on 127.0.0.1 from now on: on an address
// for each source, which is "" for several. It may be one that this machine does
// not have yet.
func (m *Mesh) SetHost(at func(source string) netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = at
}

// Listen returns the loopback address at which source, and nobody else, is to
// reach what target serves at targetAddr. Asked again, it returns the same.
func (m *Mesh) Listen(source, target, targetAddr string) (addr string, err error) {
	if source == "" {
		return "", errors.New("a link needs the name of its source")
	}
	return m.listen(source, target, targetAddr, []string{source}, nil)
}

// Identify tells which node opened a connection to the proxy. An error says
// that it can't be known.
type Identify func(accepted net.Conn) (source string, err error)

// ListenPeers returns one loopback address at which all of sources are to reach
// what target serves at targetAddr: for servers that advertise a single
// address to each other. identify tells them apart, such as Owners.Identify.
// Connections of anyone else are reset, and counted in Strangers. Asked again,
// it returns the same, for the sources of the first time.
func (m *Mesh) ListenPeers(target, targetAddr string, sources []string, identify Identify) (addr string, err error) {
	return m.listen("", target, targetAddr, sources, identify)
}

func (m *Mesh) listen(source, target, targetAddr string, sources []string, identify Identify) (string, error) {
	if target == "" || targetAddr == "" {
		return "", fmt.Errorf("a link needs its target's name and address, not %q and %q", target, targetAddr)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return "", net.ErrClosed
	}
	key := listenerKey{source, upstreamKey{target, targetAddr}}
	if ln, ok := m.listeners[key]; ok {
		return ln.addr, nil
	}
	up, ok := m.upstreams[key.upstreamKey]
	if !ok {
		up = &upstream{addr: targetAddr}
	}
	host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if m.at != nil {
		host = m.at(source)
	}
	ln, err := newListener(m, up, host)
	if err != nil {
		return "", fmt.Errorf("listen for %s on behalf of %s: %w", strings.Join(sources, ", "), target, err)
	}
	ln.identify = identify
	ln.links = map[string]*link{}
	for _, s := range sources {
		pair := Link{s, target}
		l, ok := m.links[pair]
		if !ok {
			l = newLink(pair)
			m.links[pair] = l
		}
		ln.links[s] = l
		l.listeners = append(l.listeners, ln)
	}
	m.upstreams[key.upstreamKey] = up
	m.listeners[key] = ln
	if identify == nil && ln.links[source].refused() {
		return ln.addr, nil
	}
	if err := ln.open(); err != nil {
		return "", err
	}
	return ln.addr, nil
}

// Move tells the mesh that target serves at addr what it served at targetAddr
// when the link was made, since it was started again. Connections that are
// there stay as they are.
func (m *Mesh) Move(target, targetAddr, addr string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	up, ok := m.upstreams[upstreamKey{target, targetAddr}]
	if !ok {
		return fmt.Errorf("no link leads to %s at %s", target, targetAddr)
	}
	up.addr = addr
	return nil
}

// Links returns all links, sorted.
func (m *Mesh) Links() []Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.links), func(a, b Link) int {
		return strings.Compare(a.String(), b.String())
	})
}

// Stats returns what travelled on a link so far.
func (m *Mesh) Stats(l Link) (Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, err := m.find(l)
	if err != nil {
		return Stats{}, err
	}
	return found.stats(), nil
}

// Strangers returns how many connections were reset because nobody could tell
// who had opened them.
func (m *Mesh) Strangers() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var n int64
	for _, ln := range m.listeners {
		n += ln.strangers.Load()
	}
	return n
}

// find needs m.mu.
func (m *Mesh) find(l Link) (*link, error) {
	if found, ok := m.links[l]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("there is no link %s", l)
}

// Close ends all connections and listeners, and returns when they are gone.
// What is held is lost. It may be called repeatedly.
func (m *Mesh) Close() error {
	m.change.Lock()
	defer m.change.Unlock()
	m.mu.Lock()
	m.closed = true
	var listeners []*listener
	for _, ln := range m.listeners {
		listeners = append(listeners, ln)
	}
	var conns []*conn
	for _, l := range m.links {
		conns = slices.AppendSeq(conns, maps.Keys(l.conns))
	}
	m.mu.Unlock()

	m.cancel()
	var errs []error
	for _, ln := range listeners {
		errs = append(errs, ln.remove())
	}
	for _, c := range conns {
		c.abort()
	}
	errs = append(errs, m.sink.close())
	m.alive.Wait()
	m.sink.busy.Wait()
	return errors.Join(errs...)
}
