package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCtrlCOnATerminal runs the program on a terminal as a user does, looks at what
// is drawn, and presses Ctrl-C: the run is ended in order, and what was recorded is
// kept.
func TestCtrlCOnATerminal(t *testing.T) {
	out := t.TempDir()
	term := newTerminal(t, 100)
	cmd := lockcheck(t, "run", "gc-pause", "no-fault", "--backend", "memory", "--resource", "unfenced", "--ttl", "60s", "--out", out)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CI=") }), "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drawn := regexp.MustCompile(`1/2 gc-pause on memory, unfenced: running.*, 1 grant, under pause on A`)
	await(t, "the fault is shown", func() (bool, string) { return drawn.MatchString(term.text()), term.text() })
	dir := waitForFreeze(t, out)
	term.press(t, 0x03)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitInterrupted {
		t.Errorf("exit status is %d, want %d", got, exitInterrupted)
	}
	text := term.end()
	for _, want := range []string{
		"interrupted: what is going on is ended in order and kept",
		"1/2  gc-pause on memory, unfenced: inconclusive",
		"lockcheck: interrupted: 1 of 2 runs made; what was recorded is in " + out,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the terminal does not show %q:\n%s", want, text)
		}
	}
	check := lockcheck(t, "check", dir)
	told, _ := check.CombinedOutput()
	if got := check.ProcessState.ExitCode(); got != exitInconclusive || !bytes.Contains(told, []byte("INCONCLUSIVE: the run was interrupted")) {
		t.Errorf("check of what was recorded has status %d, want %d:\n%s", got, exitInconclusive, told)
	}
}

// pseudo is a terminal, and what was written to it.
type pseudo struct {
	master, slave *os.File
	read          chan struct{} // closed when all has been

	mu      sync.Mutex
	written []byte
}

func newTerminal(t *testing.T, columns uint16) *pseudo {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Fatalf("make a terminal: %v", err)
		}
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	fail(err)
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	fail(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	fail(err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	fail(err)
	t.Cleanup(func() { slave.Close() })
	fail(unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24}))
	p := &pseudo{master: master, slave: slave, read: make(chan struct{})}
	go func() {
		defer close(p.read)
		_, _ = io.Copy(p, master) // ends with an error when nobody has the terminal any more
	}()
	return p
}

func (p *pseudo) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = append(p.written, b...)
	return len(b), nil
}

func (p *pseudo) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.written)
}

// press presses a key.
func (p *pseudo) press(t *testing.T, key byte) {
	t.Helper()
	if _, err := p.master.Write([]byte{key}); err != nil {
		t.Fatal(err)
	}
}

// end returns all that was written, when the program has ended.
func (p *pseudo) end() string {
	p.slave.Close()
	<-p.read
	return p.text()
}
