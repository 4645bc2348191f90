// Package selfexec lets the program, and any test binary of it, run parts of
// itself as processes of their own: lock clients, embedded servers, the guard.
package selfexec

import (
	"fmt"
	"os"
	"sort"
)

var roles = map[string]func(args []string) int{}

// Register adds a role under a name, which is also the name of a command. It
// is called from init functions, and panics if the name is taken, since that is
// a mistake in the program. What main returns is the exit status.
func Register(name string, main func(args []string) int) {
	if _, taken := roles[name]; taken {
		panic("role " + name + " is registered twice")
	}
	roles[name] = main
}

// Names returns the names of all roles, sorted.
func Names() []string {
	names := make([]string, 0, len(roles))
	for n := range roles {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Main runs the role that the command line names, and exits; it returns if
// that is none. main and TestMain call it before anything else.
func Main() {
	if len(os.Args) < 2 {
		return
	}
	if main, ok := roles[os.Args[1]]; ok {
		os.Exit(main(os.Args[2:]))
	}
}

// Command returns the command line that runs a role in a new process of this
// program.
func Command(name string, args ...string) ([]string, error) {
	if _, ok := roles[name]; !ok {
		return nil, fmt.Errorf("no role %q in this program", name)
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to run its %s: %w", name, err)
	}
	return append([]string{exe, name}, args...), nil
}
