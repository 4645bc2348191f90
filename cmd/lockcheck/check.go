package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
)

// checkFlags say how a recorded history is read and what it is held against.
type checkFlags struct {
	format     string
	model      string
	ttl        time.Duration
	drift      float64
	timeout    time.Duration
	convention string
}

func (f *checkFlags) add(c *cobra.Command) {
	var models strings.Builder
	names := make([]string, 0, len(checker.Models()))
	for _, m := range checker.Models() {
		fmt.Fprintf(&models, "\n  %-24s %s", m.Name, m.Description)
		names = append(names, m.Name)
	}
	c.Long += "\n\nModels for --model:" + models.String()
	fs := c.Flags()
	fs.StringVar(&f.format, "format", "", "format of the history: jsonl, edn, jepsen-log, kv (default: told from the content)")
	fs.StringVar(&f.model, "model", "", "also check that the history is linearizable as this kind of lock or object")
	fs.DurationVar(&f.ttl, "ttl", 0, "lease of grants that state none")
	fs.Float64Var(&f.drift, "drift", 0, "part of a lease that clock drift may take, from 0 to below 1")
	fs.DurationVar(&f.timeout, "timeout", 0, "time for each search, ours and porcupine's (default 10s)")
	fs.StringVar(&f.convention, "convention", "", "how a failed release is read: ended (the hold had ended) or strict (it did not happen)")
	_ = c.RegisterFlagCompletionFunc("model", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("convention", cobra.FixedCompletions(conventions, cobra.ShellCompDirectiveNoFileComp))
}

var conventions = []string{checker.FailedEnds, checker.FailedIgnored}

// options checks the flags.
func (f *checkFlags) options() (harness.CheckOptions, error) {
	var o harness.CheckOptions
	if f.model != "" {
		if _, err := checker.ParseModel(f.model); err != nil {
			return o, usagef("--model: %w", err)
		}
	}
	if f.convention != "" && f.convention != checker.FailedEnds && f.convention != checker.FailedIgnored {
		return o, usagef("--convention: unknown convention %q: there are %s", f.convention, strings.Join(conventions, ", "))
	}
	switch {
	case f.ttl < 0 || f.timeout < 0:
		return o, usagef("--ttl and --timeout cannot be negative")
	case f.drift < 0 || f.drift >= 1:
		return o, usagef("--drift %v: must be from 0 to below 1", f.drift)
	}
	switch format := history.Format(f.format); format {
	case "", history.FormatJSONL, history.FormatEDN, history.FormatJepsenLog, history.FormatKV:
		o.Read.Format = format
	default:
		return o, usagef("--format: unknown format %q: there are jsonl, edn, jepsen-log, kv", f.format)
	}
	o.Checker = checker.Options{
		Model: f.model, TTL: int64(f.ttl), Drift: f.drift, Timeout: f.timeout, Convention: f.convention,
	}
	return o, nil
}

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	var gate []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "check HISTORY|RUNDIR",
		Short: "Check a recorded history again",
		Long: `Check the history in a run's folder, or any history file; "-" is standard input,
and gzip is unpacked. Besides our own JSON Lines, Jepsen's history.edn and log
lines and porcupine's kv texts are read. The exit status of a run's folder is
the same as that of the run.`,
		Example: `  lockcheck check lockcheck-runs/20261201T101500.000-gc-pause-redis-unfenced
  lockcheck check history.edn --model mutex
  lockcheck check --model cas-register etcd.log
  gzip -dc history.jsonl.gz | lockcheck check - --ttl 2s --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkProperties(gate); err != nil {
				return err
			}
			o, err := f.options()
			if err != nil {
				return err
			}
			o.Gate, o.Report = gate, a.reportOptions()
			if !asJSON {
				o.Text = a.stdout
			}
			check := harness.CheckFile
			info, err := os.Stat(args[0])
			switch {
			case err == nil && info.IsDir():
				check = harness.CheckRun
			case err == nil && info.Mode().IsRegular():
				o.Read.Size = info.Size()
				done := a.progress(&o.Read, info.Size())
				defer done()
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
	f.add(c)
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
