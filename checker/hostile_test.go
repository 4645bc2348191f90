package checker_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Hostile input, through the program itself: a clear finding with the line, no
// panic, and memory that is bounded by what has to be kept.
func TestHostileHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and runs the program")
	}
	program := filepath.Join(t.TempDir(), "lockcheck")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/lockcheck").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	open := 1_000_000
	if os.Getenv("LOCKCHECK_LARGE") != "" {
		open = 10_000_000
	}
	line := func(index, time int64, process, typ, f string) string {
		return fmt.Sprintf(`{"index":%d,"time":%d,"process":%q,"type":%q,"f":%q,"key":"k"}`+"\n", index, time, process, typ, f)
	}
	held := line(0, 10, "A", "invoke", "acquire") + line(1, 20, "A", "ok", "acquire")
	const megabytes = 1 << 20
	for _, tt := range []struct {
		name   string
		write  func(w io.Writer) error
		status int
		says   []string
		memory int64 // bytes
	}{{
		name:   "negative times",
		write:  text(line(0, -5, "A", "invoke", "acquire") + line(1, -4, "A", "ok", "acquire") + line(2, 7, "A", "invoke", "release") + line(3, 9, "A", "ok", "release")),
		says:   []string{"negative-time", "line 1: time -5", "line 2: time -4"},
		memory: 100 * megabytes,
	}, {
		name:   "a return before its call",
		write:  text(held + line(2, 90, "A", "invoke", "release") + line(3, 50, "A", "ok", "release")),
		says:   []string{"return-before-call", "line 4: ends at 50, was called at 90"},
		memory: 100 * megabytes,
	}, {
		name:   "times that no run can reach",
		write:  text(held + line(2, 1<<62, "A", "invoke", "release")),
		status: 2,
		says:   []string{":3: time 4611686018427387904 is beyond"},
		memory: 100 * megabytes,
	}, {
		name:   "an answer without a question, and one of something else",
		write:  text(held + line(2, 30, "B", "ok", "acquire") + line(3, 40, "A", "invoke", "release") + line(4, 50, "A", "ok", "acquire")),
		says:   []string{"completion-without-invocation: line 3", "completion-of-another-operation: line 5"},
		memory: 100 * megabytes,
	}, {
		name: "operations that all stay open",
		write: func(w io.Writer) error {
			if _, err := io.WriteString(w, held); err != nil {
				return err
			}
			b := make([]byte, 0, 1<<16)
			for i := range int64(open) {
				b = append(b, line(i+2, 10*i+30, "p", "invoke", "acquire")...)
				if len(b) > 1<<16-200 || i == int64(open)-1 {
					if _, err := w.Write(b); err != nil {
						return err
					}
					b = b[:0]
				}
			}
			return nil
		},
		says:   []string{"invocation-while-open: line 4"},
		memory: 100*megabytes + int64(open)*300,
	}, {
		name: "a line of 100 MB",
		write: func(w io.Writer) error {
			if _, err := io.WriteString(w, held+`{"index":2,"time":30,"process":"A","type":"invoke","f":"`); err != nil {
				return err
			}
			return fill(w, 100*megabytes)
		},
		status: 2,
		says:   []string{":3: line is longer than"},
		memory: 150 * megabytes,
	}, {
		name: "a line of 100 MB, of depth alone",
		write: func(w io.Writer) error {
			if _, err := io.WriteString(w, held+`{"index":2,"time":30,"process":"A","type":"invoke","f":"write","value":`); err != nil {
				return err
			}
			for range 100 {
				if _, err := w.Write(bytes.Repeat([]byte("["), megabytes)); err != nil {
					return err
				}
			}
			return nil
		},
		status: 2,
		says:   []string{":3: line is longer than"},
		memory: 150 * megabytes,
	}} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command(program, "check", "-")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = tt.write(in) // it may stop to read
			_ = in.Close()
			_ = cmd.Wait()
			said := strings.Join(strings.Fields(out.String()), " ") // whatever the width
			for _, s := range tt.says {
				if !strings.Contains(said, s) {
					t.Errorf("it does not say %q:\n%s", s, out.String())
				}
			}
			if strings.Contains(said, "goroutine ") || strings.Contains(said, "panic") {
				t.Errorf("it broke down:\n%s", out.String())
			}
			if got := cmd.ProcessState.ExitCode(); got != tt.status {
				t.Errorf("exit status %d, want %d:\n%s", got, tt.status, out.String())
			}
			if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && runtime.GOOS == "linux" {
				// Until it began, the child counted as much as this process.
				var own syscall.Rusage
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
				if used := u.Maxrss * 1024; used > tt.memory && u.Maxrss > own.Maxrss {
					t.Errorf("it took %d MB, want %d at most", used/megabytes, tt.memory/megabytes)
				}
				t.Logf("%d MB, %v", u.Maxrss/1024, cmd.ProcessState.UserTime())
			}
		})
	}
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// fill writes n bytes of one letter.
func fill(w io.Writer, n int) error {
	b := bytes.Repeat([]byte("a"), 1<<16)
	for ; n > 0; n -= len(b) {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
