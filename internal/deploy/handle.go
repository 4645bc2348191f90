package deploy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockcheck/lockcheck/internal/deploy/engine"
)

// Container is a container of a run, a server's or a client's, as faults act on it.
// Its methods may be called concurrently.
type Container struct {
	run   *Containers
	name  string // in the engine
	alias string // on its networks
	// server is what runs in it, nil if that is a client.
	server *container

	mu  sync.Mutex
	cut map[string]engine.Endpoint // networks that it left
}

// Client returns the container of a client that is started with ClientCommand.
func (c *Containers) Client(name string) *Container {
	return &Container{run: c, name: c.project + "-client-" + name, alias: name}
}

// Freeze freezes all its processes, by the freezer, and returns once the engine says
// that they are frozen, and on this machine the kernel too. It returns the proof.
func (x *Container) Freeze(ctx context.Context) (string, error) {
	if err := x.run.engine.Pause(ctx, x.name); err != nil {
		return "", err
	}
	d, err := x.run.engine.Inspect(ctx, x.name)
	if err != nil {
		return "", err
	}
	if !d.State.Paused {
		return "", fmt.Errorf("the engine says that container %s is %s, not paused", x.name, d.State.Status)
	}
	if x.run.Here() {
		state, err := freezer(d.State.Pid)
		if err == nil && state != frozen {
			err = fmt.Errorf("the freezer says that process %d is %s", d.State.Pid, state)
		}
		if err == nil {
			return fmt.Sprintf("container %s is paused: process %d is %s", x.name, d.State.Pid, state), nil
		}
		if !errors.Is(err, errNoFreezer) {
			return "", err
		}
	}
	return fmt.Sprintf("the engine says that container %s is paused", x.name), nil
}

// Thaw ends Freeze. A container that does not run any more needs none.
func (x *Container) Thaw(ctx context.Context) (string, error) {
	d, err := x.run.engine.Inspect(ctx, x.name)
	if engine.IsMissing(err) || err == nil && !d.State.Running {
		return fmt.Sprintf("container %s is gone", x.name), nil
	}
	if err == nil && d.State.Paused {
		err = x.run.engine.Unpause(ctx, x.name)
	}
	if err == nil {
		d, err = x.run.engine.Inspect(ctx, x.name)
	}
	if err != nil {
		return "", err
	}
	if x.server != nil && !x.server.runs() {
		return fmt.Sprintf("the server in container %s is gone", x.name), nil
	}
	return fmt.Sprintf("container %s is %s", x.name, d.State.Status), nil
}

// Kill ends the container as SIGKILL does and returns when it is gone.
func (x *Container) Kill(ctx context.Context) error {
	err := x.run.engine.Kill(ctx, x.name)
	if engine.IsMissing(err) {
		return nil
	}
	return err
}

// PIDs returns its processes, as this machine numbers them.
func (x *Container) PIDs() ([]int, error) {
	if !x.run.Here() {
		return nil, fmt.Errorf("%s runs on another machine: its processes cannot be seen from here", x.alias)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	pids, err := x.run.engine.Processes(ctx, x.name)
	if engine.IsMissing(err) {
		return nil, nil
	}
	return pids, err
}

// Leave takes it off a network, one of those of Containers, and returns once the
// engine says that it is not on it any more.
func (x *Container) Leave(ctx context.Context, which string) (string, error) {
	network := x.run.Network(which)
	before, err := x.run.engine.Inspect(ctx, x.name)
	if err != nil {
		return "", err
	}
	end, on := before.NetworkSettings.Networks[network]
	if !on {
		return "", fmt.Errorf("%s is not on the network %s", x.alias, network)
	}
	x.mu.Lock()
	if x.cut == nil {
		x.cut = map[string]engine.Endpoint{}
	}
	x.cut[network] = engine.Endpoint{IPAMConfig: end.IPAMConfig, Aliases: []string{x.alias}}
	x.mu.Unlock()
	if err := x.run.engine.Leave(ctx, network, x.name); err != nil {
		return "", err
	}
	after, err := x.run.engine.Inspect(ctx, x.name)
	if err != nil {
		return "", err
	}
	if _, on := after.NetworkSettings.Networks[network]; on {
		return "", fmt.Errorf("the engine says that %s is still on the network %s", x.alias, network)
	}
	return fmt.Sprintf("container %s is off the network %s", x.name, network), nil
}

// Rejoin puts it back on all networks that it left, at the same addresses.
func (x *Container) Rejoin(ctx context.Context) (string, error) {
	x.mu.Lock()
	cut := x.cut
	x.cut = nil
	x.mu.Unlock()
	var errs []error
	for network, end := range cut {
		errs = append(errs, x.run.engine.Join(ctx, network, x.name, end))
	}
	return fmt.Sprintf("container %s is on its networks", x.name), errors.Join(errs...)
}
