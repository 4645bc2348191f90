package protocolcheck_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/client/protocolcheck"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func init() { selfexec.Register("adapter", adapter) }

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // with -race each client would end a second late
	os.Exit(m.Run())
}

const (
	ttl      = 300 * time.Millisecond
	patience = 3 * time.Second
)

// talk returns what is said of a kind of adapter, until enough says that it is.
func talk(t *testing.T, kind string, enough func(protocolcheck.Line) bool) []protocolcheck.Line {
	t.Helper()
	command, err := selfexec.Command("adapter", kind, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lines []protocolcheck.Line
	err = protocolcheck.Run(ctx, protocolcheck.Options{
		Command: command, TTL: ttl, Patience: patience, Dir: t.TempDir(),
		Report: func(l protocolcheck.Line) {
			lines = append(lines, l)
			if enough(l) {
				cancel()
			}
		},
	})
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	return lines
}

func TestGoodAdapter(t *testing.T) {
	lines := talk(t, "good", func(protocolcheck.Line) bool { return false })
	for _, l := range lines {
		if l.Result != protocolcheck.Right && l.What != "acquire of a lock that the client holds is granted" {
			t.Errorf("%+v", l)
		}
	}
	if len(lines) != 17 {
		t.Errorf("%d lines, want 17", len(lines))
	}
}

// Each kind of bad adapter must be told of what it does wrong, where it does it,
// with the line concerned.
func TestBadAdapters(t *testing.T) {
	const wrong, note = protocolcheck.Wrong, protocolcheck.Note
	for _, c := range []struct {
		kind    string
		result  protocolcheck.Result
		what    string
		why     string
		message string
	}{
		{"wrong-id", wrong, "acquire of a free lock is granted", "answered request 1002, and was asked request 2", `← {"id":1002,`},
		{"no-id", wrong, "acquire of a free lock is granted", "its line has no id", `"type":"ok"}`},
		{"prints", wrong, "acquire of a free lock is granted", "a line that is not JSON: only answers may go to standard output", "← trying k"},
		{"twice", wrong, "check says that the holder holds", "answered request 2 a second time", `← {"id":2,`},
		{"greedy", wrong, "acquire of a lock that another holds fails", "B answered ok, want fail: A holds it", `"id":2,`},
		{"impatient", wrong, "acquire gives up when its wait is over", "B gave up after", `"wait_ms":300`},
		{"stubborn", wrong, "acquire gives up when its wait is over", "B gave up after", `"wait_ms":300`},
		{"no-newline", wrong, "open connects", "it wrote no newline at the end of its answer", `"id":1,`},
		{"exits", wrong, "acquire of a free lock is granted", "it exited (exit status 7)", "stderr: out of ideas"},
		{"hangs", wrong, "acquire of a free lock is granted", "it gave no answer for 3s: does it flush", `→ {"id":2,"f":"acquire"`},
		{"floods", wrong, "acquire of a free lock is granted", "more than 100 lines that nobody asked for", ""},
		{"long-line", wrong, "acquire of a free lock is granted", "a line of more than 1048576 bytes", ""},
		{"text-token", wrong, "acquire of a free lock is granted", "a field of a wrong kind: token", `"token":"`},
		{"old-protocol", wrong, "open connects", "a field of a wrong kind: protocol", `"protocol":0`},
		{"odd-capability", wrong, "open connects", "a field of a wrong kind: capabilities", `"waits"`},
		{"odd-type", wrong, "acquire of a free lock is granted", `its answer has the type "granted"`, `"granted"`},
		{"no-token", wrong, "acquire of a free lock is granted", `A states "token", and its grant has no token`, ""},
		{"same-token", wrong, "release by the holder frees the lock", "not higher than that of the grant before", ""},
		{"seconds", note, "acquire of a free lock is granted", "is its unit right", `"lease_ms":3000000`},
		{"frees-all", wrong, "release by a client that does not hold fails", "B answered ok, want fail", ""},
		{"retries", wrong, "write posts to the resource, once", "the resource got 2 requests, want 1", ""},
		{"bare-write", wrong, "write posts to the resource, once", "add &token=N to the url", ""},
		{"optimist", wrong, "write posts to the resource, once", "A answered ok, want info: the resource answered 500", ""},
		{"strict", wrong, "fields of a later version are ignored", "A answered fail, want ok", `"later"`},
		{"plain-keys", wrong, "keys may have any characters", "A answered fail, want ok", `\"b\"`},
		{"no-notice", wrong, "a frozen client goes on when it thaws", `C states "lost", and sent no notice`, ""},
		{"stays", wrong, "close ends the client", "A still runs 2s after it answered close", ""},
		{"orphan", wrong, "the end of its standard input ends the client", "B still runs 2s after its standard input ended", ""},
		{"vague", note, "acquire of a lock that another holds fails", "info is allowed", `"info"`},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			wanted := func(l protocolcheck.Line) bool {
				return l.Result == c.result && l.What == c.what && strings.Contains(l.Why, c.why)
			}
			lines := talk(t, c.kind, wanted)
			at := slices.IndexFunc(lines, wanted)
			if at < 0 {
				t.Fatalf("no line %s %q %q in\n%s", c.result, c.what, c.why, text(lines))
			}
			if !strings.Contains(strings.Join(lines[at].Messages, "\n"), c.message) {
				t.Errorf("no message %q in %q", c.message, lines[at].Messages)
			}
			// What was right before must not be called wrong.
			for _, l := range lines[:at] {
				if l.Result == protocolcheck.Wrong && l.What != c.what {
					t.Errorf("before it: %+v", l)
				}
			}
		})
	}
}

