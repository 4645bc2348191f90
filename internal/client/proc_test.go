package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// Clients that behave as the tests need it are roles of the test binary.
func init() {
	selfexec.Register("say", say)
	selfexec.Register("deaf", func([]string) int {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		select {}
	})
}

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // with -race each client would end a second late
	os.Exit(m.Run())
}

// say answers the n-th request with the n-th argument, in which ID stands for
// the request's id. "exit" ends the process, "fork" leaves a child behind.
func say(answers []string) int {
	in := bufio.NewScanner(os.Stdin)
	for _, a := range answers {
		if !in.Scan() {
			return 1
		}
		var r client.Request
		if json.Unmarshal(in.Bytes(), &r) != nil {
			return 1
		}
		switch a {
		case "exit":
			return 7
		case "fork":
			argv, _ := selfexec.Command("deaf")
			attr := &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}}
			if _, err := os.StartProcess(argv[0], argv, attr); err != nil {
				return 1
			}
			return 0
		case "flood":
			line := strings.Repeat("x", 1<<16)
			for {
				if _, err := fmt.Print(line); err != nil {
					return 1
				}
			}
		}
		fmt.Println(strings.ReplaceAll(a, "ID", fmt.Sprint(r.ID)))
	}
	for in.Scan() {
		var r client.Request
		if json.Unmarshal(in.Bytes(), &r) == nil && r.F == "close" {
			return 0
		}
	}
	return 0
}

const hello = `{"id":ID,"type":"ok","protocol":1,"name":"test","version":"0","capabilities":["token","lost"]}`

// recorded is what a recorder was told.
type recorded struct {
	*history.Recorder
	mu     sync.Mutex
	events []history.Event
}

