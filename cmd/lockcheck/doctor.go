package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/deploy"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is found on this machine, what is missing, and what that disables",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			checks := deploy.Doctor(c.Context())
			if asJSON {
				enc := json.NewEncoder(a.stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(checks)
			}
			for _, check := range checks {
				a.diagnosis(check)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// diagnosis prints one finding of doctor.
func (a *app) diagnosis(c deploy.Check) {
	if c.Found {
		fmt.Fprintf(a.stdout, "found    %-18s %s\n", c.Name, join(c.Version, c.Path))
		return
	}
	fmt.Fprintf(a.stdout, "missing  %-18s %s\n", c.Name, c.Problem)
	if c.Disables != "" {
		fmt.Fprintf(a.stdout, "           without it: %s\n", c.Disables)
	}
	if c.Install != "" {
		fmt.Fprintf(a.stdout, "           install it: %s\n", c.Install)
	}
}

func join(version, path string) string {
	switch {
	case version == "":
		return path
	case path == "":
		return version
	}
	return version + "  " + path
}
