package deploy

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockcheck/lockcheck/backends"
)

// Software is a kind of server. It is run by this package, or, if Serve is set,
// inside the harness.
type Software struct {
	Name string // as in backends.Server: "redis"
	// Serve starts a server that listens on l and closes it in the end, and
	// returns its URL and what stops it. After stop it may be started anew, on
	// the same address and without data.
	Serve func(l net.Listener, options map[string]string) (url string, stop func() error, err error)

	// find returns the program, at path or where it is usually installed.
	find func(ctx context.Context, path string) (Binary, error)
	// binary is the software in Options.Bin whose program this is, if it is
	// another's: that of a standby is "postgres".
	binary string
	// cluster says that servers that are started together are one system.
	cluster bool
	// needs returns the names of the servers that must serve before a server
	// can start, as its options name them. Nil means none.
	needs func(backends.Server) []string
	// programs lays out servers. It is called again, with other ports, if a
	// port turns out to be taken.
	programs func(site) ([]program, error)
}

// Binary is a program that was found.
type Binary struct {
	Path    string // "embedded" if it is part of this program
	Version string // as it says itself: "7.0.15"
}

// site is where servers are set up.
type site struct {
	bin     Binary
	servers []backends.Server
	dirs    []string                                                          // their data folders, which do not exist yet
	port    func() (int, error)                                               // returns a free port that nobody else gets
	peer    func(server, addr string, peers []string) (string, error)         // see Options.Peer; nil for none
	host    func(server string) (string, error)                               // see Options.Host; nil for none
	dial    func(ctx context.Context, network, addr string) (net.Conn, error) // see Options.Dial; nil for none
	cache   *Cache
	reach   func(from, to string) (peer, error) // of a server that this one needs
	// contained is set if the servers are containers; nil means processes.
	contained *contained
}

// at returns the address at which the harness and the clients reach a server.
func (s site) at(server string) (string, error) {
	if s.host == nil {
		return "127.0.0.1", nil
	}
	return s.host(server)
}

// program is one server as a process. Its methods are not called concurrently.
type program interface {
	// prepare makes and fills the data folder, which does not exist. Again is set
	// if the server has run before, and has lost its data.
	prepare(ctx context.Context, again bool) error
	// command returns the command to start the server with; its working
	// folder is the data folder.
	command() (*exec.Cmd, error)
	// ready returns nil once the server serves and is the process pid, not
	// another that answers in its place. It is called every few milliseconds.
	// Pid 0 is that of a container, which is at an address of its own.
	ready(ctx context.Context, pid int) error
	// ended clears away what a killed server leaves outside its folder.
	ended() error
	// url is how clients reach the server.
	url() string
	// listens returns the ports that the server listens on.
	listens() []int
}

var software = map[string]Software{}

// Register adds a kind of server. It is called from init functions, and panics
// if the name is taken, since that is a mistake in the program.
func Register(s Software) {
	if _, taken := software[s.Name]; taken {
		panic("software " + s.Name + " is registered twice")
	}
	software[s.Name] = s
}

// Names returns the names of all software, sorted.
func Names() []string { return slices.Sorted(maps.Keys(software)) }

func find(name string) (Software, error) {
	s, ok := software[name]
	if !ok {
		return Software{}, fmt.Errorf("unknown software %q: there are %s", name, strings.Join(Names(), ", "))
	}
	return s, nil
}

// Find looks for the program of a software: at path, or if that is empty on
// PATH and where it is usually installed. The error is [exec.ErrNotFound] if
// there is none. Software that runs inside the harness is always found.
func Find(ctx context.Context, name, path string) (Binary, error) {
	s, err := find(name)
	if err != nil {
		return Binary{}, err
	}
	if s.Serve != nil {
		return Binary{Path: embedded}, nil
	}
	return s.find(ctx, path)
}

// embedded is the path of programs that are part of this one.
const embedded = "embedded"

// locate returns the program at path; or if that is empty the one called name
// on PATH, or else the one of the highest version that matches a pattern.
func locate(path, name string, patterns ...string) (string, error) {
	if path != "" {
		p, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("the %s that was asked for: %w", name, err)
		}
		return p, nil
	}
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, pattern := range patterns {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		slices.SortFunc(matches, func(a, b string) int { return -compareNumbers(a, b) })
		for _, m := range matches {
			if p, err := exec.LookPath(m); err == nil {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("no %s on PATH, nor in the usual places: %w", name, exec.ErrNotFound)
}

// usual returns where package managers put a program, besides what is on
// everybody's PATH.
func usual(name string) []string {
	var all []string
	for _, dir := range []string{"/usr/local/bin", "/usr/local/sbin", "/usr/sbin", "/opt/homebrew/bin", "/snap/bin"} {
		all = append(all, filepath.Join(dir, name))
	}
	return all
}

var number = regexp.MustCompile(`\d+`)

// compareNumbers compares the numbers in two strings, in order.
func compareNumbers(a, b string) int {
	numbers := func(s string) (all []int) {
		for _, d := range number.FindAllString(s, -1) {
			n, _ := strconv.Atoi(d) // too long for a version is 0
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b))
}

// version runs a program and returns what the group of pattern matches in its
// output.
func version(ctx context.Context, path, flag string, pattern *regexp.Regexp) (string, error) {
	cmd := exec.Command(path, flag)
	out, err := output(ctx, cmd)
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	m := pattern.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s %s says %q: no version in it", path, flag, strings.TrimSpace(out))
	}
	return m[1], nil
}

// checkOptions returns an error if an option is named that is not the user's to
// set, or has a value that would not stay on its line in a file.
func checkOptions(s backends.Server, name *regexp.Regexp, ours ...string) error {
	for _, k := range sortedKeys(s.Options) {
		switch {
		case !name.MatchString(k):
			return fmt.Errorf("server %s: %s has no option %q", s.Name, s.Software, k)
		case slices.Contains(ours, k):
			return fmt.Errorf("server %s: the option %q is set by lockcheck itself", s.Name, k)
		case strings.ContainsAny(s.Options[k], "\r\n\x00"):
			return fmt.Errorf("server %s: option %q: a line break in its value", s.Name, k)
		}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
