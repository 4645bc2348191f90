//go:build linux && amd64

package clock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/internal/execstop/stoptest"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/nemesis"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

func TestCodeIsBuiltFromItsSource(t *testing.T) {
	for _, tool := range []string{"as", "objcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs binutils: ", err)
		}
	}
	dir := t.TempDir()
	obj, bin := filepath.Join(dir, "o"), filepath.Join(dir, "bin")
	for _, argv := range [][]string{
		{"as", "-o", obj, "clock_amd64.S"},
		{"objcopy", "-O", "binary", "-j", ".text", obj, bin},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	built, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(built, code) {
		t.Error("clock_amd64.bin is not what clock_amd64.S makes: run go generate")
	}
	if len(code) > pageSize {
		t.Errorf("the code is %d bytes long, a page is %d", len(code), pageSize)
	}
}

// teller is a process that says what time it is when asked with a line.
type teller struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	stop func()
}

func newTeller(t testing.TB, c *Control, o execstop.Options, argv ...string) *teller {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := execstop.Start(cmd, o, patches(c)...); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		in.Close() // at which it ends
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", argv, err)
		}
	})
	t.Cleanup(stop)
	return &teller{t: t, cmd: cmd, in: in, out: bufio.NewReader(out), stop: stop}
}

// ask returns the numbers of the answer.
func (p *teller) ask() []float64 {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	var answer []float64
	for _, f := range strings.Fields(line) {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			p.t.Fatalf("answer %q: %v", line, err)
		}
		answer = append(answer, x)
	}
	return answer
}

func init() {
	selfexec.Register("clock-test-tell", func([]string) int {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			fmt.Printf("%.9f %.9f\n", float64(time.Now().UnixNano())/1e9, float64(nanotime())/1e9)
		}
		return 0
	})
	// Prints what an answer from the clock costs, in ns.
	selfexec.Register("clock-test-cost", func([]string) int {
		const n = 2_000_000
		start, _ := now(monotonic)
		for range n {
			_ = nanotime()
		}
		end, _ := now(monotonic)
		fmt.Println(float64(end-start) / n)
		return 0
	})
}

const perlTell = `use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC time); $| = 1;
	printf "%.6f %.6f\n", time, clock_gettime(CLOCK_MONOTONIC) while <STDIN>;`

// tellers are command lines of programs that tell wall and monotonic time.
func tellers(t *testing.T) map[string][]string {
	goTell, err := selfexec.Command("clock-test-tell")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{"go": goTell}
	for name, argv := range map[string][]string{
		"perl":            {"perl", "-e", perlTell},
		"forked perl":     {"perl", "-e", "if (my $pid = fork) { close STDIN; waitpid $pid, 0; exit $?>>8 }" + perlTell},
		"behind env":      {"env", "nice", "perl", "-e", perlTell},
		"python":          {"/usr/bin/python3", "-uc", "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic())"},
		"bash, wall only": {"bash", "-c", "while read; do echo $EPOCHREALTIME; done"},
		"node":            {"node", "-e", "require('readline').createInterface({input: process.stdin}).on('line', () => console.log(Date.now()/1e3, Number(process.hrtime.bigint())/1e9))"},
	} {
		if _, err := exec.LookPath(argv[0]); err == nil {
			all[name] = argv
		}
	}
	return all
}

