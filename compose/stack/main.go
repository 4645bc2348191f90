// Stack writes the Swarm stack of one of the files in compose/, for servers on several
// machines. It reads what compose makes of that file:
//
//	docker compose -f compose/etcd-3.yaml config | go run ./compose/stack > stack.yaml
//	docker stack deploy -c stack.yaml lockcheck
package main

import (
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stack:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var f map[string]any
	if err := yaml.NewDecoder(in).Decode(&f); err != nil {
		return fmt.Errorf("read what docker compose config writes: %w", err)
	}
	services, ok := f["services"].(map[string]any)
	if !ok {
		return fmt.Errorf("there are no services in it: give what docker compose config writes")
	}
	stack := map[string]any{"version": "3.8", "services": services, "networks": networks(f["networks"])}
	if configs, ok := f["configs"]; ok {
		return fmt.Errorf("a stack takes no configuration that is inline, and this has %v: deploy it by hand", configs)
	}
	for name, s := range services {
		service, ok := s.(map[string]any)
		if !ok {
			return fmt.Errorf("service %s is %v", name, s)
		}
		convert(name, service)
	}
	return yaml.NewEncoder(out).Encode(stack)
}

// convert makes a service of a stack of one of compose.
func convert(name string, service map[string]any) {
	// Swarm starts all at once, and starts those again that cannot do without others yet.
	delete(service, "depends_on")
	delete(service, "container_name")
	// It gives a name to nobody who is not healthy, and members of a cluster are not before
	// they have found each other.
	delete(service, "healthcheck")
	service["hostname"] = name
	service["deploy"] = map[string]any{
		"replicas": 1,
		// A name is the container's address, not that of a balancer before it, which may
		// need what is not in the kernel.
		"endpoint_mode": "dnsrr",
		// A server that is started elsewhere has lost its data.
		"restart_policy": map[string]any{"condition": "on-failure"},
	}
	ports, _ := service["ports"].([]any)
	for _, p := range ports {
		if port, ok := p.(map[string]any); ok {
			// On the server's own machine: Swarm's mesh would stay between, whatever
			// becomes of the network. Swarm chooses the port.
			port["mode"] = "host"
			delete(port, "host_ip")
			delete(port, "published")
		}
	}
}

// networks are overlays, which span machines, and which clients can be attached to.
func networks(all any) map[string]any {
	named, _ := all.(map[string]any)
	overlays := map[string]any{}
	for name := range named {
		overlays[name] = map[string]any{"driver": "overlay", "attachable": true}
	}
	return overlays
}
