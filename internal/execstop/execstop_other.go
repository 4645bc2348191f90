//go:build !(linux && amd64)

package execstop

import (
	"fmt"
	"os/exec"
	"runtime"
)

// Tracee is a process at its exec stop.
type Tracee struct{}

// Available returns an error: there is no implementation for this platform.
func Available() error {
	return fmt.Errorf("altering a process as it starts needs linux/amd64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
}

func start(*exec.Cmd, Options, []Patch) error { return Available() }
