package main

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	selfexec.Main() // the test binary is also the clients and servers of its runs
	testscript.Main(m, map[string]func(){"lockcheck": func() { os.Exit(run()) }})
}

// TestScripts runs the real program as testdata/script describes it. A script
// that needs a server skips without it: [redis], [etcd], [postgres].
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Condition: func(name string) (bool, error) {
			switch name {
			case "redis", "etcd", "postgres":
				b, err := deploy.Find(t.Context(), name, "")
				return err == nil && b.Path != "embedded", nil
			case "root":
				return os.Geteuid() == 0, nil
			}
			_, err := exec.LookPath(name)
			return err == nil, nil
		},
	})
}