func text(lines []protocolcheck.Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l.Result, l.What+":", l.Why, l.Messages)
	}
	return b.String()
}

func TestProgramThatDoesNotExist(t *testing.T) {
	err := protocolcheck.Run(t.Context(), protocolcheck.Options{Command: []string{"./no-such-client"}, TTL: ttl, Dir: t.TempDir()})
	if !errors.Is(err, protocolcheck.ErrStart) {
		t.Errorf("error %v, want ErrStart", err)
	}
}

func TestInterrupt(t *testing.T) {
	command, err := selfexec.Command("adapter", "hangs", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := protocolcheck.Options{
		Command: command, TTL: ttl, Dir: t.TempDir(),
		Report: func(protocolcheck.Line) { cancel() }, // as soon as it is open
	}
	if err := protocolcheck.Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// adapter is a client of a lock that is a file, of the kind that its first
// argument names; the second is the folder of the files.
func adapter(args []string) int {
	a := &fileLock{kind: args[0], dir: args[1], tokens: map[string]int64{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var q client.Request
		if json.Unmarshal(lines.Bytes(), &q) != nil {
			return 1
		}
		if status, ended := a.quirk(q, lines.Text()); ended {
			return status
		}
		answer := a.serve(q, lines.Text())
		b, _ := json.Marshal(a.twist(q, answer)) // of plain values
		switch {
		case a.kind == "no-newline":
			os.Stdout.Write(b)
		case a.kind == "twice" && q.ID == 2:
			fmt.Printf("%s\n%s\n", b, b)
		default:
			fmt.Printf("%s\n", b)
		}
		if q.F == "close" {
			if a.kind == "stays" {
				select {}
			}
			return 0
		}
	}
	if a.kind == "orphan" {
		select {}
	}
	return 0
}

type fileLock struct {
	kind, dir string
	ttl       time.Duration
	tokens    map[string]int64 // of what it holds, by key
}

type fields map[string]any

// quirk does what is not an answer.
func (a *fileLock) quirk(q client.Request, line string) (status int, ended bool) {
	if q.ID != 2 {
		return 0, false
	}
	switch a.kind {
	case "prints":
		fmt.Println("trying k")
	case "exits":
		fmt.Fprintln(os.Stderr, "out of ideas")
		return 7, true
	case "hangs":
		select {}
	case "floods":
		for {
			fmt.Println("{}")
		}
	case "long-line":
		for {
			fmt.Print(strings.Repeat("x", 1<<16))
		}
	}
	return 0, false
}

// twist changes an answer.
func (a *fileLock) twist(q client.Request, r fields) fields {
	r["id"] = q.ID
	switch {
	case a.kind == "wrong-id" && q.ID == 2:
		r["id"] = 1000 + q.ID
	case a.kind == "no-id" && q.ID == 2:
		delete(r, "id")
	case a.kind == "odd-type" && q.ID == 2:
		r["type"] = "granted"
	case a.kind == "old-protocol" && q.F == "open":
		r["protocol"] = 0
	case a.kind == "odd-capability" && q.F == "open":
		r["capabilities"] = []string{"waits"}
	case a.kind == "vague" && r["type"] == "fail":
		r["type"] = "info"
	case q.F != "acquire" || r["type"] != "ok":
	case a.kind == "text-token":
		r["token"] = fmt.Sprint(r["token"])
	case a.kind == "no-token":
		delete(r, "token")
	case a.kind == "same-token":
		r["token"] = 7
	case a.kind == "seconds":
		r["lease_ms"] = 3_000_000
	}
	return r
}

func (a *fileLock) serve(q client.Request, line string) fields {
	fail := func(why string) fields { return fields{"type": "fail", "error": why} }
	if a.kind == "strict" && strings.Contains(line, "later") {
		return fail("unknown field")
	}
	if a.kind == "plain-keys" && strings.ContainsAny(q.Key, `"ä`) {
		return fail("bad key")
	}
	switch q.F {
	case "open":
		a.ttl = time.Duration(q.TTL) * time.Millisecond
		return fields{"type": "ok", "protocol": 1, "name": "file", "version": "1",
			"capabilities": []string{"wait", "token", "lease", "renew", "check", "lost"}}
	case "acquire":
		for end := time.Now().Add(time.Duration(q.Wait) * time.Millisecond); !a.take(q.Key); time.Sleep(5 * time.Millisecond) {
			switch {
			case a.kind == "greedy":
				return fields{"type": "ok", "token": 1, "lease_ms": a.ttl.Milliseconds()}
			case a.kind == "stubborn" && q.Wait > 0:
				end = end.Add(2500 * time.Millisecond)
				q.Wait = 0
			}
			if a.kind == "impatient" || !time.Now().Before(end) {
				return fail("busy")
			}
		}
		if a.kind != "no-notice" {
			a.watch(q.Key)
		}
		return fields{"type": "ok", "token": a.tokens[q.Key], "lease_ms": a.ttl.Milliseconds()}
	case "renew":
		if !a.mine(q.Key) {
			return fail("not held")
		}
		now := time.Now()
		if os.Chtimes(a.path(q.Key), now, now) != nil {
			return fields{"type": "info"}
		}
		return fields{"type": "ok", "lease_ms": a.ttl.Milliseconds()}
	case "check":
		return fields{"type": "ok", "value": a.mine(q.Key)}
	case "release":
		if !a.mine(q.Key) && a.kind != "frees-all" {
			delete(a.tokens, q.Key)
			return fail("not held")
		}
		delete(a.tokens, q.Key)
		os.Remove(a.path(q.Key))
		return fields{"type": "ok"}
	case "write":
		return a.write(q)
	case "read":
		r, err := http.Get(q.URL)
		if err != nil {
			return fields{"type": "info"}
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return fields{"type": "ok", "value": string(b)}
	}
	return fields{"type": "ok"}
}

func (a *fileLock) write(q client.Request) fields {
	at := q.URL
	answer := fields{"type": "ok"}
	if n := a.token(q.Key); n > 0 && a.kind != "bare-write" {
		at += fmt.Sprintf("&token=%d", n)
		answer["token"] = n
	}
	r, err := http.Post(at, "", nil)
	if err == nil && r.StatusCode != 200 && a.kind == "retries" {
		r.Body.Close()
		r, err = http.Post(at, "", nil)
	}
	if err != nil {
		return fields{"type": "fail", "error": err.Error()}
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	switch {
	case r.StatusCode == 200 || r.StatusCode == 500 && a.kind == "optimist":
		return answer
	case r.StatusCode == 409:
		return fields{"type": "fail", "error": string(b)}
	}
	return fields{"type": "info", "error": string(b)}
}

func (a *fileLock) token(key string) int64 {
	if a.kind == "same-token" && a.tokens[key] > 0 {
		return 7
	}
	return a.tokens[key]
}

func (a *fileLock) path(key string) string { return filepath.Join(a.dir, url.PathEscape(key)) }

// take makes the file, in place of one whose lease has ended.
func (a *fileLock) take(key string) bool {
	path := a.path(key)
	if s, err := os.Stat(path); err == nil && time.Since(s.ModTime()) > a.ttl {
		os.Remove(path)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	defer f.Close()
	a.tokens[key] = time.Now().UnixNano() / 1000
	fmt.Fprint(f, a.tokens[key])
	return true
}

func (a *fileLock) mine(key string) bool {
	b, err := os.ReadFile(a.path(key))
	n, _ := strconv.ParseInt(string(b), 10, 64)
	return err == nil && n != 0 && n == a.tokens[key]
}

// watch gives notice when the file is another's.
func (a *fileLock) watch(key string) {
	path, token := a.path(key), fmt.Sprint(a.tokens[key])
	go func() {
		for {
			time.Sleep(10 * time.Millisecond)
			b, err := os.ReadFile(path)
			if err != nil {
				return // released
			}
			if len(b) > 0 && string(b) != token {
				n, _ := json.Marshal(fields{"f": "lost", "key": key}) // of plain values
				fmt.Printf("%s\n", n)
				return
			}
		}
	}()
}
