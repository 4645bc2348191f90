package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/lockcheck/lockcheck/internal/execstop"
)

// Listener waits for the keeper of one server's container, which comes anew each time
// that the container starts.
type Listener struct {
	unix *net.UnixListener
	dir  *os.File
}

// Listen makes the socket. Whoever sees the file may connect: users in containers are
// others than here. The caller closes it.
func Listen(path string) (*Listener, error) {
	// By way of its folder: the path of a socket must be short.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: short, Net: network})
	if err == nil {
		if err = os.Chmod(path, 0o666); err != nil {
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %s: %w", path, err), dir.Close())
	}
	return &Listener{l, dir}, nil
}

// Close removes the socket.
func (l *Listener) Close() error { return errors.Join(l.unix.Close(), l.dir.Close()) }

// Accept waits for the keeper until the context ends.
func (l *Listener) Accept(ctx context.Context) (*Keeper, error) {
	defer context.AfterFunc(ctx, func() { _ = l.unix.SetDeadline(time.Unix(1, 0)) })()
	conn, err := l.unix.AcceptUnix()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("wait for the keeper: %w", err)
	}
	k := &Keeper{conn: conn, reports: make(chan report, reportsOfAStart), gone: make(chan struct{})}
	if k.pid, err = peer(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go k.read()
	return k, nil
}

// Keeper is a keeper as the harness has it. Start is called again only when the server
// that it started has ended; Kill may be called at any time.
type Keeper struct {
	conn    *net.UnixConn
	pid     int
	reports chan report
	gone    chan struct{}
}

// reportsOfAStart are that it was started, and that it has ended.
const reportsOfAStart = 2

// PID returns the keeper's process, as this machine numbers it.
func (k *Keeper) PID() int { return k.pid }

// Gone returns a channel that is closed when the keeper has gone.
func (k *Keeper) Gone() <-chan struct{} { return k.gone }

// Start starts the server with patches applied, and its output appended to a log. The
// channel tells once how it ended.
func (k *Keeper) Start(ctx context.Context, log *os.File, patches []execstop.Portable) (<-chan error, error) {
	o := order{Start: &start{}}
	files := []*os.File{log}
	for _, p := range patches {
		kind, option := p.Kind()
		own := p.Files()
		o.Start.Patches = append(o.Start.Patches, patch{kind, option, len(own)})
		files = append(files, own...)
	}
	if err := send(k.conn, o, files...); err != nil {
		return nil, fmt.Errorf("have the keeper start it: %w", err)
	}
	r, err := k.next(ctx)
	if err == nil && !r.Started {
		err = errors.New(r.Failed)
	}
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		r, err := k.next(context.Background())
		if err == nil {
			err = errors.New(r.Ended)
		}
		ended <- err
	}()
	for _, p := range patches {
		if err := p.Applied(); err != nil {
			return nil, errors.Join(err, k.Kill())
		}
	}
	return ended, nil
}

// Kill has the keeper end the server as SIGKILL does. The channel of Start tells when it
// has ended.
func (k *Keeper) Kill() error {
	if err := send(k.conn, order{Kill: true}); err != nil {
		return fmt.Errorf("have the keeper kill it: %w", err)
	}
	return nil
}

// Close ends the keeper, with all that is in its container, and returns when it has
// gone.
func (k *Keeper) Close() error {
	err := k.conn.Close()
	<-k.gone
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (k *Keeper) next(ctx context.Context) (report, error) {
	select {
	case r := <-k.reports:
		return r, nil
	case <-ctx.Done():
		return report{}, context.Cause(ctx)
	case <-k.gone:
		return report{}, errors.New("its container has ended")
	}
}

func (k *Keeper) read() {
	defer close(k.gone)
	for {
		var r report
		files, err := receive(k.conn, &r)
		for _, f := range files {
			_ = f.Close() // there should be none
		}
		if err != nil {
			_ = k.conn.Close() // nobody is there
			return
		}
		k.reports <- r
	}
}
