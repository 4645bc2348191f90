package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
)

func (a *app) checkCommand() *cobra.Command {
	var gate []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "check HISTORY|RUNDIR",
		Short: "Check a recorded history again",
		Long: `Check the history of a run's folder, or any history file ("-" is standard input).
The exit status is the same as that of the run.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkProperties(gate); err != nil {
				return err
			}
			o := harness.CheckOptions{Gate: gate, Text: a.stdout, Report: a.reportOptions()}
			if asJSON {
				o.Text = nil
			}
			check := harness.CheckFile
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				check = harness.CheckRun
			}
			r, err := check(args[0], o)
			if err != nil {
				return inputError(err)
			}
			if asJSON {
				if err := reports.JSON(a.stdout, r); err != nil {
					return environment(err)
				}
			}
			return ended(statusOf([]*reports.Run{r}))
		},
	}
	c.Flags().StringSliceVar(&gate, "gate", nil, "properties whose violation counts (default: all)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// inputError sorts an error about a file that the user named: what is wrong
// with it is wrong usage, what keeps it from being read is the environment.
func inputError(err error) error {
	var syntax *history.SyntaxError
	if errors.As(err, &syntax) || errors.Is(err, harness.ErrNoRun) || errors.Is(err, fs.ErrNotExist) {
		return usage(err)
	}
	return environment(err)
}
