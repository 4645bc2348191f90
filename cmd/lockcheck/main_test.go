package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	selfexec.Main() // the test binary is also the clients and servers of its runs
	testscript.Main(m, map[string]func(){"lockcheck": func() { os.Exit(run()) }, "hostile": hostile})
}

// TestScripts runs the real program as testdata/script describes it. Beside
// testscript's own words there are
//
//	exits N program args...   run it: it must end with status N
//	conforms NAME FILE LINES  each line is as the schema of that name says
//	[redis] [etcd] [postgres]  the server is installed
//	[root]                     these tests run as root
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			// Servers that do not run as root must get into it.
			e.Setenv("TMPDIR", os.TempDir())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "conforms": conforms},
		Condition: func(name string) (bool, error) {
			switch name {
			case "redis", "etcd", "postgres":
				b, err := deploy.Find(t.Context(), name, "")
				return err == nil && b.Path != "embedded", nil
			case "root":
				return os.Geteuid() == 0, nil
			}
			return false, errors.New("unknown condition " + name)
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}
