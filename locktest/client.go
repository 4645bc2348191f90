package locktest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// clientRole is the first argument of a client process. The second is the name of
// the test that it is a client of, and those of the user's own flags follow.
const clientRole = "locktest-client"

// openTimeout bounds Config.Lock in addition to its context.
const openTimeout = 10 * time.Second

// process is what this process is a client of, or nil in the test's own process.
var process = role()

// role plays the part that this process was started for.
//
// It runs before any test, and before TestMain: a lock server, or the guard that
// cleans up after a test that was killed, must not run the user's code. A client
// must, since only the user's test knows what Config.Lock is. So its command line
// becomes that of `go test -run` of just that test, which comes to Run as it did in
// the process that started it; there Run serves. Everything else about the
// client is the same, also the flags that the user's package has.
func role() *clientProcess {
	if !testing.Testing() {
		return nil // a program may import this package, and has arguments of its own
	}
	selfexec.Main()
	if len(os.Args) < 3 || os.Args[1] != clientRole {
		return nil
	}
	p := &clientProcess{test: os.Args[2]}
	// No time limit: it ends with the harness.
	os.Args = append([]string{os.Args[0], "-test.run=" + only(p.test), "-test.timeout=0"}, os.Args[3:]...)
	// Whatever prints to standard output by mistake, the lock or what it starts,
	// must not be taken for an answer.
	out, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.Dup2(2, 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "locktest: keep standard output for answers:", err)
		os.Exit(1)
	}
	p.out = os.NewFile(uintptr(out), "answers")
	return p
}

// only returns the pattern that -test.run needs to match the test and no other.
func only(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// clientCommand returns the command line of a client of the test.
func clientCommand(test string) ([]string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the test binary, to run clients from it: %w", err)
	}
	return append([]string{exe, clientRole, test}, ownArgs(os.Args[1:])...), nil
}

// ownArgs are the arguments that are not go test's, and -test.short, on which the
// way to Run may depend.
func ownArgs(args []string) []string {
	var own []string
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(strings.TrimPrefix(args[i], "-"), "=")
		name = strings.TrimPrefix(name, "-")
		switch {
		case !strings.HasPrefix(args[i], "-test.") && !strings.HasPrefix(args[i], "--test."):
			own = append(own, args[i])
		case name == "test.short":
			own = append(own, args[i])
		case !hasValue && !boolFlag(name) && i+1 < len(args):
			i++ // its value
		}
	}
	return own
}

// boolFlag reports whether the flag needs no value.
func boolFlag(name string) bool {
	switch name {
	case "test.v", "test.failfast", "test.paniconexit0", "test.benchmem", "test.artifacts", "test.fullpath":
		return true
	}
	return false
}

// Main is for packages that have a TestMain which sets things up. Call it
// there first:
//
//	func TestMain(m *testing.M) {
//		locktest.Main(m)
//		defer setUp()()
//		m.Run()
//	}
//
// In the processes of clients it runs the test that they are clients of, and
// exits, so that they do not set up the same again; else it does nothing.
// Packages without a TestMain need none for this.
func Main(m *testing.M) {
	if process != nil {
		os.Exit(m.Run())
	}
}

// leave ends a client process. Unlike os.Exit it does not wait for a second in
// binaries with the race detector, in each of which races are told as they happen.
func leave(status int) { syscall.Exit(status) }

// clientProcess is a process that is a client.
type clientProcess struct {
	test string   // whose client it is
	out  *os.File // where answers go
}

// serve is the client. It returns the exit status.
func (p *clientProcess) serve(c Config) int {
	defer crash()
	ctx := context.Background()
	in := bufio.NewReader(os.Stdin)
	// What the lock can do shows when it is open, and is part of the answer to
	// the first request: so that is read here, and then again by who answers it.
	first, err := in.ReadBytes('\n')
	if err != nil {
		return 0 // the harness is gone
	}
	b := backends.Backend{Name: "my lock", Leased: !c.NoLease}
	lock, env, err := p.open(ctx, c, first)
	if err == nil {
		_, b.Tokens = lock.(Tokener)
		b.Name = fmt.Sprintf("%T", lock)
	}
	b.Open = func(context.Context, backends.Config) (backends.Client, error) {
		if err != nil {
			return nil, fmt.Errorf("Config.Lock: %w", err)
		}
		ttl := env.TTL
		if c.NoLease {
			ttl = 0
		}
		return adapt(lock, ttl), nil
	}
	if err := client.Serve(ctx, io.MultiReader(bytes.NewReader(first), in), p.out, b); err != nil {
		fmt.Fprintln(os.Stderr, "locktest:", err)
		return 1
	}
	return 0
}

// open calls Config.Lock with what the first request says.
func (p *clientProcess) open(ctx context.Context, c Config, first []byte) (Lock, Env, error) {
	var r client.Request
	if err := json.Unmarshal(first, &r); err != nil {
		return nil, Env{}, fmt.Errorf("the first request: %w", err)
	}
	env := Env{Process: r.Process, TTL: time.Duration(r.TTL) * time.Millisecond}
	if c.Servers != NoServers {
		for _, s := range r.Servers {
			env.URLs = append(env.URLs, s.URL)
		}
	}
	watchdog := time.AfterFunc(openTimeout, func() {
		fmt.Fprintf(os.Stderr, "locktest: Config.Lock did not return within %v\n", openTimeout)
		os.Exit(1)
	})
	defer watchdog.Stop()
	ctx, cancel := context.WithTimeout(ctx, openTimeout/2)
	defer cancel()
	l, err := c.Lock(ctx, env)
	if err == nil && l == nil {
		err = fmt.Errorf("it returned neither a lock nor an error")
	}
	return l, env, err
}

// crash ends the process when the lock has panicked, as that would end the
// user's. What it says is shown with the failure.
func crash() {
	if p := recover(); p != nil {
		fmt.Fprintf(os.Stderr, "panic: %v\n\n%s", p, debug.Stack())
		os.Exit(2)
	}
}
