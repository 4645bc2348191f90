package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/matrix"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// matrixRows are the locks of a table, and what stands in for a lock, where the user
// names none.
var matrixRows = []string{
	"redis", "redis-replicated", "redlock", "etcd", "postgres-session", "postgres-xact",
	"idempotency-key", "conditional-write", "unique-constraint", "partitioned",
}

// Runs of each trial, by the mode of a table.
var matrixRepeat = map[string]int{matrix.Quick: 1, matrix.Full: 5}

// matrixForms are the forms in which a table is written, by the name of the flag's
// value.
var matrixForms = map[string]func(*matrix.Table, io.Writer) error{
	"text": (*matrix.Table).Text, "markdown": (*matrix.Table).Markdown, "json": (*matrix.Table).JSON, "html": (*matrix.Table).HTML,
}

type matrixFlags struct {
	runFlags
	quick, full bool
	format      string
	against     string
	from        string
	pace        pace
}

func (a *app) matrixCommand() *cobra.Command {
	var f matrixFlags
	c := &cobra.Command{
		Use:   "matrix",
		Short: "Measure what each lock is fit for: the table by which one is chosen",
		Long: `Run each lock under each kind of fault, count what happened, and say by a written
rule what the lock is fit for: efficiency only; correctness if the resource is
fenced; correctness when the data lives in the same database; or that nothing was
shown. docs/matrix.md has the rule and a table. The folder for runs gets the table as
matrix.json, matrix.md and matrix.html, each cell with links to its runs.

--quick, which is the default, runs each trial once and takes about two minutes;
--full runs more trials, each five times. The exit status is 0 if every row has a
verdict, 3 if one is not shown, and with --against 1 if a verdict got worse.`,
		Example: `  lockcheck matrix
  lockcheck matrix --full --format markdown
  lockcheck matrix --backend redis --client './my-lock'
  lockcheck matrix --against docs/matrix.json
  lockcheck matrix --from new.json --against old.json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.matrix(c, f) },
	}
	fs := c.Flags()
	f.add(c)
	f.pace.add(c)
	for _, name := range []string{"resource", "gate", "ttl", "nodes", "json", "junit", "tap", "github", "fail-fast"} {
		_ = fs.MarkHidden(name) // they are about single runs
	}
	fs.BoolVar(&f.quick, "quick", false, "each trial once (the default)")
	fs.BoolVar(&f.full, "full", false, "all trials, each five times")
	fs.StringVar(&f.format, "format", "text", "what to print: "+strings.Join(forms(), ", "))
	fs.StringVar(&f.against, "against", "", "say which verdicts differ from those of this table, a matrix.json")
	fs.StringVar(&f.from, "from", "", "print this table, a matrix.json, and run nothing")
	c.MarkFlagsMutuallyExclusive("quick", "full")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(forms(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// forms are the names of the forms, sorted.
func forms() []string {
	var all []string
	for name := range matrixForms {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func (a *app) matrix(c *cobra.Command, f matrixFlags) error {
	if f.json {
		f.format = "json"
	}
	write := matrixForms[f.format]
	if write == nil {
		return usagef("--format: unknown form %q: there are %s", f.format, strings.Join(forms(), ", "))
	}
	var old *matrix.Table
	if f.against != "" {
		var err error
		if old, err = matrix.Read(f.against); err != nil {
			return usage(fmt.Errorf("--against: %w", err))
		}
	}
	t, err := a.matrixTable(c, f)
	if err != nil && t == nil {
		return err
	}
	if err := write(t, a.stdout); err != nil {
		return environment(err)
	}
	if err != nil {
		return err
	}
	return a.compareTables(old, t)
}

// matrixTable reads a table, or makes one. It is returned also with the error that
// the making was interrupted.
func (a *app) matrixTable(c *cobra.Command, f matrixFlags) (*matrix.Table, error) {
	if f.from != "" {
		t, err := matrix.Read(f.from)
		if err != nil {
			return nil, usage(fmt.Errorf("--from: %w", err))
		}
		return t, nil
	}
	mode := matrix.Quick
	if f.full {
		mode = matrix.Full
	}
	if !c.Flags().Changed("repeat") {
		f.repeat = matrixRepeat[mode]
	}
	m, err := newMatrixPlan(f, mode)
	if err != nil {
		return nil, err
	}
	return a.makeMatrix(c.Context(), m)
}

// matrixPlan is a table to be filled, and the plan of the runs that fill it.
type matrixPlan struct {
	*plan
	table *matrix.Table
	fills [][]*matrix.Trial // by unit of the plan
	rows  []*matrix.Row     // by unit of the plan
}

// newMatrixPlan works out which runs a table needs.
func newMatrixPlan(f matrixFlags, mode string) (*matrixPlan, error) {
	names := f.backends
	switch {
	case len(names) == 0 && f.client == "":
		names = matrixRows
	case len(names) == 0:
		names = nil // one, as `run` would choose
	case slices.Contains(names, "all"):
		return nil, usagef("--backend all: a table is of locks by name; without --backend it is of %s", strings.Join(matrixRows, ", "))
	}
	var out []missing
	if len(f.backends) == 0 && names != nil {
		// What is not installed here is left out of a table that nobody asked it for.
		var here []string
		for _, name := range names {
			b, err := backends.Find(name)
			if err != nil {
				return nil, err
			}
			if err := available(b, f.runFlags); err != nil {
				out = append(out, missing{"backend " + name, err})
				continue
			}
			here = append(here, name)
		}
		if names = here; len(names) == 0 {
			return nil, environment(out[0].why)
		}
	}
	f.runFlags.backends = names
	p, err := newPlan("run", f.runFlags, []string{"no-fault"}, false)
	if err != nil {
		return nil, err
	}
	if err := p.setPace(f.pace); err != nil {
		return nil, err
	}
	p.missing = out
	all, err := scenarios.LoadAll(matrix.Scenarios()...)
	if err != nil {
		return nil, err
	}
	m := &matrixPlan{plan: p, table: &matrix.Table{
		Made: time.Now().UTC(), Mode: mode, Repeat: f.repeat, Seed: p.flags.seed, Runtime: p.flags.runtime.name,
	}}
	locks := p.units
	p.units = nil
	for _, u := range locks {
		if err := m.add(u.backend, all, mode, f.client); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// add adds a row to the table, and its runs to the plan.
func (m *matrixPlan) add(b backends.Backend, all []*scenarios.Scenario, mode, client string) error {
	s := matrix.Subject{Name: b.Name, Backend: b.Name, Resource: protection(b)}
	if client != "" {
		s.Name = client + " on " + b.Name
	}
	row := matrix.NewRow(s, all, mode)
	m.table.Rows = append(m.table.Rows, row)
	for _, fill := range row.Units() {
		on, err := backends.Find(fill[0].Backend)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(sc *scenarios.Scenario) bool { return sc.Name == fill[0].Scenario })
		m.units = append(m.units, unit{scenario: all[i], backend: on, resource: fill[0].Resource})
		m.fills = append(m.fills, fill)
		m.rows = append(m.rows, row)
	}
	return nil
}

// protection is the resource that protects the data as well as it can be with a lock: one
// that compares tokens; or, if the lock is in a database and has none, that database.
func protection(b backends.Backend) string {
	if b.Servers == nil || b.Tokens {
		return "fenced"
	}
	for _, s := range b.Servers(backends.Options{}) {
		if base, _, _ := strings.Cut(s.Software, "-"); base != "postgres" && base != "pgbouncer" {
			return "fenced"
		}
	}
	return "postgres"
}

// makeMatrix makes the runs, and writes the table into the folder for runs.
func (a *app) makeMatrix(ctx context.Context, m *matrixPlan) (*matrix.Table, error) {
	base, err := filepath.Abs(m.flags.out)
	if err != nil {
		return nil, environment(err)
	}
	total := len(m.units) * m.flags.repeat
	l := a.live(ctx, liveOptions{total: total})
	defer l.close()
	made := 0
	var failed error
	judged := func(_ unit, r *reports.Run) judgement { return judgement{ok: true, word: r.Outline()} }
	err = m.run(ctx, l, judged, func(u unit, r *reports.Run) {
		at := made / m.flags.repeat // runs come in the order of the plan
		made++
		if err := m.rows[at].Add(m.fills[at], r, base); err != nil && failed == nil {
			failed = err
		}
	})
	l.close()
	if err == nil && failed != nil {
		err = environment(failed)
	}
	if err != nil {
		return nil, err
	}
	if made == 0 {
		return nil, exitError{exitInterrupted, fmt.Errorf("interrupted before anything was recorded")}
	}
	m.table.Judge()
	if err := writeTable(base, m.table); err != nil {
		return m.table, environment(err)
	}
	for _, miss := range m.missing {
		fmt.Fprintf(a.stderr, "left out: %s: %v\n", miss.what, miss.why)
	}
	fmt.Fprintf(a.stderr, "the table with its runs: %s\n", filepath.Join(m.flags.out, "matrix.html"))
	if ctx.Err() != nil {
		return m.table, exitError{exitInterrupted, fmt.Errorf("interrupted: %d of %d runs made; the table is of these", made, total)}
	}
	return m.table, nil
}

// writeTable writes the table in all its forms.
func writeTable(dir string, t *matrix.Table) error {
	for name, write := range map[string]func(*matrix.Table, io.Writer) error{
		"matrix.json": (*matrix.Table).JSON, "matrix.md": (*matrix.Table).Markdown, "matrix.html": (*matrix.Table).HTML,
	} {
		var b bytes.Buffer
		if err := write(t, &b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// compareTables says what differs, and decides the exit status.
func (a *app) compareTables(old, t *matrix.Table) error {
	if why := t.Failure(); why != "" {
		return environment(fmt.Errorf("no run could be carried out: %s", why))
	}
	status := exitOK
	if len(t.Undecided()) > 0 {
		status = exitInconclusive
	}
	if old == nil {
		return ended(status)
	}
	differ := matrix.Compare(old, t)
	if len(differ) == 0 {
		fmt.Fprintf(a.stderr, "all %d verdicts are as they were\n", len(t.Rows))
	}
	for _, d := range differ {
		fmt.Fprintln(a.stderr, d)
		switch {
		case d.Worse():
			status = exitViolation
		case d.Lost() && status == exitOK:
			status = exitInconclusive
		}
	}
	return ended(status)
}
