package locktest_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/locktest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// inner is set for a test that is to fail, which another test runs.
const inner = "LOCKTEST_INNER"

// failing are tests of locks that are no good, by name.
var failing = map[string]locktest.Config{
	"no-owner-check": {Lock: with(func(l *redisLock) locktest.Lock { return noOwnerCheck{l} }), Scenarios: []string{"frozen-holder"}},
	"short-lease":    {Lock: with(func(l *redisLock) locktest.Lock { return shortLease(l) }), Scenarios: []string{"frozen-holder"}, TTL: 1500 * time.Millisecond},
	"everybody":      {Lock: with(func(l *redisLock) locktest.Lock { return everybody{} }), Scenarios: []string{"no-fault"}},
	"panics":         {Lock: with(func(l *redisLock) locktest.Lock { return panics{l} }), Scenarios: []string{"no-fault"}},
	"hangs":          {Lock: with(func(l *redisLock) locktest.Lock { return hangs{l} }), Scenarios: []string{"testdata/hasty.yaml"}},
	"hangs-allowed":  {Lock: with(func(l *redisLock) locktest.Lock { return hangs{l} }), Scenarios: []string{"testdata/hasty.yaml"}, AllowInconclusive: true},
	"overtime":       {Lock: with(func(l *redisLock) locktest.Lock { return hangs{l} }), Scenarios: []string{"no-fault"}},
	"prints":         {Lock: with(func(l *redisLock) locktest.Lock { return prints{l} }), Scenarios: []string{"no-fault"}},
	"races":          {Lock: with(func(l *redisLock) locktest.Lock { return &races{redisLock: l} }), Scenarios: []string{"no-fault"}},
	"no-connection":  {Lock: func(context.Context, locktest.Env) (locktest.Lock, error) { return nil, errors.New("wrong password") }, Scenarios: []string{"no-fault"}},
	"no-lock":        {Lock: func(context.Context, locktest.Env) (locktest.Lock, error) { return nil, nil }, Scenarios: []string{"no-fault"}},
	"misspelt":       {Lock: newRedisLock, Scenarios: []string{"no-fualt"}},
	"gate":           {Lock: newRedisLock, Gate: []string{"mutexx"}},
	"no-servers":     {Lock: newRedisLock, Servers: locktest.NoServers, Scenarios: []string{"cut-holder"}},
}

// with returns what connects a lock that is made from a correct one.
func with(broken func(*redisLock) locktest.Lock) func(context.Context, locktest.Env) (locktest.Lock, error) {
	return func(ctx context.Context, env locktest.Env) (locktest.Lock, error) {
		l, err := newRedisLock(ctx, env)
		if err != nil {
			return nil, err
		}
		return broken(l.(*redisLock)), nil
	}
}

// noOwnerCheck releases whoever's lock it is.
type noOwnerCheck struct{ *redisLock }

func (l noOwnerCheck) Release(ctx context.Context, key string) error {
	return l.rdb.Del(ctx, key).Err()
}

// shortLease cuts the lease down to whole seconds.
func shortLease(l *redisLock) *redisLock {
	l.ttl = l.ttl.Truncate(time.Second)
	return l
}

// everybody grants everything.
type everybody struct{}

func (everybody) Acquire(context.Context, string, time.Duration) error { return nil }
func (everybody) Release(context.Context, string) error                { return nil }

type panics struct{ *redisLock }

func (panics) Acquire(context.Context, string, time.Duration) error { panic("no such shard") }

// hangs never returns, whatever its context says.
type hangs struct{ *redisLock }

func (hangs) Release(context.Context, string) error { select {} }

// races counts in two goroutines.
type races struct {
	*redisLock
	n int
}

func (r *races) Acquire(ctx context.Context, key string, wait time.Duration) error {
	done := make(chan struct{})
	go func() { defer close(done); r.n++ }()
	r.n++
	<-done
	return r.redisLock.Acquire(ctx, key, wait)
}

// prints has something to say, itself and through a program that it starts.
type prints struct{ *redisLock }

func (p prints) Acquire(ctx context.Context, key string, wait time.Duration) error {
	fmt.Println("acquiring", key)
	echo := exec.Command("echo", "from a child")
	echo.Stdout = os.Stdout
	return errors.Join(echo.Run(), p.redisLock.Acquire(ctx, key, wait))
}

// TestInner has the tests that are to fail. Each is run by a test below.
func TestInner(t *testing.T) {
	if os.Getenv(inner) == "" {
		t.Skip("other tests run this one, to see it fail")
	}
	for name, c := range failing {
		t.Run(name, func(t *testing.T) {
			if c.Servers == "" {
				c.Servers = locktest.Redis
			}
			c.Seed = 1
			locktest.Run(t, c)
		})
	}
}

