package proxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// A Probe is a connection of the mesh's own through a link: it dials the address
// that the link's source dials, and passes the same rules and the same toxics
// as real traffic, but leads to an echo server in the mesh and not to the
// target. So it shows what the link does to a connection, without a target
// that might be down, slow, or disturbed by it. A probe is not for concurrent
// use.
type Probe struct {
	link   Link
	mesh   *Mesh
	socket net.Conn
	seq    uint64
	sentAt time.Time

	signal chan struct{} // of capacity 1: something below changed
	mu     sync.Mutex
	taken  bool // the proxy has it
	queued bool // it waits for the link to heal
	conn   *conn
	echoed uint64 // last number that came back
	took   time.Duration
	failed error // the connection has ended
	closed bool
}

// Fate is what became of what a probe sent.
type Fate int

const (
	Answered    Fate = iota // it came back
	StoppedUp               // it is held, or dropped, on its way up
	StoppedDown             // it arrived, and its echo is held, or dropped
	Waiting                 // its connection waits for the link to heal
	CutOff                  // its connection was refused or reset
)

func (f Fate) String() string {
	return [...]string{"answered", "stopped on its way", "its answer stopped on its way", "a connection that waits", "a connection that was cut"}[f]
}

// Probe opens a probe. A refusal is an error that Is syscall.ECONNREFUSED or
// ECONNRESET. The caller must Close it.
func (m *Mesh) Probe(ctx context.Context, l Link) (*Probe, error) {
	m.mu.Lock()
	found, err := m.find(l)
	if err != nil {
		m.mu.Unlock()
		return nil, fmt.Errorf("probe: %w", err)
	}
	addr := found.listeners[0].addr
	m.mu.Unlock()

	p := &Probe{link: l, mesh: m, signal: make(chan struct{}, 1)}
	// From another address of this machine, such as that of a bridge to containers, an
	// engine's rules would have it come from somewhere else than it went.
	dialer := net.Dialer{Timeout: dialTimeout, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	m.dialing.Lock() // so that the proxy finds it in probes
	p.socket, err = dialer.DialContext(ctx, "tcp4", addr)
	if err == nil {
		m.probes[p.key()] = p
	}
	m.dialing.Unlock()
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", l, err)
	}
	go p.listen()
	if _, err := p.until(ctx, func() (Fate, bool) { return CutOff, p.taken }); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// probeKey is the two addresses of a connection. One is not enough: connections
// to different listeners may have the same port at the near end.
type probeKey struct {
	from, to string
}

func (p *Probe) key() probeKey {
	return probeKey{p.socket.LocalAddr().String(), p.socket.RemoteAddr().String()}
}

// probeOf returns the probe that opened a connection, if one did.
func (m *Mesh) probeOf(client net.Conn) *Probe {
	m.dialing.Lock()
	defer m.dialing.Unlock()
	key := probeKey{client.RemoteAddr().String(), client.LocalAddr().String()}
	p := m.probes[key]
	delete(m.probes, key)
	if p != nil {
		p.update(func() { p.taken = true })
	}
	return p
}

func (p *Probe) update(change func()) {
	p.mu.Lock()
	change()
	p.mu.Unlock()
	p.caught()
}

// caught, waits and reached are how the proxy tells what happens.
func (p *Probe) caught() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}
func (p *Probe) waits() { p.update(func() { p.queued = true }) }
func (p *Probe) reached(c *conn) {
	p.update(func() {
		p.conn, p.queued = c, false
		if p.closed {
			c.abort()
		}
	})
}

const frameHeader = 12 // length of the frame, its number

// listen reads what comes back.
func (p *Probe) listen() {
	in := bufio.NewReader(p.socket)
	var head [frameHeader]byte
	for {
		_, err := io.ReadFull(in, head[:])
		if err == nil {
			_, err = in.Discard(int(binary.BigEndian.Uint32(head[:])))
		}
		now := time.Now()
		if err != nil {
			p.update(func() { p.failed = err })
			return
		}
		p.update(func() {
			p.echoed = binary.BigEndian.Uint64(head[4:])
			p.took = now.Sub(p.sentAt)
		})
	}
}

