package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// workerLabel marks images of lockcheck itself, whose entry point takes the name of a
// backend.
const workerLabel = "org.lockcheck.worker"

// ClientCommand returns the command that runs a client as a container on the
// clients' network, from an image, with its standard input and output. The image's
// entry point is run with args; that of an image of lockcheck itself with the
// backend's name. Servers must have been started before.
func (c *Containers) ClientCommand(ctx context.Context, name, image, backend string, args []string) ([]string, error) {
	if c.file == "" {
		return nil, errors.New("clients are containers only where servers are: this backend has none")
	}
	if err := obtain(ctx, c.engine, image); err != nil {
		return nil, err
	}
	i, err := c.engine.Image(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("look at the image %s: %w", image, err)
	}
	if _, ours := i.Config.Labels[workerLabel]; ours && len(args) == 0 {
		args = []string{backend}
	}
	command := []string{"docker", "run", "--rm", "--interactive", "--name", c.Client(name).name,
		"--hostname", name, "--network", c.Network(ClientsNetwork), "--network-alias", name}
	labels := c.Labels()
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		command = append(command, "--label", k+"="+labels[k])
	}
	return append(append(command, image), args...), nil
}
