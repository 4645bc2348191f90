package deploy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
)

// ports gives out loopback ports. On Linux no two programs that use this
// package get the same one, also while the server is down that has it.
//
// They are chosen outside the range that the kernel gives to outgoing
// connections: there a client that reconnects to a server that is down may be
// given the very port as its own, be connected to itself, and keep the server
// from coming back.
type ports struct {
	low, high int // [low, high)

	mu    sync.Mutex
	locks []net.Listener
	taken map[int]bool
}

func newPorts() *ports {
	p := &ports{low: 10000, high: 32768, taken: map[int]bool{}}
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		var first, last int
		if _, err := fmt.Sscan(string(b), &first, &last); err == nil {
			p.outside(first, last)
		}
	}
	return p
}

// outside moves the range out of [first, last] if there is room.
func (p *ports) outside(first, last int) {
	const low, end, enough = 10000, 65536, 1000
	switch {
	case first-low >= enough:
		p.low, p.high = low, min(first, 32768)
	case end-(last+1) >= enough:
		p.low, p.high = last+1, end
	}
}

// take returns a port that is free now.
func (p *ports) take() (int, error) {
	for range 1000 {
		port := p.low + rand.IntN(p.high-p.low)
		if p.lock(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found on 127.0.0.1 between %d and %d", p.low, p.high)
}

func (p *ports) lock(port int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[port] || portTaken(port) {
		return false
	}
	if runtime.GOOS == "linux" {
		// A name without a file, in the same network namespace as the
		// port, that is free again when this process ends.
		l, err := net.Listen("unix", fmt.Sprintf("@lockcheck/port/%d", port))
		if err != nil {
			return false
		}
		p.locks = append(p.locks, l)
	}
	p.taken[port] = true
	return true
}

func (p *ports) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, l := range p.locks {
		err = errors.Join(err, l.Close())
	}
	p.locks = nil
	return err
}

// portTaken reports whether somebody listens on a port, or could not.
func portTaken(port int) bool {
	l, err := net.Listen("tcp", address(port))
	if err == nil {
		l.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// portTakenError says that another program got hold of a server's port.
type portTakenError struct {
	server string
	port   int
	cause  error
}

func (e *portTakenError) Error() string {
	return fmt.Sprintf("port %d of %s is taken by another program: %v", e.port, e.server, e.cause)
}

func (e *portTakenError) Unwrap() error { return e.cause }
