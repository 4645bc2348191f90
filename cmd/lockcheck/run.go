package main

import (
	"github.com/spf13/cobra"
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run NAME|FILE...",
		Short: "Run scenarios as a gate: any violation exits 1",
		Long: `Run each scenario on each backend and check what happened. The exit status is 1 if
any property is violated, 3 if something proved nothing, 4 if the environment
failed, and 0 if every property that the runs speak to was held.`,
		Example: `  lockcheck run no-fault --backend all
  lockcheck run gc-pause --backend redis --gate lease
  lockcheck run gc-pause --backend redis --client ./my-lock`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := newPlan("run", f, args, false)
			if err != nil {
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
	return c
}

// ended turns an exit status into the error that ends the program with it.
func ended(status int) error {
	if status == exitOK {
		return nil
	}
	return silent(status)
}
