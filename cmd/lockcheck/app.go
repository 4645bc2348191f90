package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	_ "github.com/lockcheck/lockcheck/backends/all" // registers all backends
)

// app is what all commands share: where they write.
type app struct {
	stdout, stderr io.Writer
	quiet          bool // nothing is shown of what goes on
}

// execute runs the command that args name and returns the exit status.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var s silent
	if err != nil && !errors.As(err, &s) {
		fmt.Fprintf(a.stderr, "lockcheck: %v\n", err)
	}
	return exitStatus(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "lockcheck",
		Short: "Find out whether a distributed lock keeps its promises",
		Long: `lockcheck starts a real lock system, drives clients against it, injects faults at
the moments that matter, records every operation, and proves or refutes each
promise of the lock from what was recorded.`,
		Example: `  lockcheck reproduce gc-pause               the double holder, on what is installed here
  lockcheck run gc-pause --backend redis     a gate: exits 1 on any violation
  lockcheck verify gc-pause --backend all    does each backend do what is expected of it?
  lockcheck doctor                           what is here, and what is missing`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "do not show what goes on")
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddCommand(
		a.reproduceCommand(), a.runCommand(), a.verifyCommand(),
		a.replayCommand(), a.huntCommand(), a.sweepCommand(), a.matrixCommand(), a.benchCommand(), a.faultsCommand(),
		a.checkCommand(), a.shrinkCommand(), a.explainCommand(), a.plotCommand(), a.serveCommand(), a.listCommand(),
		a.protocolCheckCommand(), a.mutantsCommand(), a.schemaCommand(), a.doctorCommand(), a.cleanupCommand(), a.versionCommand(), a.referenceCommand(),
	)
	return root
}

// terminal reports whether w is a terminal, and its width in columns.
func terminal(w io.Writer) (width int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return width, err == nil && width > 0
}

// width returns the columns to write for: those of the terminal, of $COLUMNS,
// or 100.
func (a *app) width() int {
	if w, ok := terminal(a.stdout); ok {
		return w
	}
	if w, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && w > 0 {
		return w
	}
	return 100
}

// color reports whether output may be coloured, see no-color.org.
func (a *app) color() bool {
	_, tty := terminal(a.stdout)
	return tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
