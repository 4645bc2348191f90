package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/deploy"
)

// cleanupLimit bounds a cleanup: an engine removes a container in a moment.
const cleanupLimit = 2 * time.Minute

func (a *app) cleanupCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the containers, networks and volumes that a killed run left in the engine",
		Long: `Remove from the container engine what runs with --runtime docker have left there
whose process was killed on this machine. Every such run also does this first. With
--all, remove everything that has the labels of a run: also that of runs which go
on, and of those that other machines make in this engine.

Runs on local processes leave nothing, however they end.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), cleanupLimit)
			defer cancel()
			r, err := deploy.Cleanup(ctx, all)
			for _, kind := range []struct {
				what  string
				names []string
			}{{"container", r.Containers}, {"network", r.Networks}, {"volume", r.Volumes}} {
				for _, name := range kind.names {
					fmt.Fprintf(a.stdout, "removed %s %s\n", kind.what, name)
				}
			}
			if err != nil {
				return environment(fmt.Errorf("cleanup: %w", err))
			}
			if r.Empty() {
				fmt.Fprintln(a.stdout, "nothing to remove")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also what belongs to runs that go on, and to those of other machines")
	return c
}
