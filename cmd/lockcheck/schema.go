package main

import (
	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/scenarios"
)

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of scenario files",
		Long: `Print the JSON Schema of scenario files. Editors that know YAML use it to complete
and check: save it beside your scenarios and name it in their first line,
  # yaml-language-server: $schema=scenario.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(append(scenarios.Schema(), '\n'))
			return err
		},
	}
}
