// Package locktest tests a distributed lock that is written in Go, from go test.
//
//	func TestMyLock(t *testing.T) {
//		locktest.Run(t, locktest.Config{Lock: newMyLock, Servers: locktest.Redis})
//	}
//
//	func newMyLock(ctx context.Context, env locktest.Env) (locktest.Lock, error) {
//		return mylock.Dial(env.URL(), env.TTL)
//	}
//
// [Run] starts real servers on this machine, and each client of the lock as a
// process of its own, so that it can be frozen, killed or cut off for real,
// with every timer and keepalive in it. It disturbs them at the moments that
// matter, records every operation, and judges what was recorded. A violation fails
// the test with the verdict, the events that prove it, a diagram, and the command
// that runs the same again.
//
// # Clients are processes of the test binary
//
// A client is the test binary, run again for just the test that called Run, up to
// there. So whatever the test does before it calls Run, each client does too:
// keep it short, the same each time, and let it start nothing that clients are to
// share. A TestMain is not needed; packages that have one call [Main] in it.
//
// # Skips, and continuous integration
//
// Where a server is not installed, or a fault cannot be injected, the test is
// skipped, with the reason. Set LOCKCHECK_REQUIRE=1 where it must not be: then what
// would be skipped fails. Test results that go test has cached prove nothing new:
// use -count=1.
//
// # Environment
//
//	LOCKCHECK_REQUIRE=1  what would be skipped fails
//	LOCKCHECK_SEED=N     overrides Config.Seed, as the command in a failure does
//	LOCKCHECK_OUT=DIR    overrides Config.Out
package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	_ "github.com/lockcheck/lockcheck/backends/all" // registers their servers
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// Config says what to test, and how. Lock and Servers are required.
type Config struct {
	// Lock connects one client. It is called once in each client's process,
	// and should give up when ctx ends, after five seconds. The servers are new
	// and empty, and all clients connect at the same time: what the first creates
	// there, such as a table, the others must be able to create too.
	Lock func(ctx context.Context, env Env) (Lock, error)
	// Servers are what the lock needs.
	Servers Servers
	// Scenarios are names of built-in scenarios and suites (`lockcheck list
	// scenarios`), or files. Each is a subtest. Default: the suite "ci", a gate
	// for locks of any kind that takes about a minute.
	Scenarios []string

	// TTL is the lease to ask for, of at least 1ms; some servers grant no less
	// than a second, and then that is used. Default: each scenario's own, between
	// 300ms and a few seconds.
	TTL time.Duration
	// NoLease says that grants do not end by themselves, but with their release
	// or the session: as Postgres' advisory locks. Else a grant is taken to
	// last for Env.TTL, counted from the call, unless the lock is a Leaser.
	//
	// A holder that is frozen or cut off may keep such a lock. The scenarios in
	// which another client is to get it meanwhile are then inconclusive: leave
	// them out, allow it, or have the server end idle sessions.
	NoLease bool
	// Resource is what the lock protects: "unfenced", which accepts all writes,
	// or "fenced", which rejects those with an older token than it has seen; see
	// `lockcheck list resources`. Default: the scenario's.
	Resource string

	// Gate names the properties whose violation fails the test: "mutex",
	// "lease", "token", "fence", "state", "release", "liveness". Default: all but
	// those that a scenario excuses, since a correct lock may break them there.
	Gate []string
	// AllowInconclusive skips a scenario that proved nothing, where it fails by
	// default.
	AllowInconclusive bool
	// Repeat is how often to run each scenario; the first run that fails ends
	// that. Default: 1.
	Repeat int
	// Seed is that of everything random; each repeat adds 1. Default: a new one
	// for each Run.
	Seed int64
	// Out is the folder in which the runs' folders are kept. Default: they are
	// removed, or kept as the test's artifacts with go test -artifacts.
	Out string
}

// Servers are the servers that a lock needs: the name of a backend, of which
// `lockcheck list backends` knows more than are here.
type Servers string

const (
	Redis     Servers = "redis"            // one Redis server
	Redlock   Servers = "redlock"          // five Redis servers that know nothing of each other
	Etcd      Servers = "etcd"             // a cluster of three; it is also built in
	Postgres  Servers = "postgres-session" // one PostgreSQL server
	NoServers Servers = "memory"           // none: faults of the network are left out
)

// deadlineGrace is what is left of the test's time to end the run in order.
const deadlineGrace = 5 * time.Second

