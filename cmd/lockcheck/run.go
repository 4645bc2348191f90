package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/harness"
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	var gated gateFlags
	var how pace
	var faults []string
	c := &cobra.Command{
		Use:   "run NAME|FILE...",
		Short: "Run scenarios as a gate: any violation exits 1",
		Long: `Run each scenario on each backend and check what happened. The exit status is 1 if
any property is violated, 3 if something proved nothing, 4 if the environment
failed, and 0 if every property that the runs speak to was held. With --budget the
runs are repeated as often as fits into the time, and what that says of the rate of
violations is told.`,
		Example: `  lockcheck run no-fault --backend all
  lockcheck run gc-pause --backend redis --gate lease
  lockcheck run contention --backend redis --faults pause,partition,clock:0.2 --seed 7
  lockcheck run gc-pause --backend redis --client ./my-lock
  lockcheck run contention --backend etcd --faults pause,partition --budget 5m --parallel 2
  lockcheck run ci --backend redis --client ./my-lock --baseline known.json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			g, err := newGate(gated)
			if err != nil {
				return err
			}
			how.budget = gated.budget
			p, err := newPlan("run", f, args, false)
			if err == nil {
				err = p.setPace(how)
			}
			if err != nil {
				return err
			}
			p.known = g.known
			if p.faults, err = harness.ParseFaults(faults); err != nil {
				return usage(fmt.Errorf("--faults: %w", err))
			}
			for _, u := range p.units {
				if len(faults) > 0 && u.scenario.Workload == nil {
					return usagef("--faults: %s has steps: random faults need a scenario with a workload, such as contention", u.scenario.Name)
				}
			}
			if err := p.availableFaults(p.faults); err != nil {
				return err
			}
			out := a.output(p, nil)
			out.gate = g
			err = out.make(c.Context())
			return finally(g.status(out.runs), err)
		},
	}
	f.add(c)
	f.endpoints.add(c)
	how.add(c)
	gated.add(c)
	c.Flags().StringSliceVar(&faults, "faults", nil, "disturb a workload by random faults of these kinds, each with an optional weight: pause,clock:0.2")
	return c
}

// ended turns an exit status into the error that ends the program with it.
func ended(status int) error {
	if status == exitOK {
		return nil
	}
	return silent(status)
}