func record(t *testing.T) *recorded {
	t.Helper()
	rec, err := history.Create(filepath.Join(t.TempDir(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &recorded{Recorder: rec}
	rec.Watch(func(e history.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	})
	return r
}

// lines are the recorded events, short.
func (r *recorded) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, e := range r.events {
		l := fmt.Sprintf("%s %s %s", e.Process, e.F, e.Type)
		if e.Error != "" {
			l += ": " + e.Error
		}
		lines = append(lines, l)
	}
	return lines
}

func start(t *testing.T, rec *recorded, role string, args ...string) *client.Proc {
	t.Helper()
	command, err := selfexec.Command(role, args...)
	if err != nil {
		t.Fatal(err)
	}
	p, err := client.Start(client.Options{Name: "A", Command: command, Recorder: rec.Recorder, Stderr: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		gone, cancel := context.WithCancel(context.Background())
		cancel() // kill at once
		p.Close(gone)
	})
	return p
}

func opened(t *testing.T, rec *recorded, answers ...string) *client.Proc {
	t.Helper()
	p := start(t, rec, "say", append([]string{hello}, answers...)...)
	h, err := p.Open(t.Context(), client.OpenOptions{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if !h.Can(client.CanToken) || h.Can(client.CanRenew) {
		t.Fatalf("capabilities %v", h.Capabilities)
	}
	return p
}

var acquire = client.Request{F: history.Acquire, Key: "k"}

func TestCompletionsAreRecordedAsAnswered(t *testing.T) {
	for _, c := range []struct {
		name, answer, want string
		request            client.Request
	}{
		{"granted", `{"id":ID,"type":"ok","token":7,"lease_ms":100}`, "A acquire ok", acquire},
		{"busy", `{"id":ID,"type":"fail","error":"busy"}`, "A acquire fail: busy", acquire},
		{"unknown", `{"id":ID,"type":"info","error":"timeout"}`, "A acquire info: timeout", acquire},
		{"check", `{"id":ID,"type":"ok","value":true}`, "A check ok", client.Request{F: history.Check, Key: "k"}},
		{"write", `{"id":ID,"type":"fail","error":"stale"}`, "A write fail: stale", client.Request{F: history.Write, Key: "k", Value: "v"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := record(t)
			p := opened(t, rec, c.answer)
			e, err := p.Do(t.Context(), c.request)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"A " + c.request.F + " invoke", c.want}
			if got := rec.lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("recorded\n%q\nwant\n%q", got, want)
			}
			if c.name == "granted" && (e.Token == nil || *e.Token != 7 || e.TTL <= 0 || e.TTL > 100e6) {
				t.Errorf("token or lease is missing in %v", e)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a client believes is counted from the invocation, so that a slow answer
// can only shorten it.
func TestOwnDeadlineCountsFromTheInvocation(t *testing.T) {
	rec := record(t)
	p := opened(t, rec, `{"id":ID,"type":"ok","valid_ms":90}`)
	e, err := p.Do(t.Context(), acquire)
	if err != nil {
		t.Fatal(err)
	}
	if want := rec.events[0].Time + 90e6; e.Until != want {
		t.Errorf("until %d, want %d: 90 ms after the invocation", e.Until, want)
	}
}

func TestLossNotice(t *testing.T) {
	rec := record(t)
	p := opened(t, rec, `{"id":ID,"type":"ok"}`+"\n"+`{"f":"lost","key":"k"}`, `{"id":ID,"type":"fail","error":"gone"}`)
	if _, err := p.Do(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Do(t.Context(), client.Request{F: history.Release, Key: "k"}); err != nil {
		t.Fatal(err)
	}
	want := "A acquire invoke|A acquire ok|A lost info|A release invoke|A release fail: gone"
	// The notice is on its way when the release is invoked: either order is right.
	other := "A acquire invoke|A acquire ok|A release invoke|A lost info|A release fail: gone"
	if got := strings.Join(rec.lines(), "|"); got != want && got != other {
		t.Errorf("recorded %s", got)
	}
}

func TestWrongClientsAreNamedWithTheLine(t *testing.T) {
	for _, c := range []struct {
		name, answer, want string
	}{
		{"debug print", "acquiring k", `line 2 of client A's output is wrong: it is not JSON (only answers may go to standard output; write logs to standard error): "acquiring k"`},
		{"wrong shape", `["ok"]`, "line 2 of client A's output is wrong: it is no answer"},
		{"no type", `{"id":ID}`, `it has type "", wanted "ok", "fail" or "info"`},
		{"wrong id", `{"id":99,"type":"ok"}`, "it answers request 99, which is not open"},
		{"negative lease", `{"id":ID,"type":"ok","lease_ms":-1}`, "must not be negative"},
		{"too many notices", `{"f":"lost","key":"k"}` + "\n" + `{"f":"lost","key":"k"}`, "as many as acquires before"},
		{"flood", "flood", "client A wrote a line of more than 1048576 bytes"},
		{"exit", "exit", "client A ended by itself (exit status 7)"},
		{"fork", "fork", "client A ended by itself (exit status 0)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := record(t)
			p := opened(t, rec, c.answer)
			e, err := p.Do(t.Context(), acquire)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if e.Type != history.Info || !strings.Contains(e.Error, c.want) {
				t.Errorf("the open operation became %v, want info with the reason", e)
			}
			select {
			case <-p.Exited():
			case <-time.After(10 * time.Second):
				t.Fatal("the process is still there")
			}
			if pids, err := p.PIDs(); err != nil || len(pids) > 0 {
				t.Errorf("left behind: %v, %v", pids, err)
			}
			if _, err := p.Invoke(t.Context(), acquire); err == nil {
				t.Error("a client that failed takes requests")
			}
			if err := p.Close(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Close says %v, want %q", err, c.want)
			}
		})
	}
}

func TestOperationStaysOpenWithoutAnswer(t *testing.T) {
	rec := record(t)
	p := opened(t, rec, `{"id":ID,"type":"ok"}`)
	if err := syscall.Kill(pid(t, p), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n, err := p.Invoke(t.Context(), acquire)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Wait(over); err == nil {
		t.Fatal("a frozen client answered")
	}
	if _, err := p.Invoke(t.Context(), acquire); err == nil || !strings.Contains(err.Error(), "its acquire (event 0) is not answered yet") {
		t.Fatalf("a second operation beside an open one: %v", err)
	}
	if got := len(rec.lines()); got != 1 {
		t.Fatalf("%d events, want the invocation alone: %q", got, rec.lines())
	}
	if err := syscall.Kill(pid(t, p), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if e, err := n.Wait(t.Context()); err != nil || e.Type != history.OK {
		t.Fatalf("the late answer is lost: %v, %v", e, err)
	}
}

func TestCloseOfFrozenClientLeavesNothing(t *testing.T) {
	rec := record(t)
	p := opened(t, rec)
	id := pid(t, p)
	if err := syscall.Kill(id, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Invoke(t.Context(), acquire); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Close(soon); err != nil {
		t.Error(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error("closing again:", err)
	}
	if err := syscall.Kill(id, 0); err == nil {
		t.Error("the process is still there")
	}
	want := "A acquire invoke|A acquire info: no answer before the run ended"
	if got := strings.Join(rec.lines(), "|"); got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
}

func TestDeafClientDoesNotHoldUpTheHarness(t *testing.T) {
	rec := record(t)
	p := start(t, rec, "deaf")
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Open(soon, client.OpenOptions{}); err == nil || !strings.Contains(err.Error(), "open client A") {
		t.Fatalf("open: %v", err)
	}
	if err := p.Close(soon); err != nil {
		t.Error(err)
	}
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	_, err := client.Start(client.Options{Name: "A", Command: []string{"/no/such/adapter"}, Recorder: record(t).Recorder})
	if err == nil || !strings.Contains(err.Error(), "start client A") || !strings.Contains(err.Error(), "/no/such/adapter") {
		t.Errorf("error %v", err)
	}
}

func pid(t *testing.T, p *client.Proc) int {
	t.Helper()
	pids, err := p.PIDs()
	if err != nil || len(pids) != 1 {
		t.Fatalf("processes %v, %v", pids, err)
	}
	return pids[0]
}
