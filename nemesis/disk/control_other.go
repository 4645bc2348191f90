//go:build !(linux && amd64)

package disk

import (
	"fmt"
	"os"
	"runtime"

	"github.com/lockcheck/lockcheck/internal/execstop"
)

// Available returns an error: there is no implementation for this platform.
func Available() error {
	return fmt.Errorf("a disk fault of a single process needs linux/amd64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
}

// New returns the error of Available.
func New(Options) (*Control, error) { return nil, Available() }

// Files and Apply make a Control a patch for execstop.Start.
func (c *Control) Files() []*os.File { return nil }

// Apply returns the error of Available.
func (c *Control) Apply(*execstop.Tracee, []int) error { return Available() }

// Kind and Applied make a Control a patch that another process can apply.
func (c *Control) Kind() (name, option string) { return "", "" }

// Applied returns the error of Available.
func (c *Control) Applied() error { return Available() }

func intercepted(int) (bool, error) { return false, Available() }

func memoryFile() (*os.File, error) { return nil, Available() }
