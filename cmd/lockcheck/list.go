package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

// lists are the things that can be listed: names with a line on each.
var lists = map[string]func() ([][2]string, error){
	"scenarios": func() ([][2]string, error) {
		all, err := scenarios.List()
		var rows [][2]string
		for _, s := range all {
			rows = append(rows, [2]string{s.Name, s.Summary})
		}
		return rows, err
	},
	"backends": func() ([][2]string, error) {
		var rows [][2]string
		for _, name := range backends.Names() {
			b, err := backends.Find(name)
			if err != nil {
				return nil, err
			}
			summary := b.Summary
			if err := available(b, runFlags{}); err != nil {
				summary += " (unavailable: " + err.Error() + ")"
			}
			rows = append(rows, [2]string{name, summary})
		}
		return rows, nil
	},
	"resources": func() ([][2]string, error) {
		var rows [][2]string
		for _, name := range resource.Names() {
			k, err := resource.Find(name)
			if err != nil {
				return nil, err
			}
			rows = append(rows, [2]string{name, k.Summary})
		}
		return rows, nil
	},
	"faults": func() ([][2]string, error) {
		var rows [][2]string
		for _, name := range nemesis.Names() {
			k, err := nemesis.Find(name)
			if err != nil {
				return nil, err
			}
			summary := k.Summary
			if k.Available != nil {
				if err := k.Available(); err != nil {
					summary += " (unavailable: " + err.Error() + ")"
				}
			}
			rows = append(rows, [2]string{name, summary})
		}
		return rows, nil
	},
}

func (a *app) listCommand() *cobra.Command {
	names := []string{"scenarios", "backends", "resources", "faults"}
	return &cobra.Command{
		Use:       "list " + strings.Join(names, "|"),
		Short:     "List what there is to choose from",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: names,
		RunE: func(_ *cobra.Command, args []string) error {
			rows, err := lists[args[0]]()
			if err != nil {
				return environment(err)
			}
			w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
			for _, row := range rows {
				fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
			}
			return w.Flush()
		},
	}
}

// completeScenarios completes the names of embedded scenarios; files complete
// as files do.
func completeScenarios(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := scenarios.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name+"\t"+s.Summary)
	}
	return names, cobra.ShellCompDirectiveDefault
}
