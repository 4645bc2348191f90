package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// Runtimes, the values of Options.Runtime.
const (
	LocalRuntime  = "local"  // servers are processes of this machine
	DockerRuntime = "docker" // servers are containers
)

// contain tells the powers that servers are containers, and whether clients are.
func (p *powers) contain(c *deploy.Containers, clients bool) (err error) {
	p.containers, p.clientsInside = c, clients
	if clients && p.mesh == nil {
		// The resource is in the harness: clients reach it through a proxy.
		if p.mesh, err = proxy.NewMesh(); err != nil {
			return err
		}
	}
	if p.mesh == nil {
		return nil
	}
	if !c.Here() {
		return inconclusive{errors.New("the engine is on another machine, which reaches no proxy of this one: faults of the network, and clients in containers, are not available there")}
	}
	p.mesh.SetHost(p.meshHost)
	return nil
}

// meshHost is where a source reaches proxies: this machine's address on a network
// that the source is on.
func (p *powers) meshHost(source string) netip.Addr {
	host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	switch {
	case source == "" || p.containers.Has(source):
		host = netip.MustParseAddr(p.containers.Gateway(deploy.PeersNetwork))
	case p.clientsInside:
		host = netip.MustParseAddr(p.containers.Gateway(deploy.ClientsNetwork))
	}
	return host
}

// containerOf tells which server made a connection. It is a proxy.Identify.
func (p *powers) containerOf(accepted net.Conn) (string, error) {
	host, _, err := net.SplitHostPort(accepted.RemoteAddr().String())
	if err != nil {
		return "", err
	}
	name, ok := p.containers.ServerAt(host)
	if !ok {
		return "", errors.New("no server has the address " + host)
	}
	return name, nil
}

// clientContainer returns the container of a client, and the command that starts it.
func (r *run) clientContainer(ctx context.Context, name string) (*deploy.Container, []string, error) {
	command, err := r.containers.ClientCommand(ctx, name, r.ClientImage, r.Backend.Name, slices.Clone(r.Client))
	if err != nil {
		return nil, nil, err
	}
	return r.containers.Client(name), command, nil
}

// contained reports whether a target is a container.
func contained(t nemesis.Target) bool {
	c, ok := t.(nemesis.Contained)
	return ok && c.Container() != nil
}

// patched returns nil unless a fault needs what a target in a container does not have, a
// clock or disk of its own.
func (p *powers) patched(kind nemesis.Kind, t nemesis.Target) error {
	if !contained(t) || !slices.Contains(kind.Needs, nemesis.Clock) && !slices.Contains(kind.Needs, nemesis.Disk) {
		return nil
	}
	if _, client := t.(*directed); client {
		return fmt.Errorf("%s is a client in a container: servers there have clocks and disks of their own, clients do not", t.Name())
	}
	if err := p.containers.Patched(); err != nil {
		return fmt.Errorf("%s is in a container, and gets no clock and disk of its own there: %w", t.Name(), err)
	}
	return nil
}

// Container implements nemesis.Contained.
func (d *directed) Container() nemesis.Container {
	if d.inside != nil {
		return d.inside
	}
	return nil
}

// PIDs implements nemesis.Processes.
func (d *directed) PIDs() ([]int, error) {
	if d.inside != nil {
		return d.inside.PIDs()
	}
	return d.Proc.PIDs()
}
