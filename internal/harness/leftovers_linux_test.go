package harness_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/reports"
)

// schedulesVariable says how many random schedules to run; 10 if it is not set.
const schedulesVariable = "LOCKCHECK_SCHEDULES"

// Random schedules of every fault there is, in a row and in one process, leave
// nothing behind: no process, no temporary file, no open file (a proxy with its
// toxics is one), no goroutine, no rule of a firewall, no namespace, no control
// group; and the machine's clock is as it was.
func TestRandomSchedulesLeaveNothing(t *testing.T) {
	n := 10
	if text := os.Getenv(schedulesVariable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", schedulesVariable, err)
		}
	} else if testing.Short() {
		t.Skip("takes some seconds")
	}
	tmp, err := os.MkdirTemp("", "lockcheck-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil { // for servers that are not root
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	mark := fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano())
	t.Setenv("LOCKCHECK_TEST_RUN", mark)

	cache := deploy.NewCache()
	defer cache.Close()
	base := parse(t, "name: test\nworkload: {clients: 4, work: 0.2 ttl, think: 5ms, renew: 0.08 ttl, check: true, body: rmw, for: 5 ttl}\n")
	// Without those that make no sense on a single Redis server, or beside proxies.
	others := []string{"packets", "disconnect", "failover", "terminate-session"}
	proxied := available(t, slices.DeleteFunc(nemesis.Names(), func(name string) bool { return slices.Contains(others, name) }))
	packets := available(t, []string{"pause", "packets"})
	if _, err := deploy.Find(t.Context(), "postgres", ""); err != nil {
		packets = nil
	}
	statuses := map[reports.Status]int{}
	one := func(seed int64) {
		t.Helper()
		backend, server, kinds := "redis", "redis", proxied
		if len(packets) == 2 && seed%5 == 0 {
			backend, server, kinds = "postgres-session", "postgres", packets
		}
		o := options(t, backend)
		o.Seed, o.Cache = seed, cache
		sc, err := harness.Compose(base, seed, kinds, o.TTL, harness.Topology{Servers: []string{server}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := harness.Run(t.Context(), sc, o)
		if err != nil {
			t.Fatal(err)
		}
		statuses[r.Status]++
		if r.Status == reports.Error {
			t.Errorf("seed %d: %v", seed, r.Reasons)
		}
		if err := os.RemoveAll(r.Dir); err != nil {
			t.Fatal(err)
		}
	}
	one(0) // what is made once and stays, such as the guard, is there after this
	before := leftovers(t, tmp, mark)
	begin := time.Now()
	for i := range n {
		one(int64(1 + i))
	}
	end := time.Now()
	t.Logf("%d schedules in %v: %v", n, end.Sub(begin).Round(time.Second), statuses)
	// Sub is of the monotonic clock, unless there is none.
	if off := end.Round(0).Sub(begin.Round(0)) - end.Sub(begin); off.Abs() > 100*time.Millisecond {
		t.Errorf("the machine's wall clock moved by %v", off)
	}
	// Goroutines and processes need a moment to end.
	after := leftovers(t, tmp, mark)
	for deadline := time.Now().Add(5 * time.Second); after.more(before) && time.Now().Before(deadline); after = leftovers(t, tmp, mark) {
		time.Sleep(20 * time.Millisecond)
	}
	if after.more(before) {
		stacks := make([]byte, 1<<16)
		t.Errorf("left behind:\n%+v\nbefore:\n%+v\n%s", after, before, stacks[:runtime.Stack(stacks, true)])
	}
}

// available are those kinds of faults that can be injected here.
func available(t *testing.T, names []string) []harness.Weighted {
	t.Helper()
	var all []harness.Weighted
	for _, name := range names {
		k, err := nemesis.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if k.Available == nil || k.Available() == nil {
			all = append(all, harness.Weighted{Kind: name, Weight: 1})
		}
	}
	return all
}

// state is what runs might leave behind.
type state struct {
	processes, files, rules, namespaces, groups string
	open, goroutines                            int
}

// more reports whether there is more than before. Files and goroutines of the
// runtime come and go.
func (s state) more(before state) bool {
	if s.open > before.open || s.goroutines > before.goroutines {
		return true
	}
	s.open, s.goroutines = before.open, before.goroutines
	return s != before
}

func leftovers(t *testing.T, tmp, mark string) state {
	t.Helper()
	s := state{goroutines: runtime.NumGoroutine()}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range environs {
		pid := filepath.Base(filepath.Dir(file))
		env, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(env, []byte(mark)) || pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		s.processes += fmt.Sprintf("%s %q\n", pid, cmdline)
	}
	names := func(dir string) string {
		entries, _ := os.ReadDir(dir) // there may be none
		var all []string
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return strings.Join(all, " ")
	}
	s.files, s.namespaces = names(tmp), names("/run/netns")
	s.groups = emptyGroups(t)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	s.open = len(entries)
	// Only rules such as the faults make: an engine of containers, which other
	// tests use, has rules that come and go.
	for _, of := range []struct{ list, ours string }{{"nft list ruleset", "lockcheck"}, {"iptables-save", "-A INPUT"}} {
		argv := strings.Fields(of.list)
		out, _ := exec.Command(argv[0], argv[1:]...).Output() // it need not be installed
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, of.ours) {
				s.rules += line
			}
		}
	}
	return s
}

// emptyGroups are the control groups of faults that no process is in: those of
// other tests that run now have some, but for a moment.
func emptyGroups(t *testing.T) (all string) {
	t.Helper()
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !strings.HasPrefix(d.Name(), "lockcheck-") {
			return nil // it went meanwhile, or there are none here
		}
		if members, err := os.ReadFile(filepath.Join(path, "cgroup.procs")); err == nil && len(members) == 0 {
			all += path + "\n"
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
