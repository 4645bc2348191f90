package nemesis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/nemesis/starve"
)

func init() { selfexec.Register("test-grower", grower) }

// grower takes as many bytes of memory as each line that it reads says, starts a
// thread and a child, and answers with their ids.
func grower([]string) int {
	var taken [][]byte
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, err := strconv.Atoi(in.Text())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		memory := make([]byte, n)
		for i := 0; i < n; i += 4096 {
			memory[i] = 1
		}
		taken = append(taken, memory)
		tid := make(chan int)
		go func() {
			runtime.LockOSThread()
			tid <- threadID()
			select {}
		}()
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(<-tid, child.Process.Pid)
	}
	runtime.KeepAlive(taken)
	return 0
}

// growing is a target that grows when it is told to.
type growing struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func (g *growing) Name() string         { return "A" }
func (g *growing) PIDs() ([]int, error) { return guard.Tree(g.cmd.Process.Pid) }

func startGrowing(t *testing.T) *growing {
	t.Helper()
	argv, err := selfexec.Command("test-grower")
	if err != nil {
		t.Fatal(err)
	}
	g := &growing{cmd: exec.Command(argv[0], argv[1:]...)}
	g.cmd.Stderr = os.Stderr
	// A signal that comes while there is no memory ends it, see memory.
	g.cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.out = bufio.NewReader(out)
	if err := guard.Start(g.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.kill(t) })
	return g
}

func (g *growing) kill(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := guard.Kill(ctx, g.cmd); err != nil {
		t.Error(err)
	}
	_ = g.cmd.Wait()
	guard.Forget(g.cmd)
}

func (g *growing) ask(t *testing.T, memory int) {
	t.Helper()
	if _, err := fmt.Fprintln(g.in, memory); err != nil {
		t.Fatal(err)
	}
}

// grown returns the thread and the child that it has started.
func (g *growing) grown(t *testing.T) (tid, pid int) {
	t.Helper()
	if _, err := fmt.Fscanln(g.out, &tid, &pid); err != nil {
		t.Fatal(err)
	}
	return tid, pid
}

// where says which processors a thread may run on, and its control groups.
func where(t *testing.T, tid int) string {
	t.Helper()
	cpus, err := starve.Affinity(tid)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", tid))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("on processors %v in %q", cpus, groups)
}

func expect(t *testing.T, want string, tids ...int) {
	t.Helper()
	for _, tid := range tids {
		if is := where(t, tid); is != want {
			t.Errorf("thread %d is %s, want %s", tid, is, want)
		}
	}
}

// busy is a target that wants all the time it can get.
type busy struct{ *starve.Burners }

func (b busy) Name() string         { return "B" }
func (b busy) PIDs() ([]int, error) { return b.Burners.PIDs(), nil }

func startBusy(t *testing.T) busy {
	t.Helper()
	b, err := starve.StartBurners(t.Context(), 1, starve.Anywhere)
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return busy{b}
}

