package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// maxLine is the longest line that a client may write.
const maxLine = 1 << 20

// drainTimeout is how long the output of a process that has ended is still
// read, in case somebody else keeps its pipe open.
const drainTimeout = time.Second

// Options say which program to run as a client.
type Options struct {
	Name     string   // of the client in the history: "A"
	Command  []string // program and arguments
	Dir      string   // "" is the present one
	Env      []string // in addition to the harness's own
	Stderr   string   // file that gets the program's standard error; "" drops it
	Recorder *history.Recorder
	// Space is put before the names of locks on their way to the program, and is
	// taken off again: histories do not have it.
	Space string
	// Start starts the process, such as one that traces it first; nil means
	// cmd.Start. It runs on the thread that all children are bound to, see
	// guard.StartBy.
	Start func(cmd *exec.Cmd) error
}

// Proc is a client as the harness sees it: a process that is asked to do one
// operation at a time. It records invocations just before they are sent, and
// completions and loss notices when they are read, so that a delay between
// harness and client only shortens what a client is taken to claim.
//
// Its methods are safe for concurrent use.
type Proc struct {
	name   string
	space  string
	rec    *history.Recorder
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	lines  chan []byte   // requests that did not fit into the pipe
	late   atomic.Int32  // how many these are
	gone   chan struct{} // closed when nothing of the process is left and all events are recorded

	mu      sync.Mutex
	open    *Pending // the operation that is not answered yet
	last    int64    // ID of the last request
	notices int      // loss notices that may still come: one for each acquire
	err     error    // why the process is of no use any more
	closed  bool     // Close was called
}

// Pending is an operation that was invoked.
type Pending struct {
	request Request
	invoked history.Event
	done    chan struct{} // closed when event, response and err are set

	response Response
	event    history.Event
	err      error
}

// Hello is what a client says of itself when it is opened.
type Hello struct {
	Protocol     int
	Name         string
	Version      string
	Capabilities []string
}

// Can reports whether the client stated the capability.
func (h Hello) Can(capability string) bool { return slices.Contains(h.Capabilities, capability) }

// OpenOptions say what a client connects to.
type OpenOptions struct {
	Servers     []backends.Endpoint
	TTL         time.Duration // lease to ask for
	ResourceDSN string        // database of the resource when it is in Postgres
}

// ErrUnanswered says that a context ended before the client answered. The
// operation stays open: its completion is recorded if it comes.
var ErrUnanswered = errors.New("no answer yet")

// Start runs a client in a process group of its own. The caller closes it.
func Start(o Options) (*Proc, error) {
	if len(o.Command) == 0 {
		return nil, fmt.Errorf("start client %s: no command", o.Name)
	}
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Dir = o.Dir
	cmd.Env = append(os.Environ(), o.Env...)

	var childs []*os.File // this process's copies of the child's ends
	defer func() {
		for _, f := range childs {
			f.Close()
		}
	}()
	stdinR, stdinW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start client %s: %w", o.Name, err)
	}
	childs = append(childs, stdinR)
	stdoutR, stdoutW, err := os.Pipe()
	if err != nil {
		stdinW.Close()
		return nil, fmt.Errorf("start client %s: %w", o.Name, err)
	}
	childs = append(childs, stdoutW)
	cmd.Stdin, cmd.Stdout = stdinR, stdoutW
	if o.Stderr != "" {
		log, err := os.OpenFile(o.Stderr, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			stdinW.Close()
			stdoutR.Close()
			return nil, fmt.Errorf("start client %s: %w", o.Name, err)
		}
		childs = append(childs, log)
		cmd.Stderr = log
	}
	start := cmd.Start
	if o.Start != nil {
		start = func() error { return o.Start(cmd) }
	}
	if err := guard.StartBy(cmd, start); err != nil {
		stdinW.Close()
		stdoutR.Close()
		return nil, fmt.Errorf("start client %s: %w", o.Name, err)
	}
	p := &Proc{
		name:   o.Name,
		space:  o.Space,
		rec:    o.Recorder,
		cmd:    cmd,
		stdin:  stdinW,
		stdout: stdoutR,
		lines:  make(chan []byte, 2), // one operation and close
		gone:   make(chan struct{}),
	}
	go p.write()
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read()
	}()
	go p.reap(read)
	return p, nil
}

