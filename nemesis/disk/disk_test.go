//go:build linux && amd64

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/nemesis"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name    string
		params  map[string]string
		want    Behaviour
		refused bool
	}{
		{"slow", map[string]string{"fsync": "slow 200ms"}, Behaviour{Delay: 200 * time.Millisecond}, false},
		{"fail", map[string]string{"fsync": "fail EIO"}, Behaviour{Fail: syscall.EIO}, false},
		{"full", map[string]string{"full": "true"}, Behaviour{Full: true}, false},
		{"slow and full", map[string]string{"fsync": " slow  1s ", "full": "true"}, Behaviour{Delay: time.Second, Full: true}, false},

		{"nothing", nil, Behaviour{}, true},
		{"not full", map[string]string{"full": "false"}, Behaviour{}, true},
		{"slow without a time", map[string]string{"fsync": "slow"}, Behaviour{}, true},
		{"slow by nothing", map[string]string{"fsync": "slow 0s"}, Behaviour{}, true},
		{"slow for too long", map[string]string{"fsync": "slow 1h"}, Behaviour{}, true},
		{"an error that fsync does not have", map[string]string{"fsync": "fail EAGAIN"}, Behaviour{}, true},
		{"unknown", map[string]string{"fsync": "lose"}, Behaviour{}, true},
		{"full of what", map[string]string{"full": "99%"}, Behaviour{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parse(tt.params)
			if (err != nil) != tt.refused {
				t.Fatalf("error %v", err)
			}
			if err == nil && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// What parse accepts, a control accepts.
func FuzzParse(f *testing.F) {
	f.Add("slow 200ms", "")
	f.Add("fail EIO", "true")
	f.Fuzz(func(t *testing.T, fsync, full string) {
		b, err := parse(map[string]string{"fsync": fsync, "full": full})
		if err != nil {
			return
		}
		if err := newControl(t, Options{Writes: true}).Set(b); err != nil {
			t.Errorf("parsed %+v, but: %v", b, err)
		}
	})
}

// available is Available, tried once.
var available = sync.OnceValue(Available)

func newControl(t testing.TB, o Options) *Control {
	t.Helper()
	if err := available(); err != nil {
		t.Skip("disk faults are unavailable: ", err)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestProbeSeesTheDisk(t *testing.T) {
	for _, b := range []Behaviour{
		{},
		{Delay: 100 * time.Millisecond},
		{Fail: syscall.EIO},
		{Delay: 50 * time.Millisecond, Fail: syscall.EDQUOT},
		{Full: true},
		{Full: true, Fail: syscall.ENOSPC},
	} {
		t.Run(fmt.Sprintf("%+v", b), func(t *testing.T) {
			c := newControl(t, Options{Writes: true})
			if err := c.Set(b); err != nil {
				t.Fatal(err)
			}
			proof, err := c.probe(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(proof)
			for _, other := range []Behaviour{{Delay: time.Second, Fail: b.Fail, Full: b.Full}, {Delay: b.Delay, Fail: syscall.EROFS, Full: b.Full}, {Delay: b.Delay, Fail: b.Fail, Full: !b.Full}} {
				if proof, err := c.probe(t.Context(), other); err == nil {
					t.Errorf("it also proves %+v: %s", other, proof)
				}
			}
		})
	}
}

func TestFullNeedsWritesToBeIntercepted(t *testing.T) {
	if err := newControl(t, Options{}).Set(Behaviour{Full: true}); err == nil {
		t.Error("a full disk is accepted though nothing would be refused")
	}
}

// The filter outlives exec, so that a wrapper needs no care, and forks.
func TestFollowsExecAndFork(t *testing.T) {
	c := newControl(t, Options{})
	if err := c.Set(Behaviour{Fail: syscall.EIO}); err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/file"
	cmd := exec.Command("sh", "-c", `dd if=/dev/zero of="$0" bs=1 count=1 conv=fsync; true`, file)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := execstop.Start(cmd, execstop.Options{}, c); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "Input/output error") {
		t.Errorf("dd said %q, want an input/output error", said.String())
	}
	if n := c.Counts(); n.Failed != 1 {
		t.Errorf("counts %v, want one failed", n)
	}
}

func TestHealReleasesWhatIsHeld(t *testing.T) {
	c := newControl(t, Options{})
	if err := c.Set(Behaviour{Delay: MaxDelay}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dd", "if=/dev/zero", "of="+t.TempDir()+"/file", "bs=1", "count=1", "conv=fsync", "status=none")
	if err := execstop.Start(cmd, execstop.Options{}, c); err != nil {
		t.Fatal(err)
	}
	stoptest.Eventually(t, func(context.Context) error {
		if c.Counts().Delayed == 0 {
			return errors.New("no sync was delayed")
		}
		return nil
	})
	start := time.Now()
	if err := c.Set(Behaviour{}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > MaxDelay/2 {
		t.Errorf("it ended %v after healing", d)
	}
}

// server is a Redis that syncs before it answers.
type server struct {
	cmd  *exec.Cmd
	disk *Control
	db   *redis.Client
}

func (s *server) Name() string                   { return "redis" }
func (s *server) Disk() *Control                 { return s.disk }
func (s *server) PIDs() ([]int, error)           { return []int{s.cmd.Process.Pid}, nil }
func (s *server) Sync(ctx context.Context) error { return s.db.Incr(ctx, "n").Err() }

func startRedis(t testing.TB, c *Control, args ...string) *server {
	t.Helper()
	var patches []execstop.Patch
	if c != nil {
		patches = append(patches, c)
	}
	cmd, db := stoptest.Redis(t, patches, args...)
	return &server{cmd, c, db}
}

func TestFaultOnRedis(t *testing.T) {
	for _, tt := range []struct {
		name   string
		params map[string]string
		writes bool
		check  func(t *testing.T, s *server)
	}{
		{"slow", map[string]string{"fsync": "slow 150ms"}, false, func(t *testing.T, s *server) {
			start := time.Now()
			if err := s.db.Set(t.Context(), "lock", "A", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d < 150*time.Millisecond {
				t.Errorf("SET took %v, want 150 ms at least", d)
			}
		}},
		// Redis 7 says MISCONF to writes when the disk is full, and tries
		// again each second: so it is healed by itself.
		{"full", map[string]string{"full": "true"}, true, func(t *testing.T, s *server) {
			err := s.db.Set(t.Context(), "lock", "A", time.Minute).Err()
			t.Logf("SET: %v", err)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newControl(t, Options{Writes: tt.writes})
			fsync := "always"
			if tt.writes {
				fsync = "everysec" // with always, Redis exits when it can't write
			}
			s := startRedis(t, c, "--appendonly", "yes", "--appendfsync", fsync)
			kind, err := nemesis.Find("disk")
			if err != nil {
				t.Fatal(err)
			}
			f, err := kind.New(tt.params)
			if err != nil {
				t.Fatal(err)
			}
			proof, err := f.Inject(t.Context(), []nemesis.Target{s})
			if err != nil {
				t.Fatal(err)
			}
			tt.check(t, s)
			for range 2 {
				healed, err := f.Heal(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Log(proof, "\nhealed: ", healed)
			}
			stoptest.Eventually(t, s.Sync)
		})
	}
}

// Redis exits rather than answer what it can't make durable.
func TestRedisExitsWhenAFsyncFails(t *testing.T) {
	c := newControl(t, Options{})
	s := startRedis(t, c, "--appendonly", "yes", "--appendfsync", "always")
	if err := c.Set(Behaviour{Fail: syscall.EIO}); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err == nil {
		t.Error("a write is acknowledged though it could not be synced")
	}
	err := s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("Redis ended with %v, want status 1", err)
	}
}

// A commit waits for the disk. The server runs as another user.
func TestSlowCommitOfPostgres(t *testing.T) {
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
	dir, err3 := guard.TempDir()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := guard.RemoveDir(dir); err != nil {
			t.Error(err)
		}
	})
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
	c := newControl(t, Options{})
	cmd := as(bin+"/postgres", "-D", data, "-k", dir, "-h", "")
	if err := guard.StartBy(cmd, func() error { return execstop.Start(cmd, execstop.Options{}, c) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Postgres takes an interrupt for an order to end at once, in order.
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		guard.Forget(cmd)
	})
	query := func(ctx context.Context, q string) error {
		out, err := exec.CommandContext(ctx, bin+"/psql", "-h", dir, "-U", "postgres", "-qc", q).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", q, err, out)
		}
		return nil
	}
	stoptest.Eventually(t, func(ctx context.Context) error { return query(ctx, "create table if not exists t (i int)") })
	if err := c.Set(Behaviour{Delay: 200 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	before, start := c.Counts(), time.Now()
	if err := query(t.Context(), "insert into t values (1)"); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if err := c.Set(Behaviour{}); err != nil {
		t.Fatal(err)
	}
	if hit := c.Counts().minus(before); took < 200*time.Millisecond || hit.Delayed == 0 {
		t.Errorf("the commit took %v (%v), want 200 ms at least", took, hit)
	}
}

func TestFaultOnTheWrongTarget(t *testing.T) {
	c := newControl(t, Options{})
	s := startRedis(t, nil) // without the disk that it claims to have
	s.disk = c
	f := &fault{behaviour: Behaviour{Fail: syscall.EIO}}
	if _, err := f.Inject(t.Context(), []nemesis.Target{s}); err == nil || !strings.Contains(err.Error(), "without a disk of its own") {
		t.Errorf("error %v", err)
	}
	if _, err := f.Heal(t.Context()); err != nil {
		t.Error(err)
	}
}

// The cost of an interception while nothing is wrong.
func BenchmarkRedisSet(b *testing.B) {
	for _, bb := range []struct {
		name string
		of   func() *Control
		aof  string
	}{
		{"memory/plain", func() *Control { return nil }, "no"},
		{"memory/syncs", func() *Control { return newControl(b, Options{}) }, "no"},
		{"memory/writes", func() *Control { return newControl(b, Options{Writes: true}) }, "no"},
		{"fsync/plain", func() *Control { return nil }, "yes"},
		{"fsync/syncs", func() *Control { return newControl(b, Options{}) }, "yes"},
		{"fsync/writes", func() *Control { return newControl(b, Options{Writes: true}) }, "yes"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := startRedis(b, bb.of(), "--appendonly", bb.aof, "--appendfsync", "always")
			for b.Loop() {
				if err := s.Sync(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