// Run tests the lock in each scenario, as subtests of t. Several Runs may be
// parallel, but they share this machine's processors, and a pause that nobody
// asked for is a fault as well: a run that was too slow is inconclusive.
func Run(t *testing.T, c Config) {
	t.Helper()
	if process != nil {
		serveAs(t, c)
		return
	}
	s, err := newSuite(c)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	if err := s.available(); err != nil {
		s.skip(t, err.Error())
	}
	s.cache = deploy.NewCache()
	t.Cleanup(func() {
		if err := s.cache.Close(); err != nil {
			t.Errorf("locktest: %v", err)
		}
	})
	ran, judged := false, false
	for _, u := range s.units {
		t.Run(u.name(), func(t *testing.T) {
			t.Helper()
			ran = true
			if why := s.lacks(u.scenario); why != "" {
				s.skip(t, why)
			}
			judged = true
			s.run(t, u)
		})
	}
	if ran && !judged {
		t.Skip("nothing was tested: each scenario was skipped")
	}
}

// serveAs goes on to the subtest that this process is a client of.
func serveAs(t *testing.T, c Config) {
	s, err := newSuite(c)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	for _, u := range s.units {
		t.Run(u.name(), func(t *testing.T) {
			if t.Name() == process.test {
				leave(process.serve(c))
			}
		})
	}
}

// suite is what a Run does.
type suite struct {
	Config
	backend backends.Backend
	units   []unit
	cache   *deploy.Cache
}

// unit is a subtest.
type unit struct {
	scenario *scenarios.Scenario
	resource string // "" is the backend's default
	several  bool   // the scenario runs on several resources
}

func (u unit) name() string {
	if u.several {
		return u.scenario.Name + "-" + u.resource
	}
	return u.scenario.Name
}

// newSuite checks the configuration.
func newSuite(c Config) (*suite, error) {
	s := &suite{Config: c}
	switch {
	case c.Lock == nil:
		return nil, errors.New("Config.Lock is nil: it must connect a client of your lock")
	case c.Servers == "":
		return nil, errors.New("Config.Servers is empty: say locktest.Redis, Etcd, Postgres, … or NoServers")
	case c.TTL < 0:
		return nil, fmt.Errorf("Config.TTL is %v: it cannot be negative", c.TTL)
	case c.Repeat < 0:
		return nil, fmt.Errorf("Config.Repeat is %d: it cannot be negative", c.Repeat)
	}
	for _, p := range c.Gate {
		if !slices.Contains(scenarios.Properties(), p) {
			return nil, fmt.Errorf("Config.Gate: unknown property %q: there are %s", p, strings.Join(scenarios.Properties(), ", "))
		}
	}
	if c.Resource != "" && !slices.Contains(resource.Names(), c.Resource) {
		return nil, fmt.Errorf("Config.Resource: unknown resource %q: there are %s", c.Resource, strings.Join(resource.Names(), ", "))
	}
	var err error
	if s.backend, err = backends.Find(string(c.Servers)); err != nil {
		return nil, fmt.Errorf("Config.Servers: %w", err)
	}
	if seed := os.Getenv("LOCKCHECK_SEED"); seed != "" {
		if s.Seed, err = strconv.ParseInt(seed, 10, 64); err != nil {
			return nil, fmt.Errorf("LOCKCHECK_SEED=%s: it must be a whole number", seed)
		}
	}
	if s.Seed == 0 {
		s.Seed = int64(rand.Uint32())
	}
	s.Out = cmp.Or(os.Getenv("LOCKCHECK_OUT"), s.Out)
	return s, s.load()
}

// load finds the scenarios and checks them.
func (s *suite) load() error {
	names := s.Scenarios
	if len(names) == 0 {
		names = []string{"ci"}
	}
	all, err := scenarios.LoadAll(names...)
	if err != nil {
		return fmt.Errorf("Config.Scenarios: %w", err)
	}
	for _, sc := range all {
		known := scenarios.Known{Backends: backends.Names(), Resources: resource.Names(), Faults: nemesis.Names()}
		known.Params = func(fault string, with map[string]string) error {
			return harness.CheckParams(fault, with, cmp.Or(s.TTL, sc.TTL.Of(0)))
		}
		if err := sc.Check(known); err != nil {
			return fmt.Errorf("Config.Scenarios: %w", err)
		}
		on := sc.Resources
		if s.Resource != "" || len(on) == 0 {
			on = []string{s.Resource}
		}
		for _, r := range on {
			s.units = append(s.units, unit{sc, r, len(on) > 1})
		}
	}
	return nil
}

