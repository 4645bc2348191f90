package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
)

func (a *app) faultsCommand() *cobra.Command {
	var f runFlags
	var verify bool
	c := &cobra.Command{
		Use:   "faults --verify",
		Short: "Inject every fault on every backend, and show that it takes effect",
		Long: `Inject every fault on a client and on a server of every backend whose servers are
found, and heal it. Each line has the time that both took and the proof, or says
why the fault is unavailable there. The exit status is 0 if each fault that is
available took effect, 3 if one did not, and 4 if the environment failed.`,
		Example: "  lockcheck faults --verify --backend redis",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !verify {
				return usagef("nothing to do: give --verify (lockcheck list faults lists them)")
			}
			if err := f.checkNetwork(); err != nil {
				return err
			}
			p := &plan{flags: f}
			bs, err := p.chooseBackends(true, nil)
			if err != nil {
				return err
			}
			out, err := filepath.Abs(f.out)
			if err != nil {
				return environment(err)
			}
			cache := deploy.NewCache()
			defer cache.Close()
			var all []harness.FaultCheck
			for _, b := range bs {
				checks, err := harness.VerifyFaults(c.Context(), harness.Options{
					Backend: b, Nodes: f.nodes, TTL: f.ttl, Bin: f.bin, Cache: cache, Out: out, Network: f.network,
				})
				if err != nil {
					return environment(fmt.Errorf("backend %s: %w", b.Name, err))
				}
				all = append(all, checks...)
			}
			if err := a.faultTable(all, f.json); err != nil {
				return environment(err)
			}
			for _, m := range p.missing {
				fmt.Fprintf(a.stderr, "left out: backend %s: %v\n", m.backend, m.why)
			}
			for _, check := range all {
				if !check.Effective && check.Unavailable == "" {
					return ended(exitInconclusive)
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&verify, "verify", false, "inject each, and heal it")
	c.Flags().StringSliceVar(&f.backends, "backend", nil, "lock system to try them on, repeatable (default: all whose servers are found)")
	c.Flags().IntVar(&f.nodes, "nodes", 0, "number of servers (default: the backend's)")
	c.Flags().StringVar(&f.out, "out", "lockcheck-runs", "folder for the folders of runs")
	c.Flags().StringToStringVar(&f.bin, "bin", nil, "server binary to use, as software=path; etcd=embedded for the built-in one")
	f.addNetwork(c)
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object a line")
	return c
}

func (a *app) faultTable(all []harness.FaultCheck, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(a.stdout)
		for _, c := range all {
			if err := enc.Encode(c); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\tbackend\ttarget\toutcome\tinject\theal\tproof")
	for _, c := range all {
		outcome, proof := "effective", c.Proof
		inject, heal := c.Inject.Round(100*time.Microsecond).String(), c.Heal.Round(100*time.Microsecond).String()
		switch {
		case c.Unavailable != "":
			outcome, inject, heal, proof = "unavailable", "", "", c.Unavailable
		case !c.Effective:
			outcome, proof = "NOT EFFECTIVE", c.Error
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Fault, c.Backend, c.Target, outcome, inject, heal, proof)
	}
	return w.Flush()
}
