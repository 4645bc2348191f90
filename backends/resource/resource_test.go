package resource_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/history"
)

// step is a request to a resource, and what must come of it.
type step struct {
	write  string // value, "" for a read
	token  string // "" for none
	status int
	event  string // as recorded
}

// steps are the same for all resources but for what they do with tokens.
func steps(rejects bool) []step {
	stale := step{"c", "33", 200, "write ok c 33 by A"}
	last := "c"
	if rejects {
		stale = step{"c", "33", 409, "write fail c 33 by A: token 33 is lower than 34, which was accepted before"}
		last = "b"
	}
	return []step{
		{"a", "33", 200, "write ok a 33 by A"},
		{"b", "34", 200, "write ok b 34 by A"},
		{"b", "34", 200, "write ok b 34 by A"},
		stale,
		{"", "", 200, "read ok " + last + " by A"},
	}
}

func TestResources(t *testing.T) {
	for kind, rejects := range map[string]bool{"unfenced": false, "fenced": true} {
		t.Run(kind, func(t *testing.T) { try(t, kind, resource.Options{}, steps(rejects)) })
	}
}

// A resource that heeds tokens but gets none must not pass for one that judges.
func TestWriteWithoutToken(t *testing.T) {
	const remark = ": accepted without a token: cannot judge"
	try(t, "fenced", resource.Options{}, []step{
		{"a", "", 200, "write ok a by A" + remark},
		{"b", "34", 200, "write ok b 34 by A"},
		{"c", "", 200, "write ok c by A" + remark},
		{"d", "33", 409, "write fail d 33 by A: token 33 is lower than 34, which was accepted before"},
	})
	try(t, "unfenced", resource.Options{}, []step{{"a", "", 200, "write ok a by A"}})
}

// An older holder must not write between the read and the write of a newer one, who
// would overwrite it without having read it.
func TestReadsThatAreFenced(t *testing.T) {
	try(t, "fenced", resource.Options{}, []step{
		{"a", "33", 200, "write ok a 33 by A"},
		{"", "34", 200, "read ok a by A"},
		{"b", "33", 200, "write ok b 33 by A"},
	})
	try(t, "fenced-reads", resource.Options{}, []step{
		{"a", "33", 200, "write ok a 33 by A"},
		{"", "34", 200, "read ok a 34 by A"},
		{"b", "33", 409, "write fail b 33 by A: token 33 is lower than 34, which was accepted before"},
		{"", "33", 409, "read fail  33 by A: token 33 is lower than 34, which was accepted before"},
		{"", "", 200, "read ok a by A: accepted without a token: cannot judge"},
		{"c", "34", 200, "write ok c 34 by A"},
	})
}

func TestRequestsThatAreNoRequests(t *testing.T) {
	r, events := open(t, "unfenced", resource.Options{})
	for _, c := range []struct{ method, url, want string }{
		{http.MethodPost, r.WriteURL("A", "", "v"), "the request has no key"},
		{http.MethodPost, r.WriteURL("A", "k", "v") + "&token=x", `token="x" is not a whole number`},
		{http.MethodPost, r.WriteURL("A", "k", "v") + "&op=", `op="" is not a whole number`},
	} {
		status, body := ask(t, c.method, c.url)
		if status != http.StatusBadRequest || strings.TrimSpace(body) != c.want {
			t.Errorf("%s: %d %q, want 400 %q", c.url, status, body, c.want)
		}
	}
	if got := events(); len(got) > 0 {
		t.Errorf("recorded %q, though nothing was applied", got)
	}
}

func TestUnknownKind(t *testing.T) {
	_, err := resource.Open(t.Context(), "fended", resource.Options{})
	if err == nil || err.Error() != `unknown resource "fended": there are fenced, fenced-reads, postgres, unfenced` {
		t.Errorf("error %v", err)
	}
	_, err = resource.Open(t.Context(), "postgres", resource.Options{})
	if err == nil || !strings.Contains(err.Error(), "its address is missing") {
		t.Errorf("error %v", err)
	}
}

// What is recorded is in the order in which it was applied, also when many
// write at once: the last write recorded is the value that is read.
func TestRecordedInTheOrderOfApplication(t *testing.T) {
	r, events := open(t, "unfenced", resource.Options{})
	inOrder(t, r, events)
}

func inOrder(t *testing.T, r *resource.Resource, events func() []history.Event) {
	t.Helper()
	var wg sync.WaitGroup
	const writers, writes = 8, 20
	for w := range writers {
		wg.Go(func() {
			for i := range writes {
				ask(t, http.MethodPost, r.WriteURL("A", "k", fmt.Sprintf("%d-%d", w, i)))
			}
		})
	}
	wg.Wait()
	_, value := ask(t, http.MethodGet, r.ReadURL("A", "k"))
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	var last string
	count := 0
	for _, e := range events() {
		if e.F == history.Write {
			last = string(e.Value)
			count++
		}
	}
	if want := fmt.Sprintf("%q", value); last != want || count != writers*writes {
		t.Errorf("the last of %d writes recorded is %s, want %s, the last of %d", count, last, want, writers*writes)
	}
}

func try(t *testing.T, kind string, o resource.Options, steps []step) {
	t.Helper()
	r, events := open(t, kind, o)
	for i, s := range steps {
		method, url := http.MethodGet, r.ReadURL("A", "k&=é")
		if s.write != "" {
			method, url = http.MethodPost, r.WriteURL("A", "k&=é", s.write)
		}
		url += fmt.Sprintf("&op=%d", i)
		if s.token != "" {
			url += "&token=" + s.token
		}
		if status, body := ask(t, method, url); status != s.status {
			t.Fatalf("step %d: status %d %q, want %d", i, status, body, s.status)
		}
	}
	if err := r.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := events()
	if len(got) != len(steps) {
		t.Fatalf("%d events recorded, want %d", len(got), len(steps))
	}
	for i, e := range got {
		line := fmt.Sprintf("%s %s %s", e.F, e.Type, strings.Trim(string(e.Value), `"`))
		if e.Token != nil {
			line += fmt.Sprintf(" %d", *e.Token)
		}
		line += " by " + e.Client
		if e.Error != "" {
			line += ": " + e.Error
		}
		if line != steps[i].event {
			t.Errorf("event %d is\n%s\nwant\n%s", i, line, steps[i].event)
		}
		if e.Process != history.Resource || e.Key != "k&=é" || e.Op == nil || *e.Op != int64(i) {
			t.Errorf("event %d: %v", i, e)
		}
	}
}

// open returns a resource, and what it recorded so far.
func open(t *testing.T, kind string, o resource.Options) (*resource.Resource, func() []history.Event) {
	t.Helper()
	rec, err := history.Create(filepath.Join(t.TempDir(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var events []history.Event
	rec.Watch(func(e history.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	o.Recorder = rec
	r, err := resource.Open(t.Context(), kind, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, func() []history.Event {
		mu.Lock()
		defer mu.Unlock()
		return append([]history.Event(nil), events...)
	}
}

func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(body)
}
