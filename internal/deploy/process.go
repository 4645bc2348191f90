package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/internal/guard"
)

// poll is how often a server is asked whether it serves.
const poll = time.Millisecond

// process is a server that is a process.
type process struct {
	node    *Node
	program program
	dir     string
	ran     bool // it has been prepared before

	mu  sync.Mutex
	run *run // nil if it is down
}

// run is a process from its start to its end.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone and waited for

	// under mu of process
	up     bool  // it has served
	killed bool  // by us
	ended  bool  // and err is set
	err    error // how, nil for status 0
}

func (p *process) url() string { return p.program.url() }

func (p *process) pids() ([]int, error) {
	p.mu.Lock()
	r := p.run
	p.mu.Unlock()
	if r == nil {
		return nil, nil
	}
	return guard.Tree(r.cmd.Process.Pid)
}

func (p *process) start(ctx context.Context) error {
	name := p.node.Name()
	if _, err := os.Stat(p.dir); errors.Is(err, os.ErrNotExist) {
		if err := p.program.prepare(ctx, p.ran); err != nil {
			// Half a folder would be taken for a whole one.
			return errors.Join(fmt.Errorf("prepare %s: %w", name, err), p.wipe())
		}
	}
	p.ran = true
	r, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	// A server that is gone is not waited for, whoever is in its place.
	living, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.done:
			cancel()
		case <-living.Done():
		}
	}()
	for {
		err := p.program.ready(living, r.cmd.Process.Pid)
		if err == nil {
			return p.serves(r)
		}
		select {
		case <-r.done:
			return p.died(r)
		case <-ctx.Done():
			cause := context.Cause(ctx)
			err := fmt.Errorf("start %s: not ready: %w (last: %v)%s", name, cause, err, tail(p.node.log))
			return errors.Join(err, p.kill(context.WithoutCancel(ctx)))
		case <-time.After(poll):
		}
	}
}

// launch starts the process.
func (p *process) launch() (*run, error) {
	log, err := os.OpenFile(p.node.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd, err := p.program.command()
	if err != nil {
		return nil, err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	start := cmd.Start
	if by := p.node.local.options.Start; by != nil {
		start = func() error { return by(p.node.Name(), cmd) }
	}
	if err := guard.StartBy(cmd, start); err != nil {
		return nil, err
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	go p.reap(r)
	return r, nil
}

// reap waits for the end of a process.
func (p *process) reap(r *run) {
	err := r.cmd.Wait()
	// What the process leaves behind would go on in its place.
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	err = errors.Join(err, guard.Kill(ctx, r.cmd))
	guard.Forget(r.cmd)
	err = errors.Join(err, p.program.ended())

	p.mu.Lock()
	defer p.mu.Unlock()
	r.ended, r.err = true, err
	if p.run == r {
		p.run = nil
	}
	if r.up && !r.killed {
		p.node.fail(fmt.Errorf("%s ended by itself: %s%s", p.node.Name(), status(r), tail(p.node.log)))
	}
	close(r.done)
}

// serves notes that the server is up, unless it has ended since.
func (p *process) serves(r *run) error {
	p.mu.Lock()
	r.up = !r.ended
	p.mu.Unlock()
	if !r.up {
		return p.died(r)
	}
	return nil
}

// died says why a server ended before it served.
func (p *process) died(r *run) error {
	err := fmt.Errorf("%s ended while it started: %s%s", p.node.Name(), status(r), tail(p.node.log))
	for _, port := range p.program.listens() {
		if portTaken(port) {
			return &portTakenError{server: p.node.Name(), port: port, cause: err}
		}
	}
	return err
}

func status(r *run) string {
	if r.err == nil {
		return "exit status 0"
	}
	return r.err.Error()
}

func (p *process) kill(ctx context.Context) error {
	p.mu.Lock()
	r := p.run
	if r != nil {
		r.killed = true
	}
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	if err := guard.Kill(ctx, r.cmd); err != nil {
		return err
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *process) wipe() error { return os.RemoveAll(p.dir) }

const (
	tailLines = 10
	tailBytes = 4096
)

// tail returns the last lines of a log, to be put at the end of a message.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, err = f.Seek(max(0, size-tailBytes), io.SeekStart)
		if err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, tailBytes))
	text := strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
	if err != nil || text == "" {
		return fmt.Sprintf("; nothing is in %s", path)
	}
	lines := strings.Split(text, "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Sprintf("; the end of %s:\n    %s", path, strings.Join(lines, "\n    "))
}

// output runs a program to its end and returns what it wrote to its standard
// output and error, which are part of the error too.
func output(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := guard.Start(cmd); err != nil {
		return "", err
	}
	defer guard.Forget(cmd)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
		}
		return out.String(), nil
	case <-ctx.Done():
		err := guard.Kill(context.WithoutCancel(ctx), cmd)
		<-done
		return "", errors.Join(context.Cause(ctx), err)
	}
}
