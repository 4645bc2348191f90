package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports/plot"
)

func (a *app) plotCommand() *cobra.Command {
	out := ""
	c := &cobra.Command{
		Use:   "plot RUNDIR...",
		Short: "Draw latency, throughput, hold times and recovery of runs as SVG",
		Long: `Draw what each run measured: latency raw and in quantiles and throughput, with
bands where faults were in effect; hold times; and the time from the end of each
fault to the next grant. The pictures go into the run's folder, or into --out. A
plot for which a run has no data is not written.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, dir := range args {
				if err := a.plot(dir, out); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "folder for the pictures (default: the run's own)")
	return c
}

// plot draws the plots of one run and prints the names of their files.
func (a *app) plot(dir, out string) error {
	t, err := harness.Tell(dir, harness.CheckOptions{})
	if err != nil {
		return inputError(err)
	}
	name := "plot-"
	if out == "" {
		out = dir
	} else {
		name += filepath.Base(filepath.Clean(dir)) + "-"
		if err := os.MkdirAll(out, 0o700); err != nil {
			return environment(err)
		}
	}
	some := false
	for _, kind := range plot.Kinds {
		var picture bytes.Buffer
		drawn, err := plot.Draw(&picture, kind, t.History, plot.Options{})
		if err != nil {
			return environment(err)
		}
		if !drawn {
			continue
		}
		some = true
		path := filepath.Join(out, name+string(kind)+".svg")
		if err := os.WriteFile(path, picture.Bytes(), 0o600); err != nil {
			return environment(err)
		}
		fmt.Fprintln(a.stdout, path)
	}
	if !some {
		return usage(errors.New(dir + ": its history has no operation to plot"))
	}
	return nil
}
