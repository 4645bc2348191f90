package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Recorder writes events to a file as they happen and is the only thing in a
// run that takes timestamps. It is safe for concurrent use.
//
// Events reach the operating system within a millisecond of being recorded, so
// what a killed harness recorded until then survives it.
type Recorder struct {
	start time.Time

	mu     sync.Mutex
	events int64
	last   int64
	buf    *bufio.Writer
	enc    *json.Encoder
	err    error
	closed bool
	watch  []func(Event)

	dirty   chan struct{} // capacity 1: something is in buf
	done    chan struct{} // closed by Close
	flushed chan struct{} // closed when the flusher has ended
	file    *os.File
}

// Create starts a history in a new file at path; time 0 is now. The caller
// closes the recorder.
func Create(path string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	r := &Recorder{
		start:   time.Now(),
		last:    -1,
		buf:     bufio.NewWriterSize(f, 1<<16),
		dirty:   make(chan struct{}, 1),
		done:    make(chan struct{}),
		flushed: make(chan struct{}),
		file:    f,
	}
	r.enc = json.NewEncoder(r.buf)
	r.enc.SetEscapeHTML(false)
	go r.flush()
	return r, nil
}

// flush empties the buffer whenever something was put into it: many events
// share a system call when they come fast, a single one is not kept waiting.
func (r *Recorder) flush() {
	defer close(r.flushed)
	for {
		select {
		case <-r.dirty:
		case <-r.done:
			return
		}
		r.mu.Lock()
		r.keep(r.buf.Flush())
		r.mu.Unlock()
	}
}

func (r *Recorder) keep(err error) {
	if err != nil && r.err == nil {
		r.err = err
	}
}

// Watch calls f for every event recorded from now on, in order, from within
// Record: f must be quick and must not call the recorder.
func (r *Recorder) Watch(f func(Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = append(r.watch, f)
}

// Record stamps e with the next index and the present time, writes it, and
// returns it as written. A failure to write is kept for Err and Close: the run
// goes on, and its end says that the history is incomplete.
func (r *Recorder) Record(e Event) Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Index = r.events
	e.Time = max(int64(time.Since(r.start)), r.last+1)
	if r.closed {
		return e
	}
	r.events++
	r.last = e.Time
	r.keep(r.enc.Encode(e))
	for _, f := range r.watch {
		f(e)
	}
	select {
	case r.dirty <- struct{}{}:
	default:
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
	return r.err
}

// Close writes what is buffered and closes the file. It returns the first
// error met since Create. Events recorded after Close are dropped.
func (r *Recorder) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return r.err
	}
	r.closed = true
	r.keep(r.buf.Flush())
	r.keep(r.file.Close())
	err := r.err
	r.mu.Unlock()
	close(r.done)
	<-r.flushed
	if err != nil {
		return fmt.Errorf("history is incomplete: %w", err)
	}
	return nil
}

// ErrTruncated says that a history ends in the middle of a line, as it does
// when the harness was killed while it wrote.
var ErrTruncated = errors.New("last line is cut off")