// Name returns the client's name in the history.
func (p *Proc) Name() string { return p.name }

// PIDs returns the processes of the client's group, its children included, or
// none if it has ended.
func (p *Proc) PIDs() ([]int, error) {
	select {
	case <-p.gone:
		return nil, nil
	default:
	}
	return guard.Tree(p.cmd.Process.Pid)
}

// Exited returns a channel that is closed when the process has ended, nothing
// of its group is left, and everything that it said is recorded.
func (p *Proc) Exited() <-chan struct{} { return p.gone }

// Err returns why the client is of no use any more: it ended by itself, or
// said something that is not in the protocol. It is nil while the client works,
// and stays nil if it was ended by Close.
func (p *Proc) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Open has the client connect to the servers. It is not an operation of the
// history.
func (p *Proc) Open(ctx context.Context, o OpenOptions) (Hello, error) {
	n, err := p.send(ctx, Request{
		F:           "open",
		Protocol:    Version,
		Process:     p.name,
		Servers:     o.Servers,
		TTL:         o.TTL.Milliseconds(),
		ResourceDSN: o.ResourceDSN,
	})
	if err != nil {
		return Hello{}, fmt.Errorf("open client %s: %w", p.name, err)
	}
	if _, err := n.Wait(ctx); err != nil {
		return Hello{}, fmt.Errorf("open client %s: %w", p.name, err)
	}
	r := n.response
	if r.Type != history.OK {
		return Hello{}, fmt.Errorf("open client %s: %s", p.name, or(r.Error, "it answered "+string(r.Type)))
	}
	if r.Protocol != Version {
		return Hello{}, fmt.Errorf("open client %s: it speaks protocol %d, wanted %d (see docs/client-protocol.md)", p.name, r.Protocol, Version)
	}
	return Hello{Protocol: r.Protocol, Name: r.Name, Version: r.Version, Capabilities: r.Capabilities}, nil
}

// Invoke records the invocation of an operation and sends it. The request is
// queued if the process does not read, as when it is frozen. Invoke fails,
// with nothing recorded, while another operation is open.
func (p *Proc) Invoke(ctx context.Context, r Request) (*Pending, error) {
	if r.F == "open" || r.F == "close" {
		return nil, fmt.Errorf("client %s: %s is not an operation", p.name, r.F)
	}
	n, err := p.send(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("client %s: %s: %w", p.name, r.F, err)
	}
	return n, nil
}

// Do invokes an operation and waits for its completion.
func (p *Proc) Do(ctx context.Context, r Request) (history.Event, error) {
	n, err := p.Invoke(ctx, r)
	if err != nil {
		return history.Event{}, err
	}
	return n.Wait(ctx)
}

func (p *Proc) send(ctx context.Context, r Request) (*Pending, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errors.New("it is closed")
	case p.err != nil:
		return nil, p.err
	case p.open != nil:
		return nil, fmt.Errorf("its %s (event %d) is not answered yet", p.open.request.F, p.open.invoked.Index)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	p.last++
	r.ID = p.last
	n := &Pending{request: r, done: make(chan struct{})}
	if operation(r.F) {
		e := history.Event{Process: p.name, Type: history.Invoke, F: r.F, Key: r.Key}
		if r.F == history.Write {
			e.Value = text(r.Value)
		}
		n.invoked = p.rec.Record(e)
		r.Op = n.invoked.Index
		if r.URL != "" {
			r.URL = fmt.Sprintf("%s&op=%d", r.URL, r.Op)
		}
	}
	p.open = n
	if r.F == history.Acquire {
		p.notices++
	}
	if r.Key != "" {
		r.Key = p.space + r.Key
	}
	p.queue(r)
	return n, nil
}

