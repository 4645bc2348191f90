package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/reports"
)

// ciFlags say what is written for continuous integration.
type ciFlags struct {
	junit  string // file
	tap    string // file
	github bool
}

func (f *ciFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.junit, "junit", "", "write the runs as JUnit XML to this file")
	fs.StringVar(&f.tap, "tap", "", "write the runs in the Test Anything Protocol to this file")
	fs.BoolVar(&f.github, "github", os.Getenv("GITHUB_ACTIONS") == "true",
		"annotate the workflow of GitHub Actions, and write the step's summary where $GITHUB_STEP_SUMMARY says (default: when run there)")
}

// ci writes what continuous integration reads. Its files are made before the runs,
// so that a wrong name costs nothing.
type ci struct {
	name     string // of the command
	outputs  []ciOutput
	commands io.Writer // of GitHub's annotations; nil for none
}

type ciOutput struct {
	file  *os.File
	write func(io.Writer, []reports.Case) error
}

func (a *app) openCI(name string, f runFlags) (*ci, error) {
	c := &ci{name: name}
	junit := func(w io.Writer, cases []reports.Case) error { return reports.JUnit(w, name, cases) }
	summary := func(w io.Writer, cases []reports.Case) error { return reports.GitHubSummary(w, name, cases) }
	for _, o := range []struct {
		path  string
		how   int
		write func(io.Writer, []reports.Case) error
		use   bool
	}{
		{f.ci.junit, os.O_TRUNC, junit, f.ci.junit != ""},
		{f.ci.tap, os.O_TRUNC, reports.TAP, f.ci.tap != ""},
		{os.Getenv("GITHUB_STEP_SUMMARY"), os.O_APPEND, summary, f.ci.github && os.Getenv("GITHUB_STEP_SUMMARY") != ""},
	} {
		if !o.use {
			continue
		}
		file, err := os.OpenFile(o.path, os.O_CREATE|os.O_WRONLY|o.how, 0o644)
		if err != nil {
			return nil, environment(errors.Join(err, c.close()))
		}
		c.outputs = append(c.outputs, ciOutput{file, o.write})
	}
	if f.ci.github {
		c.commands = a.stdout
		if f.json {
			c.commands = a.stderr // GitHub reads both, and others read that
		}
	}
	return c, nil
}

// write writes the cases and closes the files.
func (c *ci) write(cases []reports.Case) error {
	var errs []error
	for _, o := range c.outputs {
		var b bytes.Buffer // so that a write is whole
		errs = append(errs, o.write(&b, cases))
		_, err := o.file.Write(b.Bytes())
		errs = append(errs, err)
	}
	errs = append(errs, c.close())
	if c.commands != nil {
		errs = append(errs, reports.GitHubAnnotations(c.commands, cases))
	}
	if err := errors.Join(errs...); err != nil {
		return environment(fmt.Errorf("write for continuous integration: %w", err))
	}
	return nil
}

func (c *ci) close() error {
	var errs []error
	for _, o := range c.outputs {
		errs = append(errs, o.file.Close())
	}
	c.outputs = nil
	return errors.Join(errs...)
}

// caseOf is what a run means to the command.
func (o *output) caseOf(r *reports.Run, is judgement) reports.Case {
	c := reports.JudgedBy(r)
	known := knownViolations(r)
	switch {
	case o.assert != nil && is.ok:
		c.Outcome, c.Message = reports.Passed, is.word
	case o.assert != nil && c.Outcome != reports.Errored:
		c.Outcome, c.Message = reports.Failed, is.word
	case o.assert == nil && is.ok && c.Outcome == reports.Errored:
		c.Outcome, c.Message = reports.Skipped, "allowed: "+c.Message
	case c.Outcome == reports.Passed && len(known) > 0:
		c.Outcome, c.Message = reports.Skipped, "known to be violated: "+strings.Join(known, ", ")
	}
	if c.Outcome != reports.Passed {
		// A run whose report cannot be read is told by its message alone.
		b, _ := os.ReadFile(filepath.Join(r.Dir, "report.txt"))
		c.Text = string(b)
	}
	return c
}

// leftOut are the cases of backends that were asked for and are not here.
func leftOut(all []missing) []reports.Case {
	var cases []reports.Case
	for _, m := range all {
		cases = append(cases, reports.Case{Title: m.what, Outcome: reports.Skipped, Message: m.why.Error()})
	}
	return cases
}