// Try sends payload and returns as soon as its fate is known: when it came back,
// or when the proxy has stopped it.
func (p *Probe) Try(ctx context.Context, payload []byte) (Fate, error) {
	p.mu.Lock()
	var up, down int64
	if p.conn != nil {
		up, down = p.conn.up.stopped.Load(), p.conn.down.stopped.Load()
	}
	p.seq++
	p.sentAt = time.Now()
	p.mu.Unlock()

	frame := make([]byte, frameHeader, frameHeader+len(payload))
	binary.BigEndian.PutUint32(frame, uint32(len(payload)))
	binary.BigEndian.PutUint64(frame[4:], p.seq)
	if deadline, ok := ctx.Deadline(); ok {
		p.socket.SetWriteDeadline(deadline)
	}
	if _, err := p.socket.Write(append(frame, payload...)); err != nil {
		if IsCut(err) {
			return CutOff, nil
		}
		return CutOff, fmt.Errorf("probe %s: %w", p.link, err)
	}
	fate, err := p.until(ctx, func() (Fate, bool) {
		switch {
		case p.echoed == p.seq:
			return Answered, true
		case p.queued:
			return Waiting, true
		case p.conn != nil && p.conn.up.stopped.Load() > up:
			return StoppedUp, true
		case p.conn != nil && p.conn.down.stopped.Load() > down:
			return StoppedDown, true
		}
		return 0, false
	})
	if IsCut(err) {
		return CutOff, nil
	}
	return fate, err
}

// Delivered waits until everything that was sent has come back.
func (p *Probe) Delivered(ctx context.Context) error {
	_, err := p.until(ctx, func() (Fate, bool) { return Answered, p.echoed == p.seq })
	return err
}

// Took returns how long the last answer took, from before it was asked for.
func (p *Probe) Took() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took
}

// Ended waits until the connection has ended, and tells how.
func (p *Probe) Ended(ctx context.Context) error {
	_, err := p.until(ctx, func() (Fate, bool) { return CutOff, false })
	return err
}

// Pieces returns in how many writes what the probe sent went on to the target, and
// what came back to the probe.
func (p *Probe) Pieces() (up, down int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return 0, 0
	}
	return p.conn.target.writes.Load(), p.conn.client.writes.Load()
}

// until waits until known says so, the connection ends, or ctx does.
func (p *Probe) until(ctx context.Context, known func() (Fate, bool)) (Fate, error) {
	for {
		p.mu.Lock()
		fate, ok := known()
		failed := p.failed
		p.mu.Unlock()
		if ok {
			return fate, nil
		}
		if failed != nil {
			return CutOff, fmt.Errorf("probe %s: %w", p.link, failed)
		}
		select {
		case <-p.signal:
		case <-ctx.Done():
			return CutOff, fmt.Errorf("probe %s: %w", p.link, ctx.Err())
		}
	}
}

// IsCut tells whether an error of a probe says that the link refused or ended
// its connection.
func IsCut(err error) bool {
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}

// Close ends the probe.
func (p *Probe) Close() {
	p.mesh.dialing.Lock()
	delete(p.mesh.probes, p.key())
	p.mesh.dialing.Unlock()
	p.socket.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.conn != nil {
		p.conn.abort() // a cut would hold the end of its streams
	}
}

// sink is the echo server that probes lead to.
type sink struct {
	ln   net.Listener
	addr string
	busy sync.WaitGroup
}

func newSink() (*sink, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{ln: ln, addr: ln.Addr().String()}
	s.busy.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			// Ends when the proxy closes its end, which it does for all.
			s.busy.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	return s, nil
}

func (s *sink) close() error {
	err := s.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
