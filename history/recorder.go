package history

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Recorder writes events to a file as they happen and is the only thing in a
// run that takes timestamps. It is safe for concurrent use.
//
// Events reach the operating system within a millisecond of being recorded, so
// what a killed harness recorded until then survives it. They are written by
// a goroutine of the recorder: a slow disk does not hold up the run, unless it
// falls behind by maxPending bytes.
type Recorder struct {
	start time.Time
	file  io.WriteCloser

	mu      sync.Mutex
	wake    *sync.Cond // pending has grown, or closed was set: for the writer
	room    *sync.Cond // pending was taken: for Record
	events  int64
	last    int64
	pending []byte // lines to be written
	err     error  // of the file
	invalid error  // first value that was not JSON
	closed  bool
	watch   []func(Event)

	written chan struct{} // closed when the writer has ended
}

const maxPending = 4 << 20

// Create starts a history in a new file at path; time 0 is now. The caller
// closes the recorder.
func Create(path string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	return newRecorder(f), nil
}

func newRecorder(f io.WriteCloser) *Recorder {
	r := &Recorder{
		start:   time.Now(),
		last:    -1,
		file:    f,
		written: make(chan struct{}),
	}
	r.wake, r.room = sync.NewCond(&r.mu), sync.NewCond(&r.mu)
	go r.write()
	return r
}

// write empties pending whenever something was put into it: many events share
// a system call when they come fast, a single one is not kept waiting.
func (r *Recorder) write() {
	defer close(r.written)
	var buf []byte
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for len(r.pending) == 0 {
			if r.closed {
				return
			}
			r.wake.Wait()
		}
		buf, r.pending = r.pending, buf[:0]
		r.room.Broadcast()
		if r.err != nil {
			continue // what follows a gap would look whole
		}
		r.mu.Unlock()
		_, err := r.file.Write(buf)
		r.mu.Lock()
		r.keep(err)
	}
}

func (r *Recorder) keep(err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
}

// firstErr returns the error to tell; r.mu is held.
func (r *Recorder) firstErr() error {
	if r.err != nil {
		return r.err
	}
	return r.invalid
}

// Watch calls f for every event recorded from now on, in order, from within
// Record: f must be quick and must not call the recorder.
func (r *Recorder) Watch(f func(Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = append(r.watch, f)
}

// Record stamps e with the next index and the present time, writes it, and
// returns it as written. A failure to write is kept for Err and Close, and
// nothing is written after it: the run goes on, and its end says that the
// history is incomplete. So is a value that is not JSON, but there only the
// value is left out.
func (r *Recorder) Record(e Event) Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.pending) > maxPending {
		r.room.Wait()
	}
	e.Index = r.events
	e.Time = max(int64(time.Since(r.start)), r.last+1)
	if r.closed {
		return e
	}
	r.events++
	r.last = e.Time
	before := len(r.pending)
	var err error
	r.pending, err = appendEvent(r.pending, &e)
	if err != nil {
		e.Value = nil
		if r.invalid == nil {
			r.invalid = err
		}
	}
	for _, f := range r.watch {
		f(e)
	}
	if before == 0 {
		r.wake.Signal()
	}
	return e
}

// Now returns the present time on the history's clock.
func (r *Recorder) Now() int64 { return int64(time.Since(r.start)) }

// Len returns the number of events recorded so far.
func (r *Recorder) Len() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events
}

// Err returns the first failure to write, if any.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.firstErr()
}

// Close writes what is pending and closes the file. It returns the first error
// met since Create, also when called again. Events recorded after Close are
// dropped.
func (r *Recorder) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.wake.Signal()
	r.mu.Unlock()
	<-r.written
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		r.keep(r.file.Close())
	}
	if err := r.firstErr(); err != nil {
		return fmt.Errorf("history is incomplete: %w", err)
	}
	return nil
}
