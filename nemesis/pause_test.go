package nemesis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// cat is a process that echoes what it is sent: it shows whether it runs.
type cat struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startCat(t *testing.T) *cat {
	t.Helper()
	c := &cat{cmd: exec.Command("cat")}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

func (c *cat) Name() string         { return "cat" }
func (c *cat) PIDs() ([]int, error) { return []int{c.cmd.Process.Pid}, nil }

func (c *cat) echo(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c.in, "line\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := c.out.ReadString('\n'); err != nil || line != "line\n" {
		t.Fatalf("echo is %q, %v", line, err)
	}
}

func TestPauseStopsAndContinues(t *testing.T) {
	ctx := context.Background()
	c := startCat(t)
	f := &pause{}
	proof, err := f.Inject(ctx, []Target{c})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(proof), "in state T") {
		t.Errorf("proof %q does not show state T", proof)
	}
	s, err := processState(c.cmd.Process.Pid)
	if err != nil || s.code != 'T' {
		t.Fatalf("state is %c, %v; want T", s.code, err)
	}
	for range 2 { // healing again must be harmless
		if _, err := f.Heal(ctx); err != nil {
			t.Fatal(err)
		}
		c.echo(t)
	}
}

func TestPauseFails(t *testing.T) {
	ctx := context.Background()
	gone := startCat(t)
	_ = gone.cmd.Process.Kill()
	_ = gone.cmd.Wait()
	tests := []struct {
		name    string
		targets []Target
		want    string
	}{
		{"no target", nil, "no target"},
		{"target without processes", []Target{named("lock")}, "pause lock: it is not made of processes"},
		{"process that has ended", []Target{gone}, "pause cat: no process is running"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &pause{}
			_, err := f.Inject(ctx, tt.targets)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v; want %q in it", err, tt.want)
			}
			if _, err := f.Heal(ctx); err != nil {
				t.Errorf("heal: %v", err)
			}
		})
	}
}

// Processes of a target may end while it is being stopped: a helper, say.
func TestPauseLeavesOutProcessesThatEnd(t *testing.T) {
	ctx := context.Background()
	gone, lives := startCat(t), startCat(t)
	_ = gone.cmd.Process.Kill()
	_ = gone.cmd.Wait()
	f := &pause{}
	defer f.Heal(ctx)
	proof, err := f.Inject(ctx, []Target{both{gone, lives}})
	if err != nil || !strings.Contains(string(proof), fmt.Sprintf("process %d in state T", lives.cmd.Process.Pid)) {
		t.Errorf("inject: %q, %v", proof, err)
	}
}

// both is a target of two processes.
type both struct{ a, b *cat }

func (b both) Name() string         { return "both" }
func (b both) PIDs() ([]int, error) { return []int{b.a.cmd.Process.Pid, b.b.cmd.Process.Pid}, nil }

func TestPauseHealsProcessThatDied(t *testing.T) {
	ctx := context.Background()
	c := startCat(t)
	f := &pause{}
	if _, err := f.Inject(ctx, []Target{c}); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	proof, err := f.Heal(ctx)
	if err != nil || !strings.Contains(string(proof), "is gone") {
		t.Errorf("heal: %q, %v; want a proof that the process is gone", proof, err)
	}
}

type named string

func (n named) Name() string { return string(n) }
