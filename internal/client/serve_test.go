package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/client"
)

// lock is a client of a lock that answers as it is told.
type lock struct {
	grant backends.Grant
	err   error // of the next operation
	lost  chan struct{}
	wrote []backends.Write
	block bool // Acquire waits for the end of its context
}

func (l *lock) Acquire(ctx context.Context, _ string, _ time.Duration) (backends.Grant, error) {
	if l.block {
		<-ctx.Done()
		return backends.Grant{}, ctx.Err()
	}
	return l.grant, l.err
}
func (l *lock) Release(context.Context, string) error { return l.err }
func (l *lock) Close() error                          { return nil }
func (l *lock) Lost(string) <-chan struct{}           { return l.lost }
func (l *lock) Write(_ context.Context, w backends.Write) error {
	l.wrote = append(l.wrote, w)
	return l.err
}

// session talks to Serve.
type session struct {
	*testing.T
	in    *io.PipeWriter
	lines *bufio.Scanner
	ended chan error
}

func serve(t *testing.T, l *lock) *session {
	return serveBackend(t, l, backends.Backend{Name: "test", Tokens: true})
}

// serveBackend opens l as the client of a backend.
func serveBackend(t *testing.T, l *lock, b backends.Backend) *session {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := &session{T: t, in: inW, lines: bufio.NewScanner(outR), ended: make(chan error, 1)}
	b.Open = func(context.Context, backends.Config) (backends.Client, error) { return l, nil }
	go func() {
		s.ended <- client.Serve(t.Context(), inR, outW, b)
		outW.Close()
	}()
	t.Cleanup(func() { inW.Close(); outR.Close() })
	return s
}

// ask writes a request and returns the next line.
func (s *session) ask(request string) string {
	s.Helper()
	fmt.Fprintln(s.in, request)
	return s.next()
}

func (s *session) next() string {
	s.Helper()
	if !s.lines.Scan() {
		s.Fatal("the client wrote nothing more")
	}
	return s.lines.Text()
}

func (s *session) expect(request, answer string) {
	s.Helper()
	if got := s.ask(request); got != answer {
		s.Fatalf("%s\nwas answered %s\nwant         %s", request, got, answer)
	}
}

const (
	openLine  = `{"id":1,"f":"open","protocol":1,"process":"A","ttl_ms":100}`
	openReply = `{"id":1,"type":"ok","protocol":1,"name":"test","version":"1","capabilities":["wait","token","lost"]}`
)

func TestServe(t *testing.T) {
	token := int64(7)
	l := &lock{grant: backends.Grant{Token: &token, TTL: 100 * time.Millisecond}}
	s := serve(t, l)
	s.expect(`{"id":9,"f":"acquire","key":"k"}`, `{"id":9,"type":"fail","error":"not opened yet"}`)
	s.expect(openLine, openReply)
	s.expect(`{"id":2,"f":"acquire","key":"k"}`, `{"id":2,"type":"ok","token":7,"lease_ms":100}`)
	s.expect(`{"id":3,"f":"renew","key":"k"}`, `{"id":3,"type":"fail","error":"backend test cannot renew"}`)
	l.err = fmt.Errorf("connection reset")
	s.expect(`{"id":4,"f":"release","key":"k"}`, `{"id":4,"type":"info","error":"connection reset"}`)
	l.err = fmt.Errorf("%w: expired", backends.ErrNotHeld)
	s.expect(`{"id":5,"f":"release","key":"k"}`, `{"id":5,"type":"fail","error":"lock is not held: expired"}`)
	l.err = backends.ErrBusy
	s.expect(`{"id":6,"f":"acquire","key":"k"}`, `{"id":6,"type":"fail","error":"lock is held by another"}`)
	s.expect(`{"id":7,"f":"dance","key":"k"}`, `{"id":7,"type":"fail","error":"unknown request \"dance\""}`)
	s.expect(`{"id":8,"f":"close"}`, `{"id":8,"type":"ok"}`)
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

func TestServeRefusesAnotherProtocol(t *testing.T) {
	s := serve(t, &lock{})
	s.expect(`{"id":1,"f":"open","protocol":2}`, `{"id":1,"type":"fail","error":"protocol 2 is wanted, this client speaks 1"}`)
}

// The end of the input is the end of the harness: the client must not outlive
// it, whatever it is waiting for.
func TestServeEndsWithItsInput(t *testing.T) {
	s := serve(t, &lock{block: true})
	s.expect(openLine, openReply)
	fmt.Fprintln(s.in, `{"id":2,"f":"acquire","key":"k","wait_ms":3600000}`)
	s.in.Close()
	s.next() // whether the acquire had an effect is unknown
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the client still waits")
	}
}

func TestServeSaysWhichLineIsWrong(t *testing.T) {
	s := serve(t, &lock{})
	s.expect(openLine, openReply)
	fmt.Fprintln(s.in, "hello")
	if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "line 2 is no request") {
		t.Errorf("error %v", err)
	}
}

