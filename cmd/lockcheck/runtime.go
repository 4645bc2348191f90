package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
)

// runtimeFlags say as what servers and clients run.
type runtimeFlags struct {
	name        string
	version     map[string]*string // of images, by software
	clientImage string
	matrix      []string // of --versions
}

var runtimes = []string{harness.LocalRuntime, harness.DockerRuntime}

// versioned is the software whose version can be chosen.
var versioned = []string{"redis", "etcd", "postgres", "pgbouncer"}

func (f *runtimeFlags) add(c *cobra.Command) {
	f.addOne(c)
	c.Flags().StringArrayVar(&f.matrix, "versions", nil, "run everything once with each version of a software, repeatable: etcd=3.4.23,3.6.16")
}

// addOne adds the flags of commands that run everything with one version.
func (f *runtimeFlags) addOne(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.name, "runtime", harness.LocalRuntime, "as what servers run: local (processes) or docker (containers)")
	f.version = map[string]*string{}
	for _, software := range versioned {
		f.version[software] = fs.String(software+"-version", "", "version of the image of "+software+", with --runtime docker")
	}
	fs.StringVar(&f.clientImage, "client-image", "", "run clients as containers of this image, with --runtime docker")
	_ = c.RegisterFlagCompletionFunc("runtime", cobra.FixedCompletions(runtimes, cobra.ShellCompDirectiveNoFileComp))
}

func (f *runtimeFlags) docker() bool { return f.name == harness.DockerRuntime }

// versions returns the versions that were chosen, by software.
func (f *runtimeFlags) versions() map[string]string {
	chosen := map[string]string{}
	for software, v := range f.version {
		if *v != "" {
			chosen[software] = *v
		}
	}
	return chosen
}

// check refuses flags that do not go together, and a runtime that is not there.
func (f *runtimeFlags) check(all runFlags) error {
	if !slices.Contains(runtimes, f.name) {
		return usagef("--runtime: unknown runtime %q: there are %s", f.name, strings.Join(runtimes, ", "))
	}
	if !f.docker() {
		for software := range f.versions() {
			return usagef("--%s-version is for --runtime docker: a local program is chosen with --bin %s=PATH", software, software)
		}
		if f.clientImage != "" {
			return usagef("--client-image is for --runtime docker: a local client is chosen with --client")
		}
		return nil
	}
	if len(all.bin) > 0 {
		return usagef("--bin is for --runtime local: the image of a server is chosen with --redis-version and so on")
	}
	if all.network == harness.NetnsNetwork {
		return usagef("--network netns is for --runtime local: containers are in network namespaces of their own already")
	}
	if err := deploy.CheckContainers(context.Background(), nil); err != nil {
		return environment(fmt.Errorf("--runtime docker: %w", err))
	}
	return nil
}

// available returns nil if all servers can run as containers.
func (f *runtimeFlags) available(servers []backends.Server) error {
	var software []string
	for _, s := range servers {
		software = append(software, s.Software)
	}
	return deploy.CheckContainers(context.Background(), f.versions(), software...)
}

// args are the flags, with versions, as a command line has them.
func (f *runtimeFlags) args(chosen map[string]string) []string {
	if !f.docker() {
		return nil
	}
	args := []string{"--runtime", f.name}
	for _, software := range slices.Sorted(maps.Keys(chosen)) {
		args = append(args, "--"+software+"-version", quote(chosen[software]))
	}
	if f.clientImage != "" {
		args = append(args, "--client-image", quote(f.clientImage))
	}
	return args
}