func TestProgramsFollowTheirClock(t *testing.T) {
	for name, argv := range tellers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newControl(t)
			p := newTeller(t, c, execstop.Options{}, argv...)
			check := func(when string, do func() error) {
				t.Helper()
				if err := do(); err != nil {
					t.Fatal(when, err)
				}
				// To the µs, between what the clock showed before and after.
				wall0, mono0, err0 := c.Now()
				got := p.ask()
				wall1, mono1, err1 := c.Now()
				if err := errors.Join(err0, err1); err != nil {
					t.Fatal(err)
				}
				const e = 2e-3 // node and printing round to ms
				if lo, hi := float64(wall0.UnixNano())/1e9-e, float64(wall1.UnixNano())/1e9+e; got[0] < lo || got[0] > hi {
					t.Errorf("%s: wall clock %.6f, want %.6f to %.6f", when, got[0], lo, hi)
				}
				if len(got) < 2 {
					return
				}
				if lo, hi := mono0.Seconds()-e, mono1.Seconds()+e; got[1] < lo || got[1] > hi {
					t.Errorf("%s: monotonic clock %.6f, want %.6f to %.6f", when, got[1], lo, hi)
				}
			}
			check("at first", func() error { return nil })
			check("wall +1 h", func() error { return c.Jump(time.Hour, 0) })
			check("wall -2 h", func() error { return c.Jump(-2*time.Hour, 0) })
			check("monotonic +1 h", func() error { return c.Jump(0, time.Hour) })
			check("rates", func() error { return c.Rate(10, 0.1) })
			check("reset", c.Reset)
			check("both", func() error { return c.Jump(time.Minute, time.Minute) })
			if err := c.Follows(p.cmd.Process.Pid); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestScriptThatEndsInExec(t *testing.T) {
	perl := stoptest.Need(t, "perl")
	script := []string{"sh", "-c", `test -n 1; exec "$0" -e "$1"`, perl, perlTell}
	t.Run("named program", func(t *testing.T) {
		c := newControl(t)
		p := newTeller(t, c, execstop.Options{Program: "perl"}, script...)
		if err := c.Jump(time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		if off := p.ask()[0] - float64(time.Now().Unix()); off < 3590 || off > 3610 {
			t.Errorf("wall clock is off by %v s, want 3600", off)
		}
	})
	t.Run("nothing named: the loss shows", func(t *testing.T) {
		c := newControl(t)
		p := newTeller(t, c, execstop.Options{}, script...)
		p.ask() // perl runs now
		err := c.Follows(p.cmd.Process.Pid)
		if err == nil || !strings.Contains(err.Error(), "perl") {
			t.Errorf("error %v, want one that names perl", err)
		}
	})
}

func TestProcessOfAnotherControlOrNoneDoesNotFollow(t *testing.T) {
	perl := stoptest.Need(t, "perl")
	a, b := newControl(t), newControl(t)
	pa := newTeller(t, a, execstop.Options{}, perl, "-e", perlTell)
	pb := newTeller(t, b, execstop.Options{}, perl, "-e", perlTell)
	none := newTeller(t, nil, execstop.Options{}, perl, "-e", perlTell)
	if err := a.Jump(time.Hour, time.Hour); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if off := pa.ask()[0] - float64(before.Unix()); off < 3590 {
		t.Errorf("the process is %v s off, want 3600", off)
	}
	for name, p := range map[string]*teller{"of another control": pb, "without": none} {
		if off := p.ask()[0] - float64(before.Unix()); off < -1 || off > 60 {
			t.Errorf("process %s is %v s off", name, off)
		}
		if err := a.Follows(p.cmd.Process.Pid); err == nil {
			t.Errorf("process %s is said to follow", name)
		}
	}
	if err := a.Follows(os.Getpid()); err == nil {
		t.Error("this process is said to follow")
	}
}

func TestProcessCanNotSetItsClock(t *testing.T) {
	c := newControl(t)
	_, err := syscall.Mmap(int(c.file.Fd()), 0, pageSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if !errors.Is(err, syscall.EPERM) {
		t.Errorf("mapping the page for writing: error %v, want EPERM", err)
	}
}

// The monotonic clocks, coarse ones too, are read in a tight loop while they are
// changed all the time.
func TestMonotonicClocksNeverGoBack(t *testing.T) {
	perl := stoptest.Need(t, "perl")
	c := newControl(t)
	cmd := exec.Command(perl, "-e", `
		use Time::HiRes qw(clock_gettime); $| = 1; my @last;
		print "ready\n";
		for (1 .. 5000) {
			for my $clock (1, 4, 6, 7) { # MONOTONIC, RAW, COARSE, BOOTTIME
				my $t = clock_gettime $clock;
				die "clock $clock went back from $last[$clock] to $t" if $t < ($last[$clock] // 0);
				$last[$clock] = $t;
			}
		}`)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := execstop.Start(cmd, execstop.Options{}, c); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	rng := rand.New(rand.NewPCG(1, 2))
	for changes := 0; ; changes++ {
		rate := []float64{0.001, 0.1, 1, 2, 30}[rng.IntN(5)]
		if err := errors.Join(c.Rate(1, rate), c.Jump(0, time.Duration(rng.IntN(1000)))); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(10) == 0 {
			if err := c.Reset(); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-ended:
			if err != nil || changes < 10 {
				t.Fatalf("after %d changes: %v", changes, err)
			}
			t.Logf("%d changes", changes)
			return
		default:
		}
	}
}

func TestStrobe(t *testing.T) {
	c := newControl(t)
	if err := c.Strobe(5*time.Millisecond, -time.Hour); err != nil {
		t.Fatal(err)
	}
	proof, err := c.probe(t.Context(), 20*time.Millisecond, Wall)
	if err != nil {
		t.Fatal(err)
	}
	if want := "wall strobes by -1h0m0s every 5ms"; proof != want {
		t.Errorf("proof %q, want %q", proof, want)
	}
}

func TestManyStartsAtOnce(t *testing.T) {
	perl := stoptest.Need(t, "perl")
	c := newControl(t)
	if err := c.Jump(time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			cmd := exec.Command(perl, "-e", "print time")
			var out strings.Builder
			cmd.Stdout = &out
			if err := execstop.Start(cmd, execstop.Options{}, c); err != nil {
				t.Error(err)
				return
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			s, err := strconv.ParseInt(out.String(), 10, 64)
			if off := s - time.Now().Unix(); err != nil || off < 3500 {
				t.Errorf("answer %q (%v), want an hour ahead", out.String(), err)
			}
		})
	}
	wg.Wait()
}

// server is a target with one server process.
type server struct {
	name  string
	cmd   *exec.Cmd
	clock *Control
	read  func(ctx context.Context) (time.Time, error)
}

func (s *server) Name() string         { return s.name }
func (s *server) Clock() *Control      { return s.clock }
func (s *server) PIDs() ([]int, error) { return []int{s.cmd.Process.Pid}, nil }
func (s *server) ReadClock(ctx context.Context) (time.Time, error) {
	return s.read(ctx)
}

// patches are those that give a process the clock c, none for nil.
func patches(c *Control) []execstop.Patch {
	if c == nil {
		return nil
	}
	return []execstop.Patch{c}
}

func startRedis(t testing.TB, c *Control) (*server, *redis.Client) {
	t.Helper()
	cmd, db := stoptest.Redis(t, patches(c))
	return &server{"redis", cmd, c, func(ctx context.Context) (time.Time, error) { return db.Time(ctx).Result() }}, db
}

func TestFaultOnRedis(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params map[string]string
		proof  []string
	}{
		{"jump", map[string]string{"jump": "10s"}, []string{"processes that have the clock: 1 of 1", "probe shows wall +10.000s at rate", "it says that the time is +10.0"}},
		{"back", map[string]string{"jump": "-60s"}, []string{"probe shows wall -60.000s at rate", "it says that the time is -"}},
		{"rate", map[string]string{"rate": "1.5"}, []string{"at rate 1.500"}},
		{"both", map[string]string{"jump": "1h", "family": "both"}, []string{"wall +3600.", "monotonic +3600.", "it says that the time is +3600."}},
		{"strobe", map[string]string{"strobe": "10ms,-1m"}, []string{"wall strobes by -1m0s every 10ms"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newControl(t)
			target, _ := startRedis(t, c)
			kind, err := nemesis.Find("clock")
			if err != nil {
				t.Fatal(err)
			}
			f, err := kind.New(tt.params)
			if err != nil {
				t.Fatal(err)
			}
			proof, err := f.Inject(t.Context(), []nemesis.Target{target})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.proof {
				if !strings.Contains(string(proof), want) {
					t.Errorf("proof %q, want %q in it", proof, want)
				}
			}
			for range 2 {
				healed, err := f.Heal(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Log(proof, "\nhealed: ", healed)
			}
			got, err := target.ReadClock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if off := time.Since(got); off.Abs() > time.Second {
				t.Errorf("after Heal the clock is %v off", off)
			}
		})
	}
}

// A target whose clock is not what the control says is found out.
func TestFaultWithoutEffectIsAnError(t *testing.T) {
	perl := stoptest.Need(t, "perl")
	inject := func(target nemesis.Target) error {
		f := &fault{spec: spec{jump: time.Hour, rate: 1, family: Wall}}
		_, err := f.Inject(t.Context(), []nemesis.Target{target})
		_, healErr := f.Heal(t.Context())
		return errors.Join(err, healErr)
	}
	truth := func(context.Context) (time.Time, error) { return time.Now(), nil }

	c := newControl(t)
	none := newTeller(t, nil, execstop.Options{}, perl, "-e", perlTell)
	if err := inject(&server{"A", none.cmd, c, truth}); err == nil || !strings.Contains(err.Error(), "does not have this clock") {
		t.Errorf("process without the clock: error %v", err)
	}
	has := newTeller(t, c, execstop.Options{}, perl, "-e", perlTell)
	if err := inject(&server{"A", has.cmd, c, truth}); err == nil || !strings.Contains(err.Error(), "want +3600") {
		t.Errorf("target that says the true time: error %v", err)
	}
	if err := inject(&server{"A", has.cmd, nil, truth}); err == nil {
		t.Error("target without a clock: no error")
	}
}

func TestRedisExpiresByItsWallClock(t *testing.T) {
	c := newControl(t)
	_, db := startRedis(t, c)
	ctx := t.Context()
	set := func(ttl time.Duration) {
		t.Helper()
		if err := db.Set(ctx, "lock", "A", ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	held := func() bool {
		t.Helper()
		n, err := db.Exists(ctx, "lock").Result()
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	set(time.Minute)
	do(c.Jump(0, time.Hour))
	if !held() {
		t.Error("the lock is gone after a monotonic jump")
	}
	do(c.Jump(2*time.Minute, 0))
	if held() {
		t.Error("the lock is held after a jump past its TTL")
	}
	do(c.Reset())

	set(100 * time.Millisecond)
	do(c.Jump(-50*time.Second, 0))
	time.Sleep(200 * time.Millisecond) // what does not happen has no event
	if !held() {
		t.Error("the lock is gone after a jump back")
	}
	do(c.Reset())
	if held() {
		t.Error("the lock outlived its TTL though the clock is true again")
	}

	do(c.Rate(10, 1))
	start := time.Now()
	set(2 * time.Second)
	for held() && time.Since(start) < 2*time.Second {
		time.Sleep(time.Millisecond)
	}
	if d := time.Since(start); d < 190*time.Millisecond || d > time.Second {
		t.Errorf("a lock of 2 s at rate 10 lasted %v, want about 200 ms", d)
	}
}

func TestPostgresAsAnotherUser(t *testing.T) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // a constant pattern is well-formed
	if len(bins) == 0 {
		t.Skip("no postgres in /usr/lib/postgresql")
	}
	bin := bins[len(bins)-1]
	u, err := user.Lookup("postgres")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs root and the user postgres")
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	dir, err3 := os.MkdirTemp("", "lockcheck-clock-")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	as := func(argv ...string) *exec.Cmd {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := as(bin+"/initdb", "-D", data, "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	c := newControl(t)
	port := stoptest.FreePort(t)
	cmd := as(bin+"/postgres", "-D", data, "-p", port, "-k", dir, "-h", "127.0.0.1", "-F")
	stoptest.Start(t, cmd, c)
	read := func(ctx context.Context) (time.Time, error) {
		psql := exec.CommandContext(ctx, bin+"/psql", "-h", "127.0.0.1", "-p", port, "-U", "postgres", "-Atc", "select extract(epoch from clock_timestamp())")
		out, err := psql.Output()
		if err != nil {
			return time.Time{}, err
		}
		s, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		return time.UnixMicro(int64(s * 1e6)), err
	}
	stoptest.Eventually(t, func(ctx context.Context) error { _, err := read(ctx); return err })
	f := &fault{spec: spec{jump: 10 * time.Second, rate: 1, family: Wall}}
	proof, err := f.Inject(t.Context(), []nemesis.Target{&server{"pg", cmd, c, read}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(proof), "it says that the time is +10.") {
		t.Errorf("proof %q", proof)
	}
	t.Log(proof)
	if _, err := f.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestEtcd(t *testing.T) {
	etcd := stoptest.Need(t, "etcd")
	c := newControl(t)
	if err := c.Jump(24*time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	client, peer := "http://127.0.0.1:"+stoptest.FreePort(t), "http://127.0.0.1:"+stoptest.FreePort(t)
	cmd := exec.Command(etcd, "--data-dir", t.TempDir(), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--logger", "zap")
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stoptest.Start(t, cmd, c)
	line, err := bufio.NewReader(logs).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Now().UTC().Add(24 * time.Hour).Format(time.DateOnly); !strings.Contains(line, want) {
		t.Errorf("first line of the log is %q, want the date %s in it", line, want)
	}
	if err := c.Follows(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
}

// The true clock, then one that can be changed, then one that is.
func BenchmarkClockGettime(b *testing.B) {
	argv, err := selfexec.Command("clock-test-cost")
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		of   func(b *testing.B) []execstop.Patch
	}{
		{"true", func(*testing.B) []execstop.Patch { return nil }},
		{"control", func(b *testing.B) []execstop.Patch { return []execstop.Patch{newControl(b)} }},
		{"changed", func(b *testing.B) []execstop.Patch {
			c := newControl(b)
			if err := errors.Join(c.Jump(time.Hour, time.Hour), c.Rate(1.1, 1.1)); err != nil {
				b.Fatal(err)
			}
			return []execstop.Patch{c}
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			patches := bb.of(b)
			var sum float64
			for b.Loop() {
				cmd := exec.Command(argv[0], argv[1:]...)
				var out strings.Builder
				cmd.Stdout = &out
				if err := execstop.Start(cmd, execstop.Options{}, patches...); err != nil {
					b.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
				ns, err := strconv.ParseFloat(strings.TrimSpace(out.String()), 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += ns
			}
			b.ReportMetric(sum/float64(b.N), "ns/call")
		})
	}
}

// What a server with a clock of its own loses by it: Redis reads the clock several
// times a command.
func BenchmarkRedisSet(b *testing.B) {
	for _, bb := range []struct {
		name string
		of   func(b *testing.B) *Control
	}{
		{"true", func(*testing.B) *Control { return nil }},
		{"control", func(b *testing.B) *Control { return newControl(b) }},
		{"changed", func(b *testing.B) *Control {
			c := newControl(b)
			if err := errors.Join(c.Jump(time.Hour, time.Hour), c.Rate(1.1, 1.1)); err != nil {
				b.Fatal(err)
			}
			return c
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			_, db := startRedis(b, bb.of(b))
			for b.Loop() {
				if err := db.Set(b.Context(), "k", "v", 0).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStart(b *testing.B) {
	path := stoptest.Need(b, "true")
	for _, with := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "clock"}[with], func(b *testing.B) {
			var patches []execstop.Patch
			if with {
				patches = append(patches, newControl(b))
			}
			for b.Loop() {
				cmd := exec.Command(path)
				if err := execstop.Start(cmd, execstop.Options{}, patches...); err != nil {
					b.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
