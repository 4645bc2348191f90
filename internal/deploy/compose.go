package deploy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lockcheck/lockcheck/internal/keeper"
)

// composeFile is as much of compose's format as a run needs.
type composeFile struct {
	Name     string                    `yaml:"name"`
	Services map[string]composeService `yaml:"services"`
	Networks map[string]composeNetwork `yaml:"networks"`
}

type composeService struct {
	Image         string                    `yaml:"image"`
	ContainerName string                    `yaml:"container_name"`
	Hostname      string                    `yaml:"hostname"`
	User          string                    `yaml:"user,omitempty"`
	Entrypoint    []string                  `yaml:"entrypoint,flow"`
	Command       []string                  `yaml:"command,flow"`
	Environment   []string                  `yaml:"environment,omitempty,flow"`
	Volumes       []composeVolume           `yaml:"volumes"`
	SecurityOpt   []string                  `yaml:"security_opt,omitempty,flow"`
	Ports         []string                  `yaml:"ports,omitempty,flow"`
	Networks      map[string]composeAddress `yaml:"networks"`
	Labels        map[string]string         `yaml:"labels"`
}

// composeVolume is a file or folder of this machine, or without a source an anonymous
// volume, which goes with the container.
type composeVolume struct {
	Type     string `yaml:"type"`
	Source   string `yaml:"source,omitempty"`
	Target   string `yaml:"target"`
	ReadOnly bool   `yaml:"read_only,omitempty"`
}

type composeAddress struct {
	Address string `yaml:"ipv4_address"`
}

type composeNetwork struct {
	Labels map[string]string `yaml:"labels"`
	IPAM   struct {
		Config []composePool `yaml:"config"`
	} `yaml:"ipam"`
}

type composePool struct {
	Subnet  string `yaml:"subnet"`
	Range   string `yaml:"ip_range,omitempty"`
	Gateway string `yaml:"gateway"`
}

// newProject returns a name that no other run has.
func newProject() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return "lockcheck-" + hex.EncodeToString(b)
}