// queue writes a request into the pipe, or passes it to the writer if there is no room
// for it, as when the process has been frozen for long: so nobody waits, and in the
// usual case no other goroutine has to run first. The writer has room, since at
// most one operation is open, but for a process that answers what it has not read:
// what is dropped then is not answered either. Callers hold mu.
func (p *Proc) queue(r Request) {
	l := line(r)
	if p.late.Load() == 0 {
		l = l[p.fill(l):]
	}
	if len(l) == 0 {
		return
	}
	p.late.Add(1)
	select {
	case p.lines <- l:
	default:
		p.late.Add(-1)
	}
}

// fill writes as much of l as the pipe has room for, and returns how much that is. Of
// a process that has ended, that is all.
func (p *Proc) fill(l []byte) (n int) {
	raw, err := p.stdin.SyscallConn()
	if err != nil {
		return len(l)
	}
	err = raw.Write(func(fd uintptr) bool {
		var failed error
		n, failed = syscall.Write(int(fd), l)
		if failed == syscall.EAGAIN || failed == syscall.EINTR {
			n = 0
		} else if failed != nil {
			n = len(l) // its end is noticed where it is read
		}
		return true
	})
	if err != nil {
		return len(l)
	}
	return n
}

// operation reports whether requests of this kind are part of the history.
func operation(f string) bool { return f != "open" && f != "close" }

func line(r Request) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // a Request has nothing that can fail
	}
	return append(b, '\n')
}

func text(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string cannot fail
	return b
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// write passes on to the process what did not fit, however slowly it reads it.
func (p *Proc) write() {
	for {
		select {
		case l := <-p.lines:
			if _, err := p.stdin.Write(l); err != nil {
				// The process has closed its input or ended: what it said
				// last tells more, and its end is noticed where it is read.
				return
			}
			p.late.Add(-1)
		case <-p.gone:
			return
		}
	}
}

// read records what the process says, until it says nothing more.
func (p *Proc) read() {
	s := bufio.NewScanner(p.stdout)
	s.Buffer(make([]byte, 0, 4096), maxLine)
	for n := 1; s.Scan(); n++ {
		if err := p.answer(s.Bytes()); err != nil {
			p.fail(fmt.Errorf("line %d of client %s's output is wrong: %w: %s", n, p.name, err, excerpt(s.Bytes())))
			return
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		p.fail(fmt.Errorf("client %s wrote a line of more than %d bytes", p.name, maxLine))
	}
}

// excerpt quotes the beginning of a line.
func excerpt(l []byte) string {
	const most = 120
	if len(l) > most {
		return fmt.Sprintf("%q and %d bytes more", l[:most], len(l)-most)
	}
	return fmt.Sprintf("%q", l)
}

// answer records one line that the process wrote.
func (p *Proc) answer(l []byte) error {
	var r Response
	if err := json.Unmarshal(l, &r); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return errors.New("it is not JSON (only answers may go to standard output; write logs to standard error)")
		}
		return fmt.Errorf("it is no answer: %w", err)
	}
	if r.F == history.Lost && r.ID == 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.notices == 0 {
			return errors.New("it is a loss notice, but there were as many as acquires before")
		}
		p.notices--
		p.rec.Record(history.Event{Process: p.name, Type: history.Info, F: history.Lost, Key: strings.TrimPrefix(r.Key, p.space), Error: r.Error})
		return nil
	}
	switch r.Type {
	case history.OK, history.Fail, history.Info:
	default:
		return fmt.Errorf(`it has type %q, wanted "ok", "fail" or "info"`, r.Type)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil || p.open.request.ID != r.ID {
		if r.ID == p.last && p.closed {
			return nil // the answer to close
		}
		return fmt.Errorf("it answers request %d, which is not open", r.ID)
	}
	n := p.open
	if n.request.F == history.Check && r.Type == history.OK {
		var holds bool
		if json.Unmarshal(r.Value, &holds) != nil {
			return errors.New("the answer to a check has no value true or false")
		}
	}
	if r.TTL < 0 || r.Valid < 0 {
		return errors.New("lease_ms and valid_ms must not be negative")
	}
	p.complete(n, r, nil)
	return nil
}

