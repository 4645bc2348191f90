package main

import (
	"bytes"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// schemas are the JSON Schemas that can be printed.
var schemas = map[string]func() []byte{
	"scenario": scenarios.Schema,
	"protocol": client.Schema,
	"run":      reports.RunSchema,
	"baseline": baselineFormat,
	"faults":   faultsFormat,
	"mutants":  mutantsFormat,
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [scenario|protocol|run|baseline|faults|mutants]",
		Short: "Print the JSON Schema of scenario files, or of what programs read",
		Long: `Print a JSON Schema: of scenario files, of the messages of the client protocol,
of the lines of "lockcheck run --json" (and of verify, reproduce, replay and check),
of "lockcheck faults --json" or "mutants --json", or of files of known violations.
Editors that know YAML use the first to complete and check: save it beside your
scenarios and name it in their first line,
  # yaml-language-server: $schema=scenario.schema.json`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"scenario", "protocol", "run", "baseline", "faults", "mutants"},
		RunE: func(_ *cobra.Command, args []string) error {
			schema := schemas["scenario"]
			if len(args) > 0 {
				schema = schemas[args[0]]
			}
			_, err := a.stdout.Write(append(bytes.TrimSpace(schema()), '\n'))
			return err
		},
	}
}
