package main

import (
	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/harness"
)

func (a *app) explainCommand() *cobra.Command {
	var ascii bool
	c := &cobra.Command{
		Use:   "explain RUNDIR",
		Short: "Tell what happened in a run, with a sequence diagram",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o := a.reportOptions()
			o.ASCII = ascii
			_, err := harness.CheckRun(args[0], harness.CheckOptions{Text: a.stdout, Report: o})
			if err != nil {
				return inputError(err)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&ascii, "ascii", false, "draw with ASCII characters only")
	return c
}
