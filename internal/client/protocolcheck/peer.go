package protocolcheck

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// Limits of what a client may say before it is given up.
const (
	maxLine  = 1 << 20
	maxStray = 100 // lines that nobody asked for
)

// killTimeout is how long the kernel may take to end killed processes.
const killTimeout = 10 * time.Second

// peer is a client that is talked to line by line, whatever it says. It is used
// by one goroutine.
type peer struct {
	name     string
	cmd      *exec.Cmd
	stdin    *os.File
	stdout   *os.File
	stderr   string // file
	patience time.Duration
	lines    chan []byte
	exited   chan struct{} // closed when the process has ended and nothing of its group is left

	can   client.Hello
	ttl   time.Duration // that it was asked to ask for
	last  int64         // id of the last request
	stray int

	mu     sync.Mutex
	rest   []byte // what it wrote behind the last newline
	broken error  // why its output is not read any more
	status error  // with which it exited
	left   bool   // it left processes of its group behind
}

// faulty is what a client did against the protocol. A fatal fault is one after
// which it cannot be talked to.
type faulty struct {
	why      string
	messages []string // the lines concerned
	fatal    bool
}

func (f *faulty) Error() string { return f.why }

func start(name string, o Options) (*peer, error) {
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	p := &peer{
		name: name, cmd: cmd, stderr: filepath.Join(o.Dir, "client-"+name+".log"), patience: o.Patience,
		lines: make(chan []byte, maxStray), exited: make(chan struct{}),
	}
	stdinR, stdinW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdinR.Close()
	stdoutR, stdoutW, err := os.Pipe()
	if err != nil {
		stdinW.Close()
		return nil, err
	}
	defer stdoutW.Close()
	log, err := os.OpenFile(p.stderr, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		defer log.Close()
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdinR, stdoutW, log
		err = guard.Start(cmd)
	}
	if err != nil {
		stdinW.Close()
		stdoutR.Close()
		return nil, err
	}
	p.stdin, p.stdout = stdinW, stdoutR
	go p.read()
	go p.reap()
	return p, nil
}

