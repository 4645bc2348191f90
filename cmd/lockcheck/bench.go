package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/bench"
	"github.com/lockcheck/lockcheck/internal/guard"
)

// benchSubjects are what is measured where the user names nothing: each lock alone, and
// those by which the costs of a resource are told.
var benchSubjects = []bench.Subject{
	{Backend: "redis"}, {Backend: "redis-replicated"}, {Backend: "redis-wait"}, {Backend: "redlock"}, {Backend: "etcd"},
	{Backend: "postgres-session"}, {Backend: "postgres-xact"}, {Backend: "postgres-lease"},
	{Backend: "pgbouncer-session-session"}, {Backend: "pgbouncer-transaction-xact"},
	{Backend: "etcd", Resource: "unfenced"}, {Backend: "etcd", Resource: "fenced"},
	{Backend: "postgres-lease", Resource: "unfenced"}, {Backend: "postgres-lease", Resource: "postgres"},
}

// benchForms are the forms in which what was measured is written, by name.
var benchForms = map[string]func(*bench.Report, io.Writer) error{
	"text": (*bench.Report).Text, "markdown": (*bench.Report).Markdown, "json": (*bench.Report).JSON,
}

type benchFlags struct {
	backends []string
	baseline string
	clients  int
	rounds   int
	time     time.Duration
	work     time.Duration
	harness  bool
	format   string
	bin      map[string]string
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what locks cost, and what the harness adds",
		Long: `Measure acquire and release of each lock: of one client, and of several that
contend; how that compares with a baseline of the same run; what fencing, WAIT, Redlock
and PgBouncer cost; and how many sections a second one lock can do if there is work under
it, for 1 to 64 clients. Locks are measured within this process, without a history,
in short rounds that take turns.

With --harness it measures the harness instead: the same sections by the client library
alone and through clients in processes of their own, with every operation recorded, for
1, 8 and 200 clients; the time that is added to an operation; the memory of a client;
and how many events a second are recorded.`,
		Example: `  lockcheck bench
  lockcheck bench --backend redis,etcd --baseline etcd --format markdown
  lockcheck bench --harness`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.bench(c.Context(), f) },
	}
	fs := c.Flags()
	fs.StringSliceVar(&f.backends, "backend", nil, "lock to measure, repeatable (default: those of the table in docs/performance.md)")
	fs.StringVar(&f.baseline, "baseline", "redis", "lock that others are compared with")
	fs.IntVar(&f.clients, "clients", 8, "clients that contend for one lock")
	fs.IntVar(&f.rounds, "rounds", 5, "rounds of each")
	fs.DurationVar(&f.time, "time", 300*time.Millisecond, "length of a round")
	fs.DurationVar(&f.work, "work", 200*time.Millisecond, "work under one lock, 0 for none of that")
	fs.BoolVar(&f.harness, "harness", false, "measure the harness")
	fs.StringVar(&f.format, "format", "text", "what to print: json, markdown, text")
	fs.StringToStringVar(&f.bin, "bin", nil, "server binary to use, as software=path; etcd=embedded for the built-in one")
	return c
}

// workClients are the numbers of clients with work under one lock.
var workClients = []int{1, 2, 4, 8, 16, 32, 64}

// harnessClients are the numbers of clients by which the harness is measured.
var harnessClients = []int{1, 8, 200}

// recordedEvents is how many events are recorded to see how fast that is.
const recordedEvents = 1_000_000