// runInner runs one of them and returns what go test would print.
func runInner(t *testing.T, name string, env ...string) (output string, passed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := innerCommand(ctx, name, env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "the lock needs redis") && !slices.Contains(env, "PATH=/nonexistent") {
		t.Skip("redis is not installed")
	}
	return string(out), err == nil
}

// innerCommand returns the command that runs one of them.
func innerCommand(ctx context.Context, name string, env ...string) *exec.Cmd {
	args := []string{"-test.v", "-test.run=^TestInner$/^" + name + "$"}
	if name == "overtime" {
		args = append(args, "-test.timeout=7s")
	}
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), inner+"=1", "LOCKCHECK_REQUIRE=", "LOCKCHECK_SEED=", "LOCKCHECK_OUT=")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func TestABrokenLockFailsTheTest(t *testing.T) {
	t.Parallel()
	for name, property := range map[string]string{
		"no-owner-check": "release",
		"short-lease":    "lease",
		"everybody":      "mutex",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, passed := runInner(t, name)
			if passed {
				t.Fatalf("the test passed:\n%s", out)
			}
			golden(t, filepath.Join("testdata", name+".txt"), normal(t, out))
			if want := property + " +VIOLATED"; !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s is not said to be violated:\n%s", property, out)
			}
			for _, want := range []string{
				"failures_test.go:", "LOCKCHECK_SEED=1 go test -count=1 ", "-run '^TestInner$/^" + name + "$/",
				"┃ believes it holds", "client A", "resource",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
		})
	}
}

func TestALockThatCannotBeTestedFailsTheTest(t *testing.T) {
	t.Parallel()
	for name, wants := range map[string][]string{
		"panics":        {"ERROR: ", "client A ended by itself (exit status 2)", "Client A wrote:", "panic: no such shard", "panics.Acquire"},
		"hangs":         {"INCONCLUSIVE: ", "A did not answer to release in time"},
		"no-connection": {"ERROR: ", "Config.Lock: wrong password"},
		"no-lock":       {"ERROR: ", "Config.Lock: it returned neither a lock nor an error"},
		"misspelt":      {`Config.Scenarios: `, `"no-fualt"`, `no-fault`},
		"gate":          {`Config.Gate: unknown property "mutexx": there are mutex, lease`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, passed := runInner(t, name)
			if passed || strings.Contains(out, "VIOLATION") {
				t.Fatalf("want a failure that is no violation:\n%s", out)
			}
			for _, want := range wants {
				if !strings.Contains(out, want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
		})
	}
}

func TestWhatPrintsDoesNotDisturb(t *testing.T) {
	t.Parallel()
	if out, passed := runInner(t, "prints"); !passed {
		t.Errorf("the test failed:\n%s", out)
	}
}

func TestADataRaceInAClientFailsTheTest(t *testing.T) {
	t.Parallel()
	if b, ok := debug.ReadBuildInfo(); !ok || !slices.ContainsFunc(b.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" }) {
		t.Skip("only with go test -race")
	}
	out, passed := runInner(t, "races")
	if passed || !strings.Contains(out, "data race in a client") || !strings.Contains(out, "races).Acquire") {
		t.Errorf("want a failure that tells of the race:\n%s", out)
	}
}

func TestAnInconclusiveRunIsSkippedIfThatIsAllowed(t *testing.T) {
	t.Parallel()
	out, passed := runInner(t, "hangs-allowed")
	if !passed || !strings.Contains(out, "--- SKIP: TestInner/hangs-allowed/hasty") || !strings.Contains(out, "INCONCLUSIVE: ") {
		t.Errorf("want a skip that says why:\n%s", out)
	}
}

func TestWhatIsMissingIsSkippedUnlessItIsRequired(t *testing.T) {
	t.Parallel()
	out, passed := runInner(t, "no-servers")
	if !passed || !strings.Contains(out, "--- SKIP: TestInner/no-servers ") ||
		!strings.Contains(out, "fault partition is one of the network, and the lock has no servers (LOCKCHECK_REQUIRE=1 makes this a failure)") {
		t.Errorf("want a skip that says why:\n%s", out)
	}
	out, passed = runInner(t, "no-servers", "LOCKCHECK_REQUIRE=1")
	if passed || !strings.Contains(out, "LOCKCHECK_REQUIRE is set: nothing may be skipped") {
		t.Errorf("want a failure that says why:\n%s", out)
	}
	out, passed = runInner(t, "everybody", "PATH=/nonexistent")
	if !strings.Contains(out, "the lock needs redis") {
		t.Skip("redis is installed where it is found without PATH")
	}
	if !passed || !strings.Contains(out, "--- SKIP: TestInner/everybody ") {
		t.Errorf("want a skip where the server is missing:\n%s", out)
	}
}

func TestTheTestsTimeIsKept(t *testing.T) {
	t.Parallel()
	out, passed := runInner(t, "overtime")
	if passed || !strings.Contains(out, "give it more with go test -timeout") || strings.Contains(out, "panic: test timed out") {
		t.Errorf("want a run that ends in order before the time does:\n%s", out)
	}
}

// TestNothingIsLeftBehind also when the test is killed in the midst of a run.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("processes are found by their environment in /proc")
	}
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", killed), func(t *testing.T) {
			dir := t.TempDir()
			if killed {
				cmd := innerCommand(t.Context(), "overtime", "TMPDIR="+dir)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				running := await(t, func() bool { return len(processesIn(t, dir)) > 3 }) // clients, a server, the guard
				err := errors.Join(cmd.Process.Kill(), cmd.Wait())
				if !running {
					t.Fatalf("no clients were started (%v)", err)
				}
			} else if out, _ := runInner(t, "no-owner-check", "TMPDIR="+dir); !strings.Contains(out, "VIOLATION") {
				t.Fatalf("want a violation:\n%s", out)
			}
			await(t, func() bool {
				left, err := filepath.Glob(filepath.Join(dir, "lockcheck-*"))
				return err == nil && len(left) == 0 && len(processesIn(t, dir)) == 0
			})
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if ps := processesIn(t, dir); len(left)+len(ps) > 0 {
				t.Errorf("left behind: files %v, processes %v", left, ps)
			}
		})
	}
}