// complete records the completion of the open operation. Callers hold mu.
func (p *Proc) complete(n *Pending, r Response, err error) {
	n.response, n.err = r, err
	if f := n.request.F; operation(f) {
		e := history.Event{Process: p.name, Type: r.Type, F: f, Key: n.request.Key, Error: r.Error}
		switch f {
		case history.Acquire, history.Renew:
			if r.Type == history.OK {
				e.Token = r.Token
				e.TTL = r.TTL * int64(time.Millisecond)
				if f == history.Acquire && e.TTL > 0 {
					// The client counts from when it read the request, and may
					// have waited since; the history's lease counts from the
					// grant, which was at some time until now.
					e.TTL = max(1, e.TTL-(p.rec.Now()-n.invoked.Time))
				}
				if r.Valid > 0 {
					// From the invocation on, which was before the client read
					// the request: so this is never later than it believes.
					e.Until = n.invoked.Time + r.Valid*int64(time.Millisecond)
				}
			}
		case history.Write:
			e.Value, e.Token = n.invoked.Value, r.Token
		case history.Read, history.Check:
			if r.Type == history.OK {
				e.Value = r.Value
			}
		}
		n.event = p.rec.Record(e)
	}
	p.open = nil
	close(n.done)
}

// fail gives the process up: it is ended, its open operation is unknown.
func (p *Proc) fail(err error) {
	p.mu.Lock()
	if p.err == nil && !p.closed {
		p.err = err
	}
	if p.open != nil {
		p.complete(p.open, Response{Type: history.Info, Error: err.Error()}, err)
	}
	p.mu.Unlock()
	p.kill()
}

// killTimeout is how long the kernel may take to end killed processes.
const killTimeout = 10 * time.Second

// kill ends the process and all that it started, frozen or not.
func (p *Proc) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	// What is left after this dies with the harness: the guard knows of it.
	_ = guard.Kill(ctx, p.cmd)
}

// reap waits for the process's end, ends what it left behind, and completes
// what it left open.
func (p *Proc) reap(read <-chan struct{}) {
	ended := p.cmd.Wait()
	// Members of its group that outlived it keep its number from being reused.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	guard.Forget(p.cmd)
	p.stdin.Close()
	p.stdout.SetReadDeadline(time.Now().Add(drainTimeout))
	<-read
	p.stdout.Close()

	why := "exit status 0"
	if ended != nil {
		why = ended.Error()
	}
	p.mu.Lock()
	switch {
	case p.closed || p.err != nil:
		if p.open != nil {
			err := fmt.Errorf("client %s: no answer before the run ended", p.name)
			p.complete(p.open, Response{Type: history.Info, Error: "no answer before the run ended"}, err)
		}
	default:
		p.err = fmt.Errorf("client %s ended by itself (%s)", p.name, why)
		if p.open != nil {
			p.complete(p.open, Response{Type: history.Info, Error: p.err.Error()}, p.err)
		}
	}
	p.mu.Unlock()
	close(p.gone)
}

// Close asks the process to end, waits for that until ctx ends, then kills its
// whole group, frozen or not. An operation without an answer becomes info. It
// returns Err: how the client had failed before. Closing again waits for the
// same end.
func (p *Proc) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed && p.err == nil {
		p.last++
		p.queue(Request{ID: p.last, F: "close"})
	}
	p.closed = true
	p.mu.Unlock()
	select {
	case <-p.gone:
	case <-ctx.Done():
		p.kill()
		<-p.gone
	}
	return p.Err()
}

// Wait waits for the completion of the operation and returns its event. The
// error wraps ErrUnanswered if ctx ended first; else, if there is one, it says
// why the process never answered, and the event is an info.
func (n *Pending) Wait(ctx context.Context) (history.Event, error) {
	select {
	case <-n.done:
		return n.event, n.err
	default:
	}
	select {
	case <-n.done:
		return n.event, n.err
	case <-ctx.Done():
		return history.Event{}, fmt.Errorf("%w to %s (event %d): %w", ErrUnanswered, n.request.F, n.invoked.Index, context.Cause(ctx))
	}
}

// Done returns a channel that is closed when the operation is completed.
func (n *Pending) Done() <-chan struct{} { return n.done }
