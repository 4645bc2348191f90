package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// listener is a loopback port that stays ours also while nobody listens there, so
// that connections to it are refused meanwhile, and nobody else gets it.
type listener struct {
	mesh     *Mesh
	addr     string
	upstream *upstream
	identify Identify         // nil if it has one source
	links    map[string]*link // by source; not changed once it is open

	strangers atomic.Int64

	mu       sync.Mutex
	reserved int // file descriptor that keeps the port, -1 when removed
	ln       *net.TCPListener
}

func newListener(m *Mesh, up *upstream, host netip.Addr) (*listener, error) {
	fd, port, err := reserve(host)
	if err != nil {
		return nil, err
	}
	addr := netip.AddrPortFrom(host, port).String()
	return &listener{mesh: m, addr: addr, upstream: up, reserved: fd}, nil
}

// reserve binds a free port of an address, on the loopback interface or not. A socket that is bound and does not listen
// refuses connections; SO_REUSEPORT lets the same user listen beside it.
func reserve(host netip.Addr) (fd int, port uint16, err error) {
	syscall.ForkLock.RLock()
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, 0, fmt.Errorf("make a socket: %w", err)
	}
	fail := func(err error) (int, uint16, error) {
		unix.Close(fd)
		return -1, 0, fmt.Errorf("reserve a port of %s: %w", host, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fail(err)
	}
	if err := freeBind(fd); err != nil && !host.IsLoopback() {
		return fail(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: host.As4()}); err != nil {
		return fail(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fail(err)
	}
	return fd, uint16(name.(*unix.SockaddrInet4).Port), nil
}

// open accepts connections from now on, if it does not already.
func (ln *listener) open() error {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.ln != nil || ln.reserved < 0 {
		return nil
	}
	share := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			if err == nil {
				_ = freeBind(int(fd)) // the address may come later, and without this it must be there
			}
		}); e != nil {
			return e
		}
		return err
	}}
	l, err := share.Listen(context.Background(), "tcp4", ln.addr)
	if err != nil {
		return err
	}
	ln.ln = l.(*net.TCPListener)
	ln.mesh.alive.Go(func() { ln.accept(l.(*net.TCPListener)) })
	return nil
}

// shut refuses connections from now on.
func (ln *listener) shut() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.ln != nil {
		ln.ln.Close()
		ln.ln = nil
	}
}

// remove gives the port back.
func (ln *listener) remove() error {
	ln.shut()
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.reserved < 0 {
		return nil
	}
	err := unix.Close(ln.reserved)
	ln.reserved = -1
	return err
}

func (ln *listener) accept(l *net.TCPListener) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return // shut
		}
		ln.mesh.alive.Go(func() { ln.mesh.serve(ln, c) })
	}
}
