package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/page"
)

// explainFormats are the forms in which a run can be told.
var explainFormats = []string{"text", "ascii", "mermaid", "svg", "json", "html"}

func (a *app) explainCommand() *cobra.Command {
	format, ascii := "text", false
	c := &cobra.Command{
		Use:   "explain RUNDIR",
		Short: "Tell what happened in a run, with a sequence diagram",
		Long: `Tell what happened in a run: as text with a sequence diagram, in Unicode or ASCII;
the diagram alone as Mermaid or SVG; the run and the diagram as JSON; or the run's
page in HTML, which needs no other file and no network.`,
		Example: `  lockcheck explain lockcheck-runs/20261201T101500.000-gc-pause-redis-unfenced
  lockcheck explain --format html RUNDIR >page.html`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(explainFormats, format) {
				return usagef("--format: unknown format %q: there are %s", format, strings.Join(explainFormats, ", "))
			}
			if ascii {
				format = "ascii"
			}
			return a.explain(args[0], format)
		},
	}
	c.Flags().StringVar(&format, "format", format, strings.Join(explainFormats, ", "))
	c.Flags().BoolVar(&ascii, "ascii", false, "the same as --format ascii")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(explainFormats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) explain(dir, format string) error {
	o := a.reportOptions()
	o.ASCII = format == "ascii"
	if format == "text" || format == "ascii" {
		if _, err := harness.CheckRun(dir, harness.CheckOptions{Text: a.stdout, Report: o}); err != nil {
			return inputError(err)
		}
		return nil
	}
	t, err := harness.Tell(dir, harness.CheckOptions{})
	if err != nil {
		return inputError(err)
	}
	o.Service, o.Resource = t.Run.Backend, t.Run.Resource
	switch format {
	case "mermaid":
		err = reports.Mermaid(a.stdout, t.Events, t.Run.Report(), o)
	case "svg":
		err = reports.SVG(a.stdout, t.Events, t.Run.Report(), o)
	case "json":
		err = reports.SequenceJSON(a.stdout, t.Run, t.Events, t.Run.Report(), o)
	case "html":
		err = page.Write(a.stdout, t.Run, t.History, t.Events)
	}
	if err != nil {
		return environment(err)
	}
	return nil
}
