package keeper

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// mark is a patch whose file is closed in the process, and which notes that it was
// applied.
type mark struct {
	file    *os.File
	applied int
}

const markKind = "test-mark"

func (m *mark) Files() []*os.File                   { return []*os.File{m.file} }
func (m *mark) Apply(*execstop.Tracee, []int) error { return errors.New("applied in the harness") }
func (m *mark) Kind() (name, option string)         { return markKind, "some" }
func (m *mark) Applied() error                      { m.applied++; return nil }

// made is a mark in the keeper, which writes its option to the file.
type made struct {
	files  []*os.File
	option string
}

func (m made) Files() []*os.File { return m.files }
func (m made) Apply(t *execstop.Tracee, fds []int) error {
	_, err := m.files[0].WriteString(m.option)
	return err
}

func TestMain(m *testing.M) {
	execstop.RegisterKind(markKind, func(files []*os.File, option string) execstop.Patch { return made{files, option} })
	selfexec.Main()
	os.Exit(m.Run())
}

// run starts a keeper of a command, as a process of this machine, which for want of a
// container is not the first.
func run(t *testing.T, command ...string) *Keeper {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name", 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "socket")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	argv, err := selfexec.Command(Role, append([]string{"socket"}, command...)...)
	if err != nil {
		t.Fatal(err)
	}
	// A container has it at a short path.
	short := t.TempDir()
	if err := os.Symlink(path, filepath.Join(short, "socket")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stderr = short, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	k, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if k.PID() != cmd.Process.Pid {
		t.Errorf("the keeper is process %d, want %d", k.PID(), cmd.Process.Pid)
	}
	t.Cleanup(func() {
		if err := errors.Join(k.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the keeper ended with %v when the harness was gone", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	return k
}

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func text(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestServerIsStartedAgainAndAgain(t *testing.T) {
	if err := execstop.Available(); err != nil {
		t.Skip(err)
	}
	k := run(t, "sh", "-c", "echo out; echo err >&2; exit 3")
	log, m := tempFile(t), &mark{file: tempFile(t)}
	for n := 1; n <= 3; n++ {
		ended, err := k.Start(t.Context(), log, []execstop.Portable{m})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || err.Error() != "exit status 3" {
			t.Errorf("it ended with %v, want status 3", err)
		}
		if want := strings.Repeat("out\nerr\n", n); text(t, log) != want {
			t.Errorf("its log is %q, want %q", text(t, log), want)
		}
		if want := strings.Repeat("some", n); text(t, m.file) != want || m.applied != n {
			t.Errorf("the patch was applied as %q and told so %d times, want %q and %d", text(t, m.file), m.applied, want, n)
		}
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	k := run(t, "no-such-program")
	if _, err := k.Start(t.Context(), tempFile(t), nil); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("Start = %v, want an error that names the program", err)
	}
}

func TestPatchThatTheKeeperDoesNotHave(t *testing.T) {
	k := run(t, "true")
	if _, err := k.Start(t.Context(), tempFile(t), []execstop.Portable{&other{}}); err == nil || !strings.Contains(err.Error(), `no patch "test-other"`) {
		t.Errorf("Start = %v, want an error that names the patch", err)
	}
}

type other struct{ mark }

func (*other) Files() []*os.File           { return nil }
func (*other) Kind() (name, option string) { return "test-other", "" }

func TestKeeperThatIsKilledHasGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	argv, err := selfexec.Command(Role, path, "sleep", "60")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	select {
	case <-k.Gone():
	case <-time.After(20 * time.Second):
		t.Fatal("a keeper that was killed has not gone")
	}
	if _, err := k.Start(t.Context(), tempFile(t), nil); err == nil {
		t.Error("a keeper that has gone started the server")
	}
}

func TestNobodyConnects(t *testing.T) {
	l, err := Listen(filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Accept = %v, want that the time is over", err)
	}
}