// takes returns how long it takes until the target has run for so long.
func (b busy) takes(t *testing.T, toRun time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	before, err := b.Used()
	if err != nil {
		t.Fatal(err)
	}
	err = await(t.Context(), fmt.Sprintf("the target runs for %v", toRun), func() (bool, error) {
		now, err := b.Used()
		return now-before >= toRun, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

func startFault(t *testing.T, kind string, params map[string]string) Fault {
	t.Helper()
	k, err := Find(kind)
	if err != nil {
		t.Fatal(err)
	}
	f, err := k.New(params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := f.Heal(ctx); err != nil {
			t.Errorf("heal: %v", err)
		}
	})
	return f
}

// eachMechanism runs a test with each that works here.
func eachMechanism(t *testing.T, test func(t *testing.T, f Fault, share float64)) {
	for _, m := range []struct {
		by        string
		share     float64
		available func() error
	}{
		{byQuota, 0.02, quotaAvailable},
		{byCrowd, 0.1, crowdAvailable},
	} {
		t.Run(m.by, func(t *testing.T) {
			if err := m.available(); err != nil {
				t.Skip(err)
			}
			test(t, startFault(t, "cpu", map[string]string{"by": m.by, "share": fmt.Sprint(m.share)}), m.share)
		})
	}
}

func TestCPULeavesAShare(t *testing.T) {
	eachMechanism(t, func(t *testing.T, f Fault, share float64) {
		b := startBusy(t)
		b.takes(t, 50*time.Millisecond)
		proof, err := f.Inject(t.Context(), []Target{b})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(proof)
		// What the target itself gets now, of as much as it would like.
		const toRun = 20 * time.Millisecond
		if took, least := b.takes(t, toRun), time.Duration(float64(toRun)/share)/3; took < least {
			t.Errorf("it has run for %v after %v, want after %v at least", toRun, took, least)
		}
		for range 2 { // healing again must be harmless
			healed, err := f.Heal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Log(healed)
		}
		b.takes(t, 200*time.Millisecond)
	})
}

func TestCPUHealsWhatWasStartedMeanwhile(t *testing.T) {
	eachMechanism(t, func(t *testing.T, f Fault, _ float64) {
		g := startGrowing(t)
		g.ask(t, 0)
		tid, pid := g.grown(t)
		before := where(t, tid)
		if _, err := f.Inject(t.Context(), []Target{g}); err != nil {
			t.Fatal(err)
		}
		g.ask(t, 0)
		newTID, newPID := g.grown(t)
		during := where(t, newTID)
		if during == before {
			t.Error("a new thread is not starved")
		}
		expect(t, during, g.cmd.Process.Pid, tid, pid, newPID)
		if _, err := f.Heal(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, before, g.cmd.Process.Pid, tid, pid, newTID, newPID)
	})
}

func TestCPUHealsWhatDied(t *testing.T) {
	eachMechanism(t, func(t *testing.T, f Fault, _ float64) {
		g := startGrowing(t)
		if _, err := f.Inject(t.Context(), []Target{g}); err != nil {
			t.Fatal(err)
		}
		g.kill(t)
		if _, err := f.Heal(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCPUCutShort(t *testing.T) {
	eachMechanism(t, func(t *testing.T, f Fault, _ float64) {
		b := startBusy(t)
		pid := b.Burners.PIDs()[0]
		before := where(t, pid)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Inject(ctx, []Target{b}); err == nil {
			t.Error("injected although there was no time")
		}
		if _, err := f.Heal(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, before, pid)
	})
}

// several is a target of any processes.
type several []int

func (several) Name() string           { return "several" }
func (s several) PIDs() ([]int, error) { return s, nil }

// refuses tests that a fault refuses what it cannot act on.
func refuses(t *testing.T, f Fault, kind string) {
	for _, tt := range []struct {
		targets []Target
		want    string
	}{
		{nil, "no target"},
		{[]Target{named("lock")}, "lock: it is not made of processes"},
		{[]Target{several{}}, "several: no process is running"},
	} {
		if _, err := f.Inject(t.Context(), tt.targets); err == nil || err.Error() != kind+": "+tt.want {
			t.Errorf("error is %v, want %s: %s", err, kind, tt.want)
		}
		if _, err := f.Heal(t.Context()); err != nil {
			t.Errorf("heal: %v", err)
		}
	}
}

func TestCPUFails(t *testing.T) {
	eachMechanism(t, func(t *testing.T, f Fault, _ float64) { refuses(t, f, "cpu") })
}

// On version 2 a process is in one group only, so that the second fault would
// end the first; on version 1 the groups would have to be healed in order.
func TestCPUOfWhatAQuotaIsOnAlready(t *testing.T) {
	if err := quotaAvailable(); err != nil {
		t.Skip(err)
	}
	b := startBusy(t)
	first, second := &quota{share: 0.1}, &quota{share: 0.1}
	t.Cleanup(func() {
		for _, f := range []Fault{second, first} {
			if _, err := f.Heal(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := first.Inject(t.Context(), []Target{b}); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Inject(t.Context(), []Target{b}); err == nil || !strings.Contains(err.Error(), "already, that of another fault") {
		t.Errorf("second: %v", err)
	}
}

func TestCPUParams(t *testing.T) {
	for _, tt := range []struct {
		params map[string]string
		want   string // in the error
	}{
		{map[string]string{"share": "0"}, `share is "0", want a number from 0.001 to 0.5`},
		{map[string]string{"share": "0.6"}, "want a number"},
		{map[string]string{"share": "NaN"}, "want a number"},
		{map[string]string{"share": "much"}, "want a number"},
		{map[string]string{"by": "magic"}, "want quota, crowd or nothing"},
		{map[string]string{"by": "crowd", "share": "0.01"}, "no less than 0.05"},
		{map[string]string{"by": "crowd", "share": "0.2"}, ""},
		{map[string]string{"by": "quota", "share": "0.01"}, ""},
		{nil, ""},
	} {
		_, err := newCPU(tt.params)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.params, err, tt.want)
		}
	}
}

func TestQuotaTimes(t *testing.T) {
	for _, tt := range []struct {
		share      float64
		of, period time.Duration
	}{
		{0.5, 50 * time.Millisecond, 100 * time.Millisecond},
		{0.01, time.Millisecond, 100 * time.Millisecond},
		{0.003, time.Millisecond, 333333 * time.Microsecond},
		{0.001, time.Millisecond, time.Second},
	} {
		if of, period := (&quota{share: tt.share}).times(); of != tt.of || period != tt.period {
			t.Errorf("%v: %v in %v, want %v in %v", tt.share, of, period, tt.of, tt.period)
		}
	}
}

// The proof must not be one of whatever happens.
func TestCrowdThatIsTooSmallIsNoProof(t *testing.T) {
	if err := crowdAvailable(); err != nil {
		t.Skip(err)
	}
	cpus, err := starve.Affinity(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	few, err := starve.StartBurners(t.Context(), 2, cpus[0])
	t.Cleanup(func() {
		if err := few.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{share: 0.05, cpu: cpus[0], busy: few}
	if said, err := c.measure(t.Context()); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%q, %v", said, err)
	}
}