func TestServePassesOnLossNotices(t *testing.T) {
	l := &lock{lost: make(chan struct{})}
	s := serve(t, l)
	s.expect(openLine, openReply)
	s.expect(`{"id":2,"f":"acquire","key":"k"}`, `{"id":2,"type":"ok"}`)
	close(l.lost)
	if got, want := s.next(), `{"f":"lost","key":"k"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// A loss that comes with or after the release is no news.
	l.lost = make(chan struct{})
	s.expect(`{"id":3,"f":"acquire","key":"k"}`, `{"id":3,"type":"ok"}`)
	s.expect(`{"id":4,"f":"release","key":"k"}`, `{"id":4,"type":"ok"}`)
	close(l.lost)
	s.expect(`{"id":5,"f":"close"}`, `{"id":5,"type":"ok"}`)
}

// A lock that was taken twice is kept, and its loss is told, until it is released
// twice.
func TestServeReentrant(t *testing.T) {
	l := &lock{lost: make(chan struct{})}
	s := serveBackend(t, l, backends.Backend{Name: "test", Leased: true, Deadline: true, KeepsAlive: true, Reentrant: true})
	s.expect(openLine, `{"id":1,"type":"ok","protocol":1,"name":"test","version":"1","capabilities":["wait","lease","lost","deadline","reentrant","keepalive"]}`)
	s.expect(`{"id":2,"f":"acquire","key":"k"}`, `{"id":2,"type":"ok"}`)
	s.expect(`{"id":3,"f":"acquire","key":"k"}`, `{"id":3,"type":"ok"}`)
	s.expect(`{"id":4,"f":"release","key":"k"}`, `{"id":4,"type":"ok"}`)
	close(l.lost)
	if got, want := s.next(), `{"f":"lost","key":"k"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// What was lost is not taken again, but anew.
	l.lost = make(chan struct{})
	s.expect(`{"id":5,"f":"acquire","key":"k"}`, `{"id":5,"type":"ok"}`)
	s.expect(`{"id":6,"f":"release","key":"k"}`, `{"id":6,"type":"ok"}`)
	close(l.lost)
	s.expect(`{"id":7,"f":"close"}`, `{"id":7,"type":"ok"}`)
}

// Until is counted from when the request was read, so what the client waited
// is part of it.
func TestServeCountsTheDeadlineFromTheRequest(t *testing.T) {
	s := serve(t, &lock{grant: backends.Grant{Valid: 500 * time.Millisecond}})
	s.expect(openLine, openReply)
	var r client.Response
	if err := json.Unmarshal([]byte(s.ask(`{"id":2,"f":"acquire","key":"k"}`)), &r); err != nil {
		t.Fatal(err)
	}
	if r.Valid < 500 || r.Valid > 5000 {
		t.Errorf("valid_ms %d, want at least 500", r.Valid)
	}
}

func TestServeWritesToTheResource(t *testing.T) {
	var asked []string
	status := http.StatusOK
	resource := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		w.WriteHeader(status)
		fmt.Fprint(w, "body")
	}))
	defer resource.Close()
	token := int64(7)
	l := &lock{grant: backends.Grant{Token: &token}}
	s := serve(t, l)
	s.expect(openLine, openReply)
	write := fmt.Sprintf(`{"id":2,"f":"write","key":"k","url":"%s/w?k=v"}`, resource.URL)
	s.expect(write, `{"id":2,"type":"ok"}`)
	s.ask(`{"id":3,"f":"acquire","key":"k"}`)
	s.expect(write, `{"id":2,"type":"ok","token":7}`)
	s.expect(strings.Replace(write, "write", "read", 1), `{"id":2,"type":"ok","value":"body"}`)
	status = http.StatusConflict
	s.expect(write, `{"id":2,"type":"fail","token":7,"error":"rejected by the resource: stale token (body)"}`)
	status = http.StatusInternalServerError
	s.expect(write, `{"id":2,"type":"info","token":7,"error":"the resource answered 500 Internal Server Error: body"}`)
	gone := httptest.NewServer(nil)
	gone.Close()
	if got := s.ask(strings.Replace(write, resource.URL, gone.URL, 1)); !strings.Contains(got, `"type":"fail"`) {
		t.Errorf("nothing was sent, so the write certainly failed: %s", got)
	}
	want := "POST /w?k=v|POST /w?k=v&token=7|GET /w?k=v&token=7|POST /w?k=v&token=7|POST /w?k=v&token=7"
	if got := strings.Join(asked, "|"); got != want {
		t.Errorf("asked %s\nwant  %s", got, want)
	}
	if len(l.wrote) > 0 {
		t.Error("a write to another's resource went through the lock's connection")
	}
}

func TestServeWritesThroughTheLock(t *testing.T) {
	l := &lock{err: backends.ErrPending}
	s := serve(t, l)
	s.expect(`{"id":1,"f":"open","protocol":1,"process":"A","ttl_ms":100,"resource_dsn":"postgres://x"}`, openReply)
	s.expect(`{"id":2,"f":"write","key":"k","value":"v","url":"http://127.0.0.1:1/","op":5}`,
		`{"id":2,"type":"info","error":"takes effect when the release commits"}`)
	if len(l.wrote) != 1 || l.wrote[0].Op != 5 || l.wrote[0].Value != "v" || l.wrote[0].Process != "A" {
		t.Errorf("wrote %+v", l.wrote)
	}
}