// freePrefix picks a network that overlaps with none of those that are used, and
// that nobody else is likely to pick at the same time.
func freePrefix(used []netip.Prefix) (netip.Prefix, bool) {
	all := netip.MustParsePrefix("198.18.0.0/15")
	count := 1 << (prefixBits - all.Bits())
	first := mathrand.IntN(count)
	base := all.Addr().As4()
	start := uint32(base[0])<<24 | uint32(base[1])<<16
	for i := range count {
		at := start + uint32((first+i)%count)<<(32-prefixBits)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)}), prefixBits)
		free := true
		for _, u := range used {
			// That of a default route overlaps with everything.
			free = free && (u.Bits() == 0 || !u.Overlaps(p))
		}
		if free {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// network decides on the networks of the run, before the first servers are set up.
func (c *Containers) network(ctx context.Context) error {
	if c.nets[0].IsValid() {
		return nil
	}
	return c.choosePrefixes(ctx)
}

// describe is what compose is given.
func (c *Containers) describe(all []*container) (composeFile, error) {
	f := composeFile{Name: c.project, Services: map[string]composeService{}, Networks: map[string]composeNetwork{}}
	for _, which := range []string{ClientsNetwork, PeersNetwork} {
		p := c.prefix(which)
		n := composeNetwork{Labels: c.Labels()}
		upper := p.Addr().As4()
		upper[3] += 1 << (31 - prefixBits)
		pool := composePool{Subnet: p.String(), Gateway: c.Gateway(which)}
		if !c.engine.Info().Podman { // which gives nobody an address outside of the range, asked or not
			pool.Range = netip.PrefixFrom(netip.AddrFrom4(upper), prefixBits+1).String()
		}
		n.IPAM.Config = []composePool{pool}
		f.Networks[which] = n
	}
	for _, x := range all {
		cmd, err := x.program.command()
		if err != nil {
			return f, err
		}
		argv := append([]string{x.site.software.program}, cmd.Args[1:]...)
		s := composeService{
			Image: x.site.image, ContainerName: x.name(), Hostname: x.node.Name(), User: x.site.software.user,
			Entrypoint: escape(argv[:1]), Command: escape(argv[1:]), Environment: escape(cmd.Env),
			Volumes: []composeVolume{{Type: "volume", Target: x.dir}},
			Networks: map[string]composeAddress{
				ClientsNetwork: {c.Address(x.node.Name(), ClientsNetwork)},
				PeersNetwork:   {c.Address(x.node.Name(), PeersNetwork)},
			},
			Labels: maps.Clone(c.Labels()),
		}
		if k := c.keepers; k != nil {
			s.Entrypoint, s.Command = escape(append(slices.Clone(k.argv), keeper.Role, keeperSocket)), escape(argv)
			s.Volumes = append(s.Volumes, composeVolume{Type: "bind", Source: escape([]string{x.socket()})[0], Target: keeperSocket})
			for _, at := range slices.Sorted(maps.Keys(k.mounts)) {
				s.Volumes = append(s.Volumes, composeVolume{Type: "bind", Source: escape([]string{k.mounts[at]})[0], Target: at, ReadOnly: true})
			}
			s.SecurityOpt = []string{"label=disable"} // where files have labels, these are others than containers'
		}
		if c.published() {
			for _, port := range x.program.listens() {
				s.Ports = append(s.Ports, fmt.Sprintf("%d:%d", port, port))
			}
		}
		f.Services[x.node.Name()] = s
	}
	return f, nil
}

// escape writes text so that compose sees no variables in it.
func escape(all []string) []string {
	escaped := make([]string, len(all))
	for i, s := range all {
		escaped[i] = strings.ReplaceAll(s, "$", "$$")
	}
	return escaped
}

// make has compose make containers, which do not run yet.
func (c *Containers) make(ctx context.Context, dir string, all []*container) error {
	if len(all) == 0 {
		return nil
	}
	for _, x := range all {
		if err := obtain(ctx, c.engine, x.site.image); err != nil {
			return err
		}
	}
	f, err := c.describe(all)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	if c.file != "" {
		return errors.New("all servers of a run that are containers are started together")
	}
	c.file = filepath.Join(dir, "compose.yaml")
	if err := os.WriteFile(c.file, text, 0o600); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if _, err := output(ctx, c.compose("create", "--pull", "never")); err != nil {
		return fmt.Errorf("docker compose create (of %s): %w", c.file, err)
	}
	for _, x := range all {
		d, err := c.engine.Inspect(ctx, x.name())
		if err != nil {
			return err
		}
		x.id = d.ID
	}
	return nil
}

func (c *Containers) compose(args ...string) *exec.Cmd {
	return exec.Command("docker", append([]string{"compose", "--project-name", c.project, "--file", c.file}, args...)...)
}

// close removes all that there is of the run.
func (c *Containers) close(ctx context.Context) error {
	if c.file == "" {
		return nil
	}
	// Clients are no services of compose, and keep it from removing networks.
	if err := c.removeClients(ctx); err != nil {
		return err
	}
	if _, err := output(ctx, c.compose("down", "--volumes", "--timeout", "0")); err != nil {
		// What it did not remove goes one by one.
		_, sweepErr := sweep(ctx, c.engine, func(labels map[string]string) bool { return labels[runLabel] == c.project })
		if sweepErr != nil {
			return errors.Join(fmt.Errorf("docker compose down (of %s): %w", c.file, err), sweepErr)
		}
	}
	return nil
}

// removeClients removes the containers of the run that compose does not know.
func (c *Containers) removeClients(ctx context.Context) error {
	all, err := c.engine.Containers(ctx, runLabel+"="+c.project)
	if err != nil {
		return err
	}
	return forEach(ctx, all, func(ctx context.Context, x engineContainer) error {
		if _, ok := x.Labels["com.docker.compose.project"]; ok {
			return nil
		}
		return c.engine.Remove(ctx, x.ID)
	})
}
