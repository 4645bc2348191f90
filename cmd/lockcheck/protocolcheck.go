package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/client/protocolcheck"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// protocolFlags say whom to talk to, and about which servers.
type protocolFlags struct {
	client    string
	backend   string
	endpoints []string
	nodes     int
	ttl       time.Duration
	patience  time.Duration
	bin       map[string]string
	stderr    bool
}

func (a *app) protocolCheckCommand() *cobra.Command {
	var f protocolFlags
	c := &cobra.Command{
		Use:   "protocol-check --client 'CMD'",
		Short: "Talk to a client program and say what it does wrong",
		Long: `Start the servers of a backend, talk to two clients of the program as a run does,
and say line by line whether they keep to the protocol, with the messages
concerned: docs/client-protocol.md. It does not judge the lock behind them.

The exit status is 0 if nothing is wrong, 1 if something is, 2 if the command line
is, and 4 if the environment failed. With --endpoints no server is started: those
named must be reachable on the loopback interface.`,
		Example: `  lockcheck protocol-check --client 'python3 my_lock.py' --backend redis
  lockcheck protocol-check --client ./my-lock --endpoints redis://127.0.0.1:6379
  lockcheck protocol-check --client '["./my lock","--verbose"]' --backend etcd --stderr`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.protocolCheck(c, f) },
	}
	fs := c.Flags()
	fs.StringVar(&f.client, "client", "", `client program: 'CMD ARGS', or a JSON array of arguments`)
	fs.StringVar(&f.backend, "backend", "redis", "lock system whose servers to start")
	fs.StringSliceVar(&f.endpoints, "endpoints", nil, "servers that run already, as redis://, postgres:// or http:// (etcd) URLs")
	fs.IntVar(&f.nodes, "nodes", 0, "number of servers (default: the backend's)")
	fs.DurationVar(&f.ttl, "ttl", time.Second, "lease to ask for")
	fs.DurationVar(&f.patience, "patience", 10*time.Second, "how long to wait for an answer")
	fs.StringToStringVar(&f.bin, "bin", nil, "server binary to use, as software=path; etcd=embedded for the built-in one")
	fs.BoolVar(&f.stderr, "stderr", false, "print the clients' standard error at the end")
	_ = c.RegisterFlagCompletionFunc("backend", cobra.FixedCompletions(backends.Names(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) protocolCheck(c *cobra.Command, f protocolFlags) (err error) {
	command, err := splitCommand(f.client)
	if err != nil {
		return err
	}
	switch {
	case len(command) == 0:
		return usagef("which client? Give --client 'CMD ARGS'")
	case f.ttl < time.Millisecond || f.patience <= 0 || f.nodes < 0:
		return usagef("--ttl and --patience must be positive, --nodes not negative")
	case len(f.endpoints) > 0 && c.Flags().Changed("backend"):
		return usagef("--backend starts servers, and --endpoints names some that run: give one of them")
	}
	dir, err := guard.TempDir()
	if err != nil {
		return environment(err)
	}
	defer func() { err = errors.Join(err, guard.RemoveDir(dir)) }()

	o := protocolcheck.Options{Command: command, TTL: f.ttl, Patience: f.patience, Dir: dir}
	if len(f.endpoints) > 0 {
		if o.Servers, err = parseEndpoints(f.endpoints); err != nil {
			return err
		}
	} else {
		stop, err := startServers(c, f, &o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}

	counts := map[protocolcheck.Result]int{}
	o.Report = func(l protocolcheck.Line) {
		counts[l.Result]++
		text := l.What
		if l.Why != "" {
			text += ": " + l.Why
		}
		fmt.Fprintf(a.stdout, "%-6s %s\n", l.Result, text)
		for _, m := range l.Messages {
			fmt.Fprintf(a.stdout, "       %s\n", m)
		}
	}
	if err := protocolcheck.Run(c.Context(), o); err != nil {
		switch {
		case c.Context().Err() != nil:
			return exitError{exitInterrupted, errors.New("interrupted")}
		case errors.Is(err, protocolcheck.ErrStart):
			return usage(err)
		}
		return environment(err)
	}
	if f.stderr {
		a.showLogs(dir)
	}
	fmt.Fprintf(a.stdout, "\n%d right, %d wrong, %d to look at, %d not asked\n",
		counts[protocolcheck.Right], counts[protocolcheck.Wrong], counts[protocolcheck.Note], counts[protocolcheck.Skipped])
	if counts[protocolcheck.Wrong] > 0 {
		return ended(exitViolation)
	}
	return nil
}

// startServers starts what the backend needs, and completes o. The caller calls
// stop.
func startServers(c *cobra.Command, f protocolFlags, o *protocolcheck.Options) (stop func() error, err error) {
	b, err := backends.Find(f.backend)
	if err != nil {
		return nil, usage(err)
	}
	topology := backends.Options{Nodes: f.nodes, TTL: f.ttl}
	if b.MinTTL != nil {
		o.TTL = max(o.TTL, b.MinTTL(topology))
	}
	if b.Servers == nil {
		return func() error { return nil }, nil
	}
	local, err := deploy.NewLocal(deploy.Options{Dir: o.Dir, Bin: f.bin})
	if err != nil {
		return nil, environment(err)
	}
	nodes, err := local.Start(c.Context(), b.Servers(topology))
	if err != nil {
		return nil, environment(errors.Join(err, local.Close()))
	}
	for _, n := range nodes {
		o.Servers = append(o.Servers, n.Endpoint())
	}
	return local.Close, nil
}

// showLogs prints what the clients wrote to their standard error.
func (a *app) showLogs(dir string) {
	for _, name := range []string{"A", "B"} {
		b, err := os.ReadFile(filepath.Join(dir, "client-"+name+".log"))
		if err == nil && len(b) > 0 {
			fmt.Fprintf(a.stdout, "\nstandard error of %s:\n%s\n", name, strings.TrimSpace(string(b)))
		}
	}
}