// available returns nil if all servers of the lock are found here.
func (s *suite) available() error {
	if s.backend.Servers == nil {
		return nil
	}
	for _, server := range s.backend.Servers(backends.Options{TTL: s.TTL}) {
		if _, err := deploy.Find(context.Background(), server.Software, ""); err != nil {
			return fmt.Errorf("the lock needs %s: %w", server.Software, err)
		}
	}
	return nil
}

// lacks says why a scenario cannot be run, or makes no sense here, or "".
func (s *suite) lacks(sc *scenarios.Scenario) string {
	if !sc.Supports(string(s.Servers)) {
		return fmt.Sprintf("scenario %s is not meant for the servers %s: it is for %s", sc.Name, s.Servers, strings.Join(sc.Backends, ", "))
	}
	var faults []string
	for _, step := range sc.Steps {
		faults = append(faults, step.Fault)
	}
	for _, i := range sc.Nemesis {
		faults = append(faults, i.Fault)
	}
	for _, f := range faults {
		if f == "" {
			continue
		}
		kind, err := nemesis.Find(f)
		if err != nil {
			return err.Error()
		}
		if kind.Available != nil {
			if err := kind.Available(); err != nil {
				return fmt.Sprintf("fault %s is not available here: %v", f, err)
			}
		}
		if s.Servers == NoServers && slices.Contains(kind.Needs, nemesis.Links) {
			return fmt.Sprintf("fault %s is one of the network, and the lock has no servers", f)
		}
	}
	return ""
}

// skip skips the test, unless nothing may be skipped.
func (s *suite) skip(t *testing.T, why string) {
	t.Helper()
	if required() {
		t.Fatalf("%s; LOCKCHECK_REQUIRE is set: nothing may be skipped", why)
	}
	t.Skipf("%s (LOCKCHECK_REQUIRE=1 makes this a failure)", why)
}

func required() bool {
	on, err := strconv.ParseBool(os.Getenv("LOCKCHECK_REQUIRE"))
	return on || err != nil && os.Getenv("LOCKCHECK_REQUIRE") != ""
}

// run runs a scenario as often as it is asked for, and tells of the first run
// that fails.
func (s *suite) run(t *testing.T, u unit) {
	t.Helper()
	out, kept, err := s.folder(t)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	ctx := t.Context()
	if end, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-deadlineGrace))
		defer cancel()
	}
	command, err := clientCommand(t.Name())
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	var last *reports.Run
	repeats := max(s.Repeat, 1)
	for n := range repeats {
		seed := s.Seed + int64(n)
		r, err := harness.Run(ctx, u.scenario, harness.Options{
			Backend:  s.backend,
			Resource: u.resource,
			TTL:      s.TTL,
			Seed:     seed,
			Repeat:   n + 1,
			Client:   command,
			Cache:    s.cache,
			Out:      out,
			Replay:   again(t.Name(), seed),
			Gate:     s.Gate,
		})
		if err != nil {
			t.Fatalf("locktest: %v", err)
		}
		race, err := races(r.Dir)
		if err != nil {
			t.Fatalf("locktest: %v", err)
		}
		if race != "" {
			t.Errorf("the race detector found a data race in a client:\n%s", race)
		}
		if last = r; r.Status == reports.Pass {
			continue
		}
		text, err := tell(r, s.Gate, kept)
		if err != nil {
			t.Fatalf("locktest: %v", err)
		}
		if ctx.Err() != nil && t.Context().Err() == nil {
			text = "the test's time was over before the run was: give it more with go test -timeout\n" + text
		}
		if r.Status == reports.Inconclusive && s.AllowInconclusive {
			t.Skip(text)
		}
		t.Fatal(text)
	}
	t.Logf("%d of %d: %s; seed %d", repeats, repeats, strings.TrimSuffix(last.Headline(), "."), s.Seed)
}

// folder returns where the runs' folders go, and whether they are kept there.
func (s *suite) folder(t *testing.T) (dir string, kept bool, err error) {
	if s.Out != "" {
		dir, err = filepath.Abs(s.Out)
		return dir, true, err
	}
	if artifacts() {
		return t.ArtifactDir(), true, nil
	}
	// Not t.TempDir, which a test that is killed leaves behind.
	if dir, err = guard.TempDir(); err != nil {
		return "", false, err
	}
	t.Cleanup(func() {
		if err := guard.RemoveDir(dir); err != nil {
			t.Errorf("locktest: remove the runs' folder: %v", err)
		}
	})
	return dir, false, nil
}
