// Command cmd makes docs/track-record.md and its JSON form from runs: `make
// track-record`. Reports that are not run keep the results that they had.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	_ "github.com/lockcheck/lockcheck/backends/all"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/internal/trackrecord"
)

func main() {
	selfexec.Main()
	var f options
	flag.IntVar(&f.runs, "n", 10, "runs of each report, and of each control")
	flag.StringVar(&f.clients, "clients", "clients", "folder of the client programs")
	flag.StringVar(&f.bin, "bin", "bin/clients", "folder for those that are built")
	flag.StringVar(&f.out, "out", "", "folder for the folders of runs; a temporary one if empty")
	flag.StringVar(&f.markdown, "markdown", "docs/track-record.md", "file to write")
	flag.StringVar(&f.json, "json", "docs/track-record.json", "file to write, and to read older results from")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := f.make(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "track record:", err)
		os.Exit(1)
	}
}

type options struct {
	runs                              int
	clients, bin, out, markdown, json string
}

func (f options) make(ctx context.Context, names []string) (err error) {
	chosen, err := trackrecord.Choose(names)
	if err != nil {
		return err
	}
	if f.runs < 1 {
		return fmt.Errorf("-n %d: must be at least 1", f.runs)
	}
	if f.out == "" {
		if f.out, err = os.MkdirTemp("", "lockcheck-track-record-"); err != nil {
			return err
		}
		defer os.RemoveAll(f.out)
	}
	clients := trackrecord.Clients{Dir: f.clients, Bin: f.bin}
	if err := clients.Build(ctx); err != nil {
		return err
	}
	cache := deploy.NewCache()
	defer func() { err = errors.Join(err, cache.Close()) }()
	var failed []error
	for _, r := range chosen {
		res, err := trackrecord.Run(ctx, r, trackrecord.Options{
			Runs: f.runs, Clients: clients, Cache: cache, Out: f.out, Now: time.Now,
			Progress: func(r trackrecord.Report, t trackrecord.Trial, n int, unlike []string) {
				said := "as expected"
				if len(unlike) > 0 {
					said = strings.Join(unlike, ", ")
				}
				fmt.Printf("%-28s %-60s %2d  %s\n", r.Scenario, t.What, n, said)
			},
		})
		if ctx.Err() != nil {
			return errors.New("interrupted: what was not run again keeps its results")
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if err := f.write(res); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}

// write puts a result in its place. It is done after each report, so that an interrupt
// loses none that was run.
func (f options) write(res trackrecord.Result) error {
	old, err := trackrecord.Read(f.json)
	if err != nil {
		return err
	}
	all := trackrecord.Merge(old, []trackrecord.Result{res})
	b, err := trackrecord.JSON(all)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.json, b, 0o644); err != nil {
		return err
	}
	return os.WriteFile(f.markdown, trackrecord.Markdown(all), 0o644)
}
