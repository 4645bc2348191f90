package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/harness"
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	var faults []string
	c := &cobra.Command{
		Use:   "run NAME|FILE...",
		Short: "Run scenarios as a gate: any violation exits 1",
		Long: `Run each scenario on each backend and check what happened. The exit status is 1 if
any property is violated, 3 if something proved nothing, 4 if the environment
failed, and 0 if every property that the runs speak to was held.`,
		Example: `  lockcheck run no-fault --backend all
  lockcheck run gc-pause --backend redis --gate lease
  lockcheck run contention --backend redis --faults pause,partition,clock:0.2 --seed 7
  lockcheck run gc-pause --backend redis --client ./my-lock`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := newPlan("run", f, args, false)
			if err != nil {
				return err
			}
			if p.faults, err = harness.ParseFaults(faults); err != nil {
				return usage(fmt.Errorf("--faults: %w", err))
			}
			for _, u := range p.units {
				if len(faults) > 0 && u.scenario.Workload == nil {
					return usagef("--faults: %s has steps: random faults need a scenario with a workload, such as contention", u.scenario.Name)
				}
			}
			if err := availableFaults(p.faults); err != nil {
				return err
			}
			out := a.output(p, nil)
			if err := out.make(c.Context()); err != nil {
				return err
			}
			return ended(statusOf(out.runs))
		},
	}
	f.add(c)
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
