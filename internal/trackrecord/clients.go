package trackrecord

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lockcheck/lockcheck/internal/mutants"
)

// Clients are the client programs of the folder clients/.
type Clients struct {
	Dir string // that folder
	Bin string // where the programs in Go are, once Build has made them
}

// Build builds the programs that are in Go.
func (c Clients) Build(ctx context.Context) error {
	bin, err := filepath.Abs(c.Bin)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", bin+string(filepath.Separator), "./...")
	build.Dir = filepath.Join(c.Dir, "go")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs in %s: %w: %s", build.Dir, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// command is the command line of a trial's client program, nil if it is the
// backend's own.
func (c Clients) command(ctx context.Context, t Trial) ([]string, error) {
	if len(t.Client) == 0 {
		return nil, nil
	}
	program, args := t.Client[0], t.Client[1:]
	language, name, _ := strings.Cut(program, "/")
	switch {
	case program == "mutant":
		m, err := mutants.Find(args[0])
		if err != nil {
			return nil, err
		}
		return m.Command()
	case language == "go":
		path, err := filepath.Abs(filepath.Join(c.Bin, name))
		if err == nil {
			_, err = os.Stat(path)
		}
		return append([]string{path}, args...), err
	case language == "python":
		path, err := filepath.Abs(filepath.Join(c.Dir, program))
		if err != nil {
			return nil, err
		}
		// The system's own has the libraries of the distribution.
		for _, python := range []string{"/usr/bin/python3", "python3"} {
			if exec.CommandContext(ctx, python, "-c", "import redis").Run() == nil {
				return append([]string{python, path}, args...), nil
			}
		}
		return nil, errors.New("no python3 with redis (Debian: apt install python3-redis)")
	}
	return nil, fmt.Errorf("client %q is neither a mutant nor in Go nor in Python", program)
}