func (a *app) bench(ctx context.Context, f benchFlags) (err error) {
	write := benchForms[f.format]
	switch {
	case write == nil:
		return usagef("--format: unknown form %q: there are json, markdown, text", f.format)
	case f.clients < 2:
		return usagef("--clients %d: contention takes at least 2", f.clients)
	case f.rounds < 1 || f.time <= 0 || f.work < 0:
		return usagef("--rounds must be at least 1, --time above 0, and --work not negative")
	}
	dir, err := guard.TempDir()
	if err != nil {
		return environment(err)
	}
	defer func() { err = errors.Join(err, guard.RemoveDir(dir)) }()
	r := &bench.Report{Made: time.Now().UTC().Format(time.RFC3339)}
	progress := func(what string) {
		if _, tty := terminal(a.stderr); tty && !a.quiet {
			fmt.Fprintf(a.stderr, "\r\x1b[K%s", what)
		}
	}
	if f.harness {
		err = benchHarness(ctx, r, f, dir, progress)
	} else {
		err = a.benchLocks(ctx, r, f, dir, progress)
	}
	progress("")
	if ctx.Err() != nil {
		return exitError{exitInterrupted, errors.New("interrupted: nothing was measured in full")}
	}
	if err != nil {
		return err
	}
	if err := write(r, a.stdout); err != nil {
		return environment(err)
	}
	return nil
}

// benchLocks measures locks.
func (a *app) benchLocks(ctx context.Context, r *bench.Report, f benchFlags, dir string, progress func(string)) error {
	var subjects []bench.Subject
	for _, name := range f.backends {
		if _, err := backends.Find(name); err != nil {
			return usage(err)
		}
		subjects = append(subjects, bench.Subject{Backend: name})
	}
	if len(subjects) == 0 {
		subjects = benchSubjects
	}
	var here []bench.Subject
	for _, s := range subjects {
		b, err := backends.Find(s.Backend)
		if err != nil {
			return err
		}
		if err := available(b, runFlags{bin: f.bin}); err != nil {
			if len(f.backends) > 0 {
				return environment(fmt.Errorf("backend %s: %w", s.Backend, err))
			}
			fmt.Fprintf(a.stderr, "left out: backend %s: %v\n", s.Backend, err)
			continue
		}
		here = append(here, s)
	}
	if len(here) == 0 {
		return environment(errors.New("no server of any lock is found here: see lockcheck doctor"))
	}
	r.Baseline = f.baseline
	if !slices.ContainsFunc(here, func(s bench.Subject) bool { return s.String() == f.baseline }) {
		r.Baseline = here[0].String()
	}
	o := bench.Options{Subjects: here, Clients: f.clients, Rounds: f.rounds, For: f.time, Dir: dir, Bin: f.bin, Progress: progress}
	var err error
	if r.Locks, err = bench.Run(ctx, o); err != nil {
		return environment(err)
	}
	r.Compare()
	if f.work > 0 {
		at := slices.IndexFunc(here, func(s bench.Subject) bool { return s.String() == r.Baseline })
		r.WorkTime = ms(f.work)
		if r.Work, err = bench.RunWork(ctx, here[at], workClients, f.work, o); err != nil {
			return environment(err)
		}
	}
	return nil
}

// benchHarness measures the harness.
func benchHarness(ctx context.Context, r *bench.Report, f benchFlags, dir string, progress func(string)) error {
	names := f.backends
	if len(names) == 0 {
		names = bench.Bare()
	}
	for _, name := range names {
		if !slices.Contains(bench.Bare(), name) {
			return usagef("--harness: there is a bare loop to compare with of %s, not of %s", strings.Join(bench.Bare(), " and "), name)
		}
		b, err := backends.Find(name)
		if err != nil {
			return err
		}
		if err := available(b, runFlags{bin: f.bin}); err != nil {
			return environment(fmt.Errorf("backend %s: %w", name, err))
		}
	}
	var err error
	r.Harness, err = bench.RunHarness(ctx, bench.HarnessOptions{
		Backends: names, Clients: harnessClients, Rounds: f.rounds, For: f.time, Dir: dir, Bin: f.bin, Progress: progress,
	})
	if err != nil {
		return environment(err)
	}
	progress("a pipe")
	if p50, p99, err := bench.RunPipe(ctx, f.time); err == nil {
		r.Pipe = &bench.Pipe{P50: p50, P99: p99}
	}
	progress("recording")
	for _, writers := range []int{1, 8} {
		e, err := bench.RunRecorder(dir, writers, recordedEvents)
		if err != nil {
			return environment(err)
		}
		r.Recorded = append(r.Recorded, e)
	}
	return nil
}
