// Package disk makes the disk of single processes slow, failing or full while
// they run, without any privilege: neither the file system nor any other
// process is touched.
//
// A process that is started with a [Control] as a patch (see
// [github.com/lockcheck/lockcheck/internal/execstop]) has a seccomp filter that
// passes certain system calls to this program, which lets each go on at once,
// later, or answers it with an error. The filter stays with the process and
// with all that it forks and executes.
//
// What is intercepted is a system call: not O_DSYNC, not io_uring, and not the
// write-back of the kernel. A call that "fails" does so without being made, so
// what was written stays in the page cache; a real disk may lose it.
//
// If this program ends, the calls that it was asked about fail with ENOSYS.
// That is harmless, since servers don't outlive the harness.
package disk

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// MaxDelay is the longest delay of a sync.
const MaxDelay = time.Minute

// Options say what can be done to the disk later.
type Options struct {
	// Writes has writes intercepted too, which [Behaviour.Full] needs. Each
	// write to a file or a socket then costs a round trip to this program,
	// also while nothing is wrong.
	Writes bool
}

// Behaviour is how a disk behaves. The zero value is a healthy disk.
type Behaviour struct {
	// Delay holds each sync (fsync, fdatasync, sync_file_range, syncfs,
	// msync) for this long before it is made.
	Delay time.Duration
	// Fail is the error that each sync returns, without being made, after
	// Delay; 0 for none.
	Fail syscall.Errno
	// Full has each write to a regular file fail with ENOSPC, except to
	// standard output and error: nothing can be allocated any more, as on a
	// copy-on-write file system that is full.
	Full bool
}

// Counts says how many system calls were intercepted, since [New].
type Counts struct {
	Syncs   int64 // all
	Delayed int64 // of these
	Failed  int64 // of these
	Writes  int64 // to files and sockets
	Refused int64 // of these, for lack of space
}

// Control is the disk of the processes that were started with it. It may be
// used concurrently.
type Control struct {
	options Options

	mu        sync.Mutex
	behaviour Behaviour
	changed   chan struct{} // closed when behaviour is replaced
	held      *sync.WaitGroup
	listeners []*os.File
	ours      *os.File // the ends of a socket over which listeners come
	theirs    *os.File
	closed    bool
	serving   sync.WaitGroup

	syncs, delayed, failed, writes, refused atomic.Int64
}

// Set changes how the disk behaves. Calls that are being held go on at once,
// and Set returns when they do.
func (c *Control) Set(b Behaviour) error {
	if b.Delay < 0 || b.Delay > MaxDelay {
		return fmt.Errorf("delay of a sync by %v: it must be from 0 to %v", b.Delay, MaxDelay)
	}
	if b.Full && !c.options.Writes {
		return errors.New("a full disk: writes of these processes are not intercepted, since they were started without that option")
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return os.ErrClosed
	}
	held := c.replace(b)
	c.mu.Unlock()
	held.Wait()
	return nil
}

// replace sets the behaviour and releases what is held. The caller has locked
// c.mu, and waits after it has unlocked it.
func (c *Control) replace(b Behaviour) *sync.WaitGroup {
	held := c.held
	close(c.changed)
	c.behaviour, c.changed, c.held = b, make(chan struct{}), new(sync.WaitGroup)
	return held
}

// Counts returns what was intercepted so far.
func (c *Control) Counts() Counts {
	return Counts{c.syncs.Load(), c.delayed.Load(), c.failed.Load(), c.writes.Load(), c.refused.Load()}
}

// Close frees the control. It must be called after the processes have ended:
// what is intercepted in one that still runs fails with ENOSYS.
func (c *Control) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	held := c.replace(Behaviour{})
	files := append(c.listeners, c.ours, c.theirs)
	c.mu.Unlock()
	held.Wait()
	var errs []error
	for _, f := range files {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	c.serving.Wait()
	return errors.Join(errs...)
}