// await waits until done, for no longer than is bearable, and reports whether it is.
func await(t *testing.T, done func() bool) bool {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

// processesIn returns the processes whose folder for temporary files is dir.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		env, err := os.ReadFile(f)
		if err == nil && slices.Contains(strings.Split(string(env), "\x00"), "TMPDIR="+dir) {
			found = append(found, filepath.Base(filepath.Dir(f)))
		}
	}
	return found
}

func TestARunCanBeKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, _ := runInner(t, "everybody", "LOCKCHECK_OUT="+dir)
	runs, err := filepath.Glob(filepath.Join(dir, "*", "report.txt"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("in %s are %v (%v), want one run's report:\n%s", dir, runs, err, out)
	}
	if !strings.Contains(out, filepath.Dir(runs[0])) {
		t.Errorf("%s is not named:\n%s", filepath.Dir(runs[0]), out)
	}
}

// normal is the failure as it is each time: without the times and the diagram,
// which are another each time, and without the line breaks within paragraphs.
func normal(t *testing.T, out string) []byte {
	t.Helper()
	start := strings.Index(out, "VIOLATION: ")
	diagram := strings.Index(out, "client A    ")
	again := strings.Index(out, "Again  ")
	end := strings.Index(out, "--- FAIL")
	if start < 0 || diagram < start || again < diagram || end < again {
		t.Fatalf("not a report with a diagram and a command:\n%s", out)
	}
	head := out[start:diagram]
	head = head[:strings.LastIndex(head, "\n")] // the diagram's own first line
	var b bytes.Buffer
	for _, part := range []string{head, out[again:end]} {
		// A new paragraph begins at the margin of eight, what continues one does not;
		// but the verdict's, which is the first, is broken there.
		if at := strings.Index(part, "\n        \n"); at >= 0 {
			part = strings.ReplaceAll(part[:at], "\n", " ") + part[at:]
		}
		part = regexp.MustCompile(`\n {9,}`).ReplaceAllString(part, " ")
		part = regexp.MustCompile(` +`).ReplaceAllString(part, " ")
		part = regexp.MustCompile(`\n +`).ReplaceAllString(part, "\n")
		part = regexp.MustCompile(`\d+\.\d+ ms`).ReplaceAllString(part, "T ms")
		part = strings.ReplaceAll(part, "go test -count=1 -race ", "go test -count=1 ")
		part = regexp.MustCompile(`redis \d+\.\d+\.\d+`).ReplaceAllString(part, "redis V")
		b.WriteString(strings.TrimSpace(part) + "\n\n")
	}
	return append(bytes.TrimSpace(b.Bytes()), '\n')
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is other than it should be (-update rewrites it):\n%s\n\nwant:\n%s", path, got, want)
	}
}
