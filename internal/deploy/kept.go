package deploy

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/keeper"
)

// Where a container has what its keeper needs. All of it is mounted read-only.
const (
	keeperDir     = "/lockcheck"
	keeperProgram = keeperDir + "/program"
	keeperSocket  = keeperDir + "/socket"
	keeperLoader  = keeperDir + "/loader"
	keeperLibs    = keeperDir + "/lib"
)

// keepers is how this program becomes the first process of containers.
type keepers struct {
	argv   []string          // before the socket
	mounts map[string]string // by where the container has them
}

// findKeeper returns an error where containers cannot have a keeper.
func findKeeper(ctx context.Context, here bool) (*keepers, error) {
	if !here {
		return nil, errors.New("the engine is on another machine, which this program cannot be mounted on")
	}
	if err := execstop.Available(); err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to mount it into containers: %w", err)
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return nil, fmt.Errorf("find this program, to mount it into containers: %w", err)
	}
	k := &keepers{argv: []string{keeperProgram}, mounts: map[string]string{keeperProgram: exe}}
	loader, err := interpreter(exe)
	if err != nil || loader == "" {
		return k, err
	}
	// It is linked with libraries, which images need not have: they get those of this
	// machine, and what loads them.
	k.argv = []string{keeperLoader, "--library-path", keeperLibs, keeperProgram}
	k.mounts[keeperLoader] = loader
	list, err := output(ctx, exec.Command(loader, "--list", exe))
	if err != nil {
		return nil, fmt.Errorf("find the libraries of this program, to mount them into containers: %w", err)
	}
	for line := range strings.Lines(list) {
		// libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "=>" || !filepath.IsAbs(f[2]) {
			continue
		}
		if k.mounts[path.Join(keeperLibs, f[0])], err = filepath.EvalSymlinks(f[2]); err != nil {
			return nil, fmt.Errorf("find the libraries of this program: %w", err)
		}
	}
	return k, nil
}

// interpreter returns what loads the libraries of a program, "" if it has none.
func interpreter(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("see how this program is linked: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(p.Open())
		if err != nil {
			return "", fmt.Errorf("see how this program is linked: %w", err)
		}
		return filepath.EvalSymlinks(strings.TrimRight(string(b), "\x00"))
	}
	return "", nil
}

// kept is the keeper of a server's container.
type kept struct {
	listener *keeper.Listener
	keeper   *keeper.Keeper // nil before the container has run
}

// listen makes the socket that the container's keeper connects to.
func (c *container) listen() error {
	if c.site.keepers == nil {
		return nil
	}
	l, err := keeper.Listen(c.socket())
	if err != nil {
		return err
	}
	c.kept = &kept{listener: l}
	return nil
}

func (c *container) socket() string { return c.dir + ".socket" }

// keeperLimit bounds the wait for the keeper of a container that has started.
const keeperLimit = 30 * time.Second

// meet returns the keeper, and starts the container if that does not run.
func (c *container) meet(ctx context.Context) (*keeper.Keeper, error) {
	if k := c.kept.keeper; k != nil {
		select {
		case <-k.Gone():
		default:
			return k, nil
		}
	}
	before, err := c.engine().Inspect(ctx, c.id)
	if err == nil {
		err = c.engine().Start(ctx, c.id)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, keeperLimit, errors.New("it took too long"))
	defer cancel()
	living, ended := context.WithCancelCause(ctx)
	go func() {
		if status, err := c.engine().Wait(living, c.id); err == nil {
			var said strings.Builder
			_ = c.engine().Logs(ctx, c.id, before.Ended(), &said) // only for the message
			ended(fmt.Errorf("the container has ended with status %d: %s", status, strings.TrimSpace(said.String())))
		}
	}()
	k, err := c.kept.listener.Accept(living)
	ended(nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.kept.keeper = k
	c.mu.Unlock()
	return k, nil
}

// launchKept starts the server in its container, as a child of the keeper.
func (c *container) launchKept(ctx context.Context) (*life, error) {
	log, err := os.OpenFile(c.node.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	k, err := c.meet(ctx)
	if err != nil {
		return nil, err
	}
	var patches []execstop.Portable
	if of := c.node.local.options.Patches; of != nil {
		if patches, err = of(c.node.Name()); err != nil {
			return nil, err
		}
	}
	ended, err := k.Start(ctx, log, patches)
	if err != nil {
		return nil, err
	}
	l := &life{done: make(chan struct{})}
	c.mu.Lock()
	c.life = l
	c.mu.Unlock()
	go func() { c.end(l, <-ended) }()
	return l, nil
}

// killKept ends the server and leaves the container, of which the processes are
// frozen if the container is paused.
func (c *container) killKept(ctx context.Context) error {
	d, err := c.engine().Inspect(ctx, c.id)
	if err != nil {
		return err
	}
	if d.State.Paused {
		// So that none of them goes on before it dies. Who may not do that here has
		// the keeper do it, which is frozen too.
		pids, _ := c.keptPIDs()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	k := c.kept.keeper
	if err := k.Kill(); err != nil {
		select {
		case <-k.Gone(): // with all that was in the container
		default:
			return err
		}
	}
	if d.State.Paused {
		return c.engine().Unpause(ctx, c.id)
	}
	return nil
}

// keptPIDs returns the server's processes: those of the container without the keeper.
func (c *container) keptPIDs() ([]int, error) {
	c.mu.Lock()
	k := c.kept.keeper
	c.mu.Unlock()
	if k == nil {
		return nil, nil
	}
	all, err := guard.Tree(k.PID())
	var pids []int
	for _, pid := range all {
		if pid != k.PID() {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// free ends the keeper and removes its socket.
func (c *container) free() error {
	if c.kept == nil {
		return nil
	}
	return errors.Join(c.leave(), c.kept.listener.Close())
}

// leave ends the keeper, with its container.
func (c *container) leave() error {
	c.mu.Lock()
	k := c.kept.keeper
	c.kept.keeper = nil
	c.mu.Unlock()
	if k == nil {
		return nil
	}
	return k.Close()
}