// reap waits for the process's end, and ends what it left behind.
func (p *peer) reap() {
	status := p.cmd.Wait()
	left := false
	for range 50 { // what it has just killed itself may take a moment
		// Members of its group keep its number from being reused.
		if left = syscall.Kill(-p.cmd.Process.Pid, 0) == nil; !left {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if left {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	guard.Forget(p.cmd)
	p.mu.Lock()
	p.status, p.left = status, left
	p.mu.Unlock()
	close(p.exited)
}

// read passes lines on until there are no more, or too many.
func (p *peer) read() {
	defer close(p.lines)
	in := bufio.NewReader(p.stdout)
	for n := 0; ; n++ {
		var line []byte
		for {
			b, err := in.ReadByte()
			if err != nil {
				return
			}
			if b == '\n' {
				break
			}
			line = append(line, b)
			p.mu.Lock()
			p.rest = line
			p.mu.Unlock()
			if len(line) > maxLine {
				p.giveUp(fmt.Errorf("it wrote a line of more than %d bytes", maxLine))
				return
			}
		}
		p.mu.Lock()
		p.rest = nil
		p.mu.Unlock()
		select {
		case p.lines <- line:
		default:
			p.giveUp(fmt.Errorf("it wrote more than %d lines that nobody asked for", maxStray))
			return
		}
	}
}

func (p *peer) giveUp(why error) {
	p.mu.Lock()
	p.broken = why
	p.mu.Unlock()
}

// send writes a request. More are fields that the protocol does not know.
func (p *peer) send(r client.Request, more map[string]any) (string, error) {
	p.last++
	r.ID = p.last
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	if len(more) > 0 {
		fields, err := json.Marshal(more)
		if err != nil {
			return "", err
		}
		b = append(append(b[:len(b)-1], ','), fields[1:]...)
	}
	p.stdin.SetWriteDeadline(time.Now().Add(p.patience)) // pipes can
	if _, err := p.stdin.Write(append(b, '\n')); err != nil {
		return string(b), p.ended(string(b), fmt.Sprintf("it does not read its standard input (%v)", err))
	}
	return string(b), nil
}

// ended is the fault of a client that said nothing: why, and what is known.
func (p *peer) ended(request, why string) *faulty {
	f := &faulty{fatal: true, messages: []string{"→ " + request}}
	p.mu.Lock()
	rest, broken := p.rest, p.broken
	p.mu.Unlock()
	exited := false
	select {
	case <-p.exited:
		exited = true
	default:
	}
	switch {
	case broken != nil:
		f.why = broken.Error()
	case len(rest) > 0:
		f.why = "it wrote no newline at the end of its answer: an answer is one line, which is flushed"
	case exited:
		f.why = "it exited (" + p.how() + ")"
	default:
		f.why = why
	}
	if len(rest) > 0 {
		f.messages = append(f.messages, "← "+excerpt(rest))
	}
	if tail := p.complaint(); tail != "" {
		f.messages = append(f.messages, "stderr: "+tail)
	}
	return f
}

// how says how the process ended.
func (p *peer) how() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == nil {
		return "exit status 0"
	}
	return p.status.Error()
}

// complaint is the last line of the client's standard error.
func (p *peer) complaint() string {
	b, err := os.ReadFile(p.stderr)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return excerpt([]byte(lines[len(lines)-1]))
}

// exchange is a request with its answer.
type exchange struct {
	request string
	line    string
	client.Response
	took time.Duration
	lost bool // a loss notice came before the answer
}

func (e *exchange) messages() []string { return []string{"→ " + e.request, "← " + e.line} }

// ask sends a request and waits for its answer. Stray is called with what comes
// and is not that answer.
func (p *peer) ask(ctx context.Context, r client.Request, more map[string]any, stray func(*faulty)) (*exchange, error) {
	begin := time.Now()
	request, err := p.send(r, more)
	if err != nil {
		return nil, err
	}
	return p.await(ctx, r, request, begin, stray)
}

func (p *peer) await(ctx context.Context, r client.Request, request string, begin time.Time, stray func(*faulty)) (*exchange, error) {
	e := &exchange{request: request}
	patience := p.patience + time.Duration(r.Wait)*time.Millisecond
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				p.awaitExit(time.Second)
				return nil, p.ended(request, "it closed its standard output")
			}
			e.line, e.took = excerpt(line), time.Since(begin)
			done, err := p.parse(e, line, r)
			if err == nil && done {
				return e, nil
			}
			if err == nil {
				e.lost = true
				continue
			}
			stray(&faulty{why: err.Error(), messages: e.messages()})
			if done { // an answer, though a wrong one
				return e, nil
			}
			if p.stray++; p.stray > maxStray {
				return nil, &faulty{why: fmt.Sprintf("it wrote more than %d lines that nobody asked for", maxStray), messages: e.messages(), fatal: true}
			}
		case <-timeout.C:
			return nil, p.ended(request, fmt.Sprintf("it gave no answer for %v: does it flush its output after each line?", patience))
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// parse reads a line that should be the answer to r. It returns false if it is
// another: a loss notice if err is nil.
func (p *peer) parse(e *exchange, line []byte, r client.Request) (answer bool, err error) {
	if !json.Valid(line) {
		return false, errors.New("it wrote a line that is not JSON: only answers may go to standard output, logs go to standard error")
	}
	var head struct {
		ID   *json.Number `json:"id"`
		Type history.Type `json:"type"`
		F    string       `json:"f"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return false, fmt.Errorf("it wrote a line that is no answer: %w", err)
	}
	if head.F == history.Lost && head.ID == nil {
		return false, client.Validate(client.LostNote, line)
	}
	if head.ID == nil {
		return false, errors.New("its line has no id: an answer repeats the id of its request")
	}
	id, err := head.ID.Int64()
	switch {
	case err != nil:
		return false, fmt.Errorf("its id is %s, not the number of a request", *head.ID)
	case id < p.last && id > 0:
		return false, fmt.Errorf("it answered request %d a second time", id)
	case id != p.last:
		return false, fmt.Errorf("it answered request %d, and was asked request %d: an answer repeats the id of its request", id, p.last)
	}
	switch head.Type {
	case history.OK, history.Fail, history.Info:
	default:
		return true, fmt.Errorf(`its answer has the type %q, not "ok", "fail" or "info"`, head.Type)
	}
	if err := client.Validate(client.AnswerTo(r.F, head.Type), line); err != nil {
		return true, fmt.Errorf("its answer has a field of a wrong kind: %s", reason(err))
	}
	if err := json.Unmarshal(line, &e.Response); err != nil {
		return true, fmt.Errorf("its answer cannot be read: %w", err)
	}
	return true, nil
}

// reason is the end of a validation error, without the way there.
func reason(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, "/properties/"); i >= 0 {
		return s[i+len("/properties/"):]
	}
	if i := strings.LastIndex(s, ": "); i >= 0 && strings.Contains(s, "required") {
		return s[strings.LastIndex(s[:i], ": ")+1:]
	}
	return s
}

// awaitExit waits for the end of the process.
func (p *peer) awaitExit(patience time.Duration) bool {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.exited:
		return true
	case <-timeout.C:
		return false
	}
}

// Name and PIDs make it something that can be frozen.
func (p *peer) Name() string { return p.name }

func (p *peer) PIDs() ([]int, error) { return guard.Tree(p.cmd.Process.Pid) }

// end kills the client if it still runs, and returns what it wrote that was not
// read.
func (p *peer) end() (unread [][]byte) {
	p.stdin.Close()
	select {
	case <-p.exited:
	default:
		ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
		defer cancel()
		_ = guard.Kill(ctx, p.cmd) // what is left after this dies with this process
		<-p.exited
	}
	p.stdout.SetReadDeadline(time.Now().Add(time.Second)) // somebody else may keep the pipe
	for line := range p.lines {
		unread = append(unread, line)
	}
	p.stdout.Close()
	return unread
}

// excerpt quotes a line that may be anything.
func excerpt(line []byte) string {
	const most = 200
	line = bytes.ToValidUTF8(line, []byte("?"))
	more := ""
	if len(line) > most {
		more = fmt.Sprintf(" ... and %d bytes more", len(line)-most)
		line = bytes.ToValidUTF8(line[:most], nil)
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, string(line)) + more
}
