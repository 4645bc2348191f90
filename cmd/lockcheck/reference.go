package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/manual"
)

// statuses are what the man pages say of exit statuses; docs/exit-status.md says
// what each command means by them.
var statuses = []manual.Status{
	{Code: exitOK, Meaning: "nothing is violated, and all that was asked was decided"},
	{Code: exitViolation, Meaning: "a violation (reproduce: none; verify: not what is expected)"},
	{Code: exitUsage, Meaning: "wrong flags, arguments or input files"},
	{Code: exitInconclusive, Meaning: "inconclusive: nothing was proved"},
	{Code: exitEnvironment, Meaning: "the environment failed: a server, a client or a file"},
	{Code: exitInterrupted, Meaning: "interrupted; what was recorded is kept"},
}

// referenceCommand writes the reference manual. It is for `make docs` and for
// whoever packages the program.
func (a *app) referenceCommand() *cobra.Command {
	man := false
	c := &cobra.Command{
		Use:    "reference DIR",
		Short:  "Write the reference manual, or the man pages, into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			pages := manual.Man(c.Root(), statuses)
			if !man {
				var err error
				if pages, err = manual.Markdown(c.Root()); err != nil {
					return environment(err)
				}
			}
			return writePages(args[0], pages)
		},
	}
	c.Flags().BoolVar(&man, "man", false, "write man pages instead of Markdown")
	return c
}

func writePages(dir string, pages []manual.Page) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return environment(err)
	}
	for _, p := range pages {
		if err := os.WriteFile(filepath.Join(dir, p.Name), p.Text, 0o644); err != nil {
			return environment(fmt.Errorf("write: %w", err))
		}
	}
	return nil
}
