package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/client"
)

// hostile is a client program that misbehaves as its argument says.
func hostile() {
	how := os.Args[1]
	out := bufio.NewWriter(os.Stdout)
	say := func(format string, args ...any) {
		fmt.Fprintf(out, format+"\n", args...)
		if out.Flush() != nil {
			os.Exit(1)
		}
	}
	switch how {
	case "exits-at-once":
		os.Exit(7)
	case "greets":
		say("my-lock 1.0 starting")
	case "deaf":
		time.Sleep(time.Hour)
	case "ignores-signals":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var r client.Request
		if json.Unmarshal(in.Bytes(), &r) != nil {
			os.Exit(1)
		}
		if r.F == "open" {
			say(`{"id":%d,"type":"ok","protocol":1,"name":"hostile","version":"0","capabilities":[]}`, r.ID)
			continue
		}
		if r.F == "close" && how == "ignores-signals" {
			time.Sleep(time.Hour)
		}
		if r.F == "acquire" {
			switch how {
			case "hangs":
				time.Sleep(time.Hour)
			case "exits":
				os.Exit(7)
			case "dies":
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			case "prints":
				say("trying to get the lock")
			case "garbage":
				_, _ = os.Stdout.Write([]byte{0xff, 0xfe, 0, '{', '\n'})
			case "half":
				say(`{"id":%d,"type":"o`, r.ID)
			case "floods":
				for {
					_, _ = out.WriteString(strings.Repeat("x", 1<<16))
				}
			case "many-lines":
				for {
					say(`{"id":%d,"type":"fail","error":"busy"}`, r.ID)
				}
			case "forks":
				// The child keeps the pipes open, and is in a session of its own.
				child := exec.Command("/bin/sh", "-c", "trap '' TERM HUP INT; sleep 3600 & wait")
				child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
				child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				if child.Start() != nil {
					os.Exit(1)
				}
				os.Exit(0)
			}
		}
		say(`{"id":%d,"type":"ok"}`, r.ID)
	}
}

// TestHostileClients runs the program with clients that misbehave: what is wrong is
// told, with the line where there is one, and nothing of them is left.
func TestHostileClients(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc")
	}
	for _, c := range []struct {
		how    string
		status int
		says   string // on standard output, with line breaks taken for blanks
	}{
		{"exits-at-once", exitEnvironment, "ended by itself (exit status 7)"},
		{"exits", exitEnvironment, "ended by itself (exit status 7)"},
		{"dies", exitEnvironment, "ended by itself (signal: killed)"},
		{"greets", exitEnvironment, `line 1 of client A's output is wrong: it is not JSON (only answers may go to standard output; write logs to standard error): "my-lock 1.0 starting"`},
		{"prints", exitEnvironment, `line 2 of client A's output is wrong: it is not JSON (only answers may go to standard output; write logs to standard error): "trying to get the lock"`},
		{"garbage", exitEnvironment, "line 2 of client A's output is wrong: it is not JSON"},
		{"half", exitEnvironment, `line 2 of client A's output is wrong: it is not JSON`},
		{"floods", exitEnvironment, "client A wrote a line of more than 1048576 bytes"},
		{"many-lines", exitEnvironment, "line 3 of client A's output is wrong: it answers request 2, which is not open"},
		{"forks", exitEnvironment, "ended by itself (exit status 0)"},
		{"hangs", exitInconclusive, "A did not answer to acquire in time"},
		{"deaf", exitEnvironment, `did not answer "open" within 15s`},
		{"ignores-signals", exitViolation, ""}, // it never releases, but grants to everybody
	} {
		t.Run(c.how, func(t *testing.T) {
			t.Parallel()
			mark := fmt.Sprintf("LOCKCHECK_TEST_RUN=%s-%d", t.Name(), time.Now().UnixNano())
			program := lockcheck(t, "run", "no-fault", "--backend", "memory", "--out", t.TempDir())
			bad := filepath.Join(filepath.Dir(program.Path), "hostile")
			if err := os.Symlink(program.Path, bad); err != nil {
				t.Fatal(err)
			}
			program.Args = append(program.Args, "--client", bad+" "+c.how)
			program.Env = append(os.Environ(), mark)
			var out strings.Builder
			program.Stdout, program.Stderr = &out, &out
			begin := time.Now()
			_ = program.Run()
			text := strings.Join(strings.Fields(out.String()), " ")
			if got := program.ProcessState.ExitCode(); got != c.status {
				t.Errorf("exit status is %d, want %d:\n%s", got, c.status, out.String())
			}
			if !strings.Contains(text, c.says) {
				t.Errorf("it does not say %q:\n%s", c.says, out.String())
			}
			if strings.Contains(text, "panic:") || strings.Contains(text, "goroutine ") {
				t.Errorf("it panics:\n%s", out.String())
			}
			await(t, "no process of the run is left", func() (bool, string) {
				left := processesWith(mark)
				return len(left) == 0, strings.Join(left, "\n")
			})
			t.Logf("took %v", time.Since(begin).Round(time.Millisecond))
		})
	}
}
