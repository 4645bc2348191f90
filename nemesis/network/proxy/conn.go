package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
)

// conn is a connection that reaches its target. It has toxiproxy's collection of
// pipelines for itself, and a gate of its own in each of the two.
type conn struct {
	link  *link
	probe *Probe // nil for real traffic

	pipes    *toxiproxy.ToxicCollection
	up, down *gate
	client   *end
	target   *end
	kill     chan struct{}
	killed   sync.Once
	ended    sync.WaitGroup // both directions
}

// end is one socket of a connection, as toxiproxy reads and writes it.
type end struct {
	*conn
	socket *net.TCPConn
	wasRST atomic.Bool  // reading failed: whoever is there reset the connection
	writes atomic.Int64 // how many pieces it was given to send
}

// Read implements io.Reader.
func (e *end) Read(b []byte) (int, error) {
	n, err := e.socket.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		e.wasRST.Store(true)
		if e == e.client {
			e.up.aborted.Store(true)
		} else {
			e.down.aborted.Store(true)
		}
		return n, io.EOF
	}
	return n, err
}

// Write implements io.Writer. It never fails: toxiproxy would leave the rest of
// its pipeline blocked for good. A socket that can't be written to ends the
// connection instead.
func (e *end) Write(b []byte) (int, error) {
	e.writes.Add(1)
	if _, err := e.socket.Write(b); err != nil {
		e.abort()
	}
	return len(b), nil
}

// Close implements io.Closer: toxiproxy calls it when all that goes to this end
// is written. The other direction may well go on.
func (e *end) Close() error {
	defer e.ended.Done()
	from := e.client
	if e == from {
		from = e.target
	}
	if from.wasRST.Load() {
		e.abort()
		return nil
	}
	return e.socket.CloseWrite()
}

// abort resets both sides of the connection, now, and tells whether that was new.
func (c *conn) abort() (first bool) {
	c.killed.Do(func() {
		first = true
		close(c.kill)
		for _, e := range []*end{c.client, c.target} {
			e.socket.SetLinger(0)
			e.socket.Close()
		}
	})
	return first
}

// reset is abort on behalf of a fault.
func (c *conn) reset() bool {
	first := c.abort()
	if first && c.probe == nil {
		c.link.resets.Add(1)
	}
	return first
}

