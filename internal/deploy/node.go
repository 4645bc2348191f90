package deploy

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockcheck/lockcheck/backends"
)

// Node is a server that was started. Its methods may be called concurrently;
// Kill and Restart take turns.
type Node struct {
	local    *Local
	server   backends.Server
	software Software
	log      string
	version  string

	ops  sync.Mutex // one Kill or Restart at a time
	body body

	exit   sync.Once
	exited chan struct{}
	cause  error // written before exited is closed
}

// body is how a server runs: as a process, or inside the harness.
type body interface {
	start(context.Context) error // returns when it serves
	kill(context.Context) error  // returns when it is gone; it may be so already
	wipe() error                 // forgets its data; it does not run
	url() string
	pids() ([]int, error)
}

// program is what runs there; nil if that is inside the harness.
func (n *Node) program() program {
	switch b := n.body.(type) {
	case *process:
		return b.program
	case *container:
		return b.program
	}
	return nil
}

// Name returns the server's name, unique in the run.
func (n *Node) Name() string { return n.server.Name }

// Software returns what runs there: "redis".
func (n *Node) Software() string { return n.software.Name }

// Version returns the version of what runs there, as it says itself; "" if it
// is part of the harness.
func (n *Node) Version() string { return n.version }

// Endpoint returns how clients reach the server. It stays the same over
// restarts.
func (n *Node) Endpoint() backends.Endpoint {
	return backends.Endpoint{Name: n.Name(), Software: n.Software(), URL: n.body.url()}
}

// Log returns the path of the file that has what the server wrote to its
// standard output and error, all its restarts in a row.
func (n *Node) Log() string { return n.log }

// PIDs returns the processes of the server: its own and all that descend from
// it. There are none while it is down. It is an error to ask it of a server
// that runs inside the harness.
func (n *Node) PIDs() ([]int, error) { return n.body.pids() }

// Kill ends the server as SIGKILL does, all its processes, and returns when
// they are gone. A server that is down already stays so.
func (n *Node) Kill(ctx context.Context) error {
	ctx, done, err := n.local.begin(ctx)
	if err != nil {
		return fmt.Errorf("kill %s: %w", n.Name(), err)
	}
	defer done()
	return n.kill(ctx)
}

func (n *Node) kill(ctx context.Context) error {
	n.ops.Lock()
	defer n.ops.Unlock()
	if n.body == nil {
		return nil // it was never started
	}
	if err := n.body.kill(ctx); err != nil {
		return fmt.Errorf("kill %s: %w", n.Name(), err)
	}
	return nil
}

// Restart kills the server if it runs and starts it again on the same ports,
// with the data that it had on disk or with none. It returns when the server
// serves. A member of an etcd cluster that lost its data joins anew, which
// needs a majority of the others.
func (n *Node) Restart(ctx context.Context, keepData bool) error {
	ctx, done, err := n.local.begin(ctx)
	if err != nil {
		return fmt.Errorf("restart %s: %w", n.Name(), err)
	}
	defer done()
	if err := n.kill(ctx); err != nil {
		return err
	}
	n.ops.Lock()
	defer n.ops.Unlock()
	if !keepData {
		if err := n.body.wipe(); err != nil {
			return fmt.Errorf("remove the data of %s: %w", n.Name(), err)
		}
	}
	return n.body.start(ctx)
}

// Exited returns a channel that is closed when the server ends by itself, that
// is, after it has started and without Kill, Restart or Close.
func (n *Node) Exited() <-chan struct{} { return n.exited }

// Err says how the server ended by itself, with the last lines of its log; nil
// before Exited is closed.
func (n *Node) Err() error {
	select {
	case <-n.exited:
		return n.cause
	default:
		return nil
	}
}

func (n *Node) fail(cause error) {
	n.exit.Do(func() {
		n.cause = cause
		close(n.exited)
	})
}
