package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

func (a *app) shrinkCommand() *cobra.Command {
	var f checkFlags
	var property, out string
	c := &cobra.Command{
		Use:   "shrink HISTORY",
		Short: "Reduce a violating history to a minimal one",
		Long: `Reduce a history that violates a property to one that is minimal: without any one of
the sections that are left (a grant with its renewals, writes and release) the
property is no longer violated in the same way. Nothing is run again.`,
		Example: `  lockcheck shrink history.jsonl --property mutex --out small.jsonl
  lockcheck shrink history.edn --model mutex`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			h, err := history.Open(args[0], o.Read)
			if err != nil {
				return inputError(err)
			}
			if property == "" {
				property = violated(h, o.Checker)
			}
			if property == "" {
				return usagef("nothing to shrink: %s violates no property", args[0])
			}
			s, err := checker.Shrink(h, o.Checker, property)
			if err != nil {
				return usage(err)
			}
			if err := a.writeShrunk(args[0], out, o.Read, s); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "%s: %s\n%d of %d sections are left after %d checks", s.Property, s.Verdict.Why, s.Sections, s.Before, s.Checks)
			if !s.Minimal {
				fmt.Fprint(a.stderr, "; time ran out before it was minimal (--timeout)")
			}
			fmt.Fprintln(a.stderr)
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&property, "property", "", "the property to keep violated (default: the first that is)")
	c.Flags().StringVar(&out, "out", "", "file for the small history (default: standard output)")
	return c
}

// violated returns the first property that a history violates, or "".
func violated(h *history.History, o checker.Options) string {
	o.NoSecondOpinion = true
	if o.Model != "" && checker.CheckModel(h, o).Verdict == checker.Violated {
		return checker.Linearizable
	}
	for _, p := range checker.Check(h, o).Properties {
		if p.Verdict == checker.Violated {
			return p.Name
		}
	}
	return ""
}

// writeShrunk writes the events that are left.
func (a *app) writeShrunk(in, out string, o history.ReadOptions, s *checker.Shrunk) error {
	src, err := os.Open(in)
	if err != nil {
		return inputError(err)
	}
	defer src.Close()
	dst := a.stdout
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return environment(err)
		}
		defer file.Close()
		dst = file
	}
	o.Name = in
	_, err = history.Select(src, dst, o, func(e history.Event) bool {
		_, keep := slices.BinarySearch(s.Events, e.Index)
		return keep
	})
	if err != nil {
		return environment(err)
	}
	return nil
}