// serve takes a connection that was accepted all the way to its end.
func (m *Mesh) serve(ln *listener, client *net.TCPConn) {
	refuse := func() {
		client.SetLinger(0)
		client.Close()
	}
	probe := m.probeOf(client)
	l := m.linkOf(ln, client, probe)
	if l == nil {
		ln.strangers.Add(1)
		refuse()
		return
	}
	early, ok := m.wait(l, client, probe)
	if !ok {
		refuse()
		return
	}

	addr := m.sink.addr
	if probe == nil {
		m.mu.Lock()
		addr = ln.upstream.addr
		m.mu.Unlock()
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	target, err := dialer.DialContext(m.ctx, "tcp", addr)
	if err != nil {
		refuse() // what the client would see, but for the connect that succeeded
		return
	}
	c, err := m.join(l, client, target.(*net.TCPConn), probe)
	if err != nil {
		target.Close()
		refuse()
		return
	}
	if probe == nil {
		l.opened.Add(1)
	}
	if probe != nil {
		probe.reached(c)
	}
	name := client.RemoteAddr().String()
	c.pipes.StartLink(m.api, name+" up", io.MultiReader(bytes.NewReader(early), c.client), c.target, stream.Upstream)
	c.pipes.StartLink(m.api, name+" down", c.target, c.client, stream.Downstream)
	c.ended.Wait()
	m.mu.Lock()
	delete(l.conns, c)
	m.mu.Unlock()
	client.Close()
	target.Close()
}

// linkOf returns the link that a connection belongs to, nil if nobody knows.
func (m *Mesh) linkOf(ln *listener, client *net.TCPConn, probe *Probe) *link {
	switch {
	case probe != nil:
		return ln.links[probe.link.Source]
	case ln.identify == nil:
		for _, l := range ln.links {
			return l
		}
		return nil
	}
	source, err := ln.identify(client)
	if err != nil {
		return nil
	}
	return ln.links[source]
}

// wait returns once connections can be opened on a link, with what the client
// sent meanwhile, or false if the connection is to be reset: it is refused, what
// it sent was dropped, or it is closed. If its client gave up it must not
// reach the target ever, since no connection would have come about.
func (m *Mesh) wait(l *link, client *net.TCPConn, probe *Probe) (early []byte, ok bool) {
	waits, lost := false, false
	count := &l.up
	if probe != nil {
		count = new(counters)
	}
	for {
		m.mu.Lock()
		mode, changed := l.opening(), l.changed
		if waits && (mode == Pass || mode == Refuse) && probe == nil {
			l.waiting.Add(-1)
		}
		if !waits && (mode == Hold || mode == Drop) && probe == nil {
			l.waiting.Add(1)
		}
		m.mu.Unlock()
		switch mode {
		case Pass:
			if lost && probe == nil {
				l.resets.Add(1)
			}
			return early, !lost && m.ctx.Err() == nil
		case Refuse:
			if probe == nil {
				l.refusals.Add(1)
			}
			return nil, false
		}
		waits = true
		if probe != nil {
			probe.waits()
		}
		keep := func(b []byte) {
			if mode == Drop {
				count.dropped.Add(int64(len(b)))
				lost = lost || len(b) > 0
				return
			}
			count.held.Add(int64(len(b)))
			early = append(early, b...)
		}
		if err := m.readUntil(changed, client, keep, func() bool { return len(early) < holdLimit }); err != nil {
			if probe == nil {
				l.waiting.Add(-1)
				l.abandoned.Add(1)
			}
			return nil, false
		}
	}
}

// readUntil passes to keep what a client sends, while there is room, until
// changed is closed, or the client, or the mesh, which is an error.
func (m *Mesh) readUntil(changed <-chan struct{}, client *net.TCPConn, keep func([]byte), room func() bool) error {
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-changed:
		case <-m.ctx.Done():
		case <-stop:
			return
		}
		client.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		close(stop)
		watch.Wait()
		client.SetReadDeadline(time.Time{})
	}()
	buf := make([]byte, 4096)
	for room() {
		n, err := client.Read(buf)
		keep(buf[:n])
		switch {
		case m.ctx.Err() != nil:
			return m.ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
	}
	select {
	case <-changed:
		return nil
	case <-m.ctx.Done():
		return m.ctx.Err()
	}
}

// join makes a connection part of its link, with the rules of the moment.
func (m *Mesh) join(l *link, client, target *net.TCPConn, probe *Probe) (*conn, error) {
	c := &conn{link: l, probe: probe, kill: make(chan struct{})}
	c.client = &end{conn: c, socket: client}
	c.target = &end{conn: c, socket: target}
	c.pipes = toxiproxy.NewToxicCollection(&toxiproxy.Proxy{Name: l.String()})
	c.ended.Add(2)

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, net.ErrClosed
	}
	if l.refused() {
		return nil, errors.New("refused")
	}
	up, down := l.orders()
	upCount, downCount, caught := &l.up, &l.down, func() {}
	if probe != nil {
		upCount, downCount, caught = new(counters), new(counters), probe.caught
	}
	var err error
	if c.up, err = c.addGate("upstream", upCount, caught, up); err != nil {
		return nil, err
	}
	if c.down, err = c.addGate("downstream", downCount, caught, down); err != nil {
		return nil, err
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// addGate makes toxiproxy put a gate into one of its pipelines.
func (c *conn) addGate(stream string, count *counters, caught func(), first orders) (*gate, error) {
	spec := fmt.Sprintf(`{"name":"gate %s","type":%q,"stream":%q}`, stream, gateType, stream)
	toxic, err := c.pipes.AddToxicJson(strings.NewReader(spec))
	if err != nil {
		return nil, fmt.Errorf("add a gate to toxiproxy: %w", err)
	}
	g := toxic.Toxic.(*gate)
	g.init(count, caught, first, c.kill)
	return g, nil
}
