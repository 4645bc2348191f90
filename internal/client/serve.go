package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/history"
)

// operationTimeout bounds an operation in addition to the wait of an acquire.
// After it the outcome is unknown.
const operationTimeout = 5 * time.Second

// Serve is the client's end: it reads requests from in and answers them on out
// with a client of b, until it is asked to close or in ends. It returns nil in
// both cases, or the error that kept it from reading or writing.
func Serve(ctx context.Context, in io.Reader, out io.Writer, b backends.Backend) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{
		backend: b,
		out:     json.NewEncoder(out),
		held:    map[string]*hold{},
		web: &http.Client{
			Transport:     &http.Transport{MaxIdleConnsPerHost: 1}, // no proxy: the resource is near
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	defer s.close()

	// The end of in is the end of the harness: it is noticed also while an
	// operation goes on.
	requests := make(chan Request)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- readRequests(ctx, in, requests)
	}()
	for {
		select {
		case err := <-ended:
			return err
		case r := <-requests:
			if err := s.send(s.serve(ctx, r)); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			if r.F == "close" {
				return nil
			}
		}
	}
}

func readRequests(ctx context.Context, in io.Reader, requests chan<- Request) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	for n := 1; lines.Scan(); n++ {
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("line %d is no request: %w", n, err)
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return nil
		}
	}
	return lines.Err()
}

// server is one client that answers requests, one at a time.
type server struct {
	backend backends.Backend
	client  backends.Client
	config  backends.Config
	held    map[string]*hold // by key
	web     *http.Client

	mu  sync.Mutex // of out: loss notices come at any time
	out *json.Encoder
}

// hold is a grant that was not released.
type hold struct {
	token   *int64
	depth   int                // grants of a reentrant lock that are not released, but for the first
	release context.CancelFunc // ends the watch for its loss
	watched chan struct{}      // closed when the watch has ended
	news    <-chan struct{}    // closed when it was lost; nil if nobody tells
}

// lost says whether the client knows that it lost the lock.
func (h *hold) lost() bool {
	select {
	case <-h.news:
		return true
	default:
		return false
	}
}

func (s *server) send(r Response) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Encode(r)
}

func (s *server) close() {
	for key := range s.held {
		s.drop(key)
	}
	if s.client != nil {
		s.client.Close() // the process ends: nobody is left to tell
	}
}

// serve does what is asked and returns the answer.
func (s *server) serve(ctx context.Context, r Request) Response {
	read := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.Wait)*time.Millisecond+operationTimeout)
	defer cancel()
	answer, err := s.do(ctx, r, read)
	answer.ID = r.ID
	switch {
	case err == nil:
		answer.Type = history.OK
	case backends.IsFailed(err):
		answer.Type, answer.Error = history.Fail, err.Error()
	default:
		answer.Type, answer.Error = history.Info, err.Error()
	}
	return answer
}

func (s *server) do(ctx context.Context, r Request, read time.Time) (Response, error) {
	if r.F == "open" {
		return s.open(ctx, r)
	}
	if r.F == "close" {
		return Response{}, nil
	}
	if s.client == nil {
		return Response{}, backends.Failed(errors.New("not opened yet"))
	}
	switch r.F {
	case history.Acquire:
		g, err := s.client.Acquire(ctx, r.Key, time.Duration(r.Wait)*time.Millisecond)
		if err != nil {
			return Response{}, err
		}
		if h := s.held[r.Key]; h != nil && s.backend.Reentrant && !h.lost() {
			h.depth++
			return granted(g, read), nil
		}
		s.drop(r.Key)
		s.keep(r.Key, g.Token)
		return granted(g, read), nil
	case history.Renew:
		renewer, ok := s.client.(backends.Renewer)
		if !ok {
			return Response{}, s.cannot(r.F)
		}
		g, err := renewer.Renew(ctx, r.Key)
		if err != nil {
			return Response{}, err
		}
		if h := s.held[r.Key]; h != nil && g.Token != nil {
			h.token = g.Token
		}
		return granted(g, read), nil
	case history.Release:
		if h := s.held[r.Key]; h != nil && h.depth > 0 && !h.lost() {
			h.depth--
		} else {
			s.drop(r.Key)
		}
		return Response{}, s.client.Release(ctx, r.Key)
	case history.Check:
		checker, ok := s.client.(backends.Checker)
		if !ok {
			return Response{}, s.cannot(r.F)
		}
		holds, err := checker.Check(ctx, r.Key)
		if err != nil {
			return Response{}, err
		}
		if holds {
			return Response{Value: json.RawMessage("true")}, nil
		}
		return Response{Value: json.RawMessage("false")}, nil
	case history.Write:
		var token *int64
		if h := s.held[r.Key]; h != nil {
			token = h.token
		}
		return Response{Token: token}, s.write(ctx, r, token)
	case history.Read:
		body, err := s.request(ctx, http.MethodGet, s.withToken(r))
		if err != nil {
			return Response{}, err
		}
		return Response{Value: text(body)}, nil
	default:
		return Response{}, backends.Failed(fmt.Errorf("unknown request %q", r.F))
	}
}

func (s *server) cannot(f string) error {
	return backends.Failed(fmt.Errorf("backend %s cannot %s", s.backend.Name, f))
}

func (s *server) open(ctx context.Context, r Request) (Response, error) {
	if s.client != nil {
		return Response{}, backends.Failed(errors.New("opened already"))
	}
	if r.Protocol != Version {
		return Response{}, backends.Failed(fmt.Errorf("protocol %d is wanted, this client speaks %d", r.Protocol, Version))
	}
	s.config = backends.Config{
		Process:     r.Process,
		Servers:     r.Servers,
		TTL:         time.Duration(r.TTL) * time.Millisecond,
		ResourceDSN: r.ResourceDSN,
	}
	c, err := s.backend.Open(ctx, s.config)
	if err != nil {
		return Response{}, err
	}
	s.client = c
	return Response{Protocol: Version, Name: s.backend.Name, Version: fmt.Sprint(Version), Capabilities: s.capabilities()}, nil
}

func (s *server) capabilities() []string {
	can := []string{CanWait}
	for _, c := range []struct {
		capability string
		has        bool
	}{
		{CanToken, s.backend.Tokens},
		{CanLease, s.backend.Leased},
		{CanRenew, is[backends.Renewer](s.client)},
		{CanCheck, is[backends.Checker](s.client)},
		{CanNotify, is[backends.Notifier](s.client)},
		{CanDeadline, s.backend.Deadline},
		{CanReentrant, s.backend.Reentrant},
		{CanKeep, s.backend.KeepsAlive},
	} {
		if c.has {
			can = append(can, c.capability)
		}
	}
	return can
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

// granted turns a grant, whose times count from its request and from now, into
// an answer, whose times count from when the request was read.
func granted(g backends.Grant, read time.Time) Response {
	r := Response{Token: g.Token, TTL: g.TTL.Milliseconds()}
	if g.Valid > 0 {
		r.Valid = (time.Since(read) + g.Valid).Milliseconds()
	}
	return r
}

// keep remembers a grant, and passes on the news of its loss.
func (s *server) keep(key string, token *int64) {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hold{token: token, release: cancel, watched: make(chan struct{})}
	s.held[key] = h
	n, ok := s.client.(backends.Notifier)
	if !ok {
		close(h.watched)
		return
	}
	h.news = n.Lost(key)
	go func() {
		defer close(h.watched)
		select {
		case <-h.news:
			if ctx.Err() == nil {
				// A broken pipe is noticed by the next answer.
				_ = s.send(Response{F: history.Lost, Key: key})
			}
		case <-ctx.Done():
		}
	}()
}

// drop forgets a grant: from now on there is no news of its loss.
func (s *server) drop(key string) {
	if h := s.held[key]; h != nil {
		h.release()
		<-h.watched
		delete(s.held, key)
	}
}

// write has the client itself write if lock and resource are in one database,
// and asks the resource otherwise. The token is that of the present grant.
func (s *server) write(ctx context.Context, r Request, token *int64) error {
	if w, ok := s.client.(backends.Writer); ok && s.config.ResourceDSN != "" {
		return w.Write(ctx, backends.Write{Key: r.Key, Value: r.Value, Process: s.config.Process, Op: r.Op, Token: token})
	}
	_, err := s.request(ctx, http.MethodPost, s.withToken(r))
	return err
}

// withToken is the request's URL with the token of the present grant, if it has one.
func (s *server) withToken(r Request) string {
	if h := s.held[r.Key]; h != nil && h.token != nil {
		return fmt.Sprintf("%s&token=%d", r.URL, *h.token)
	}
	return r.URL
}

// request asks the resource and returns the body of its answer.
func (s *server) request(ctx context.Context, method, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", backends.Failed(fmt.Errorf("the request's url: %w", err))
	}
	resp, err := s.web.Do(req)
	if err != nil {
		if backends.NotDialed(err) {
			return "", backends.Failed(err)
		}
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxLine/2))
	if err != nil {
		return "", fmt.Errorf("read the resource's answer: %w", err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return string(body), nil
	case http.StatusConflict:
		return "", fmt.Errorf("%w (%s)", backends.ErrRejected, strings.TrimSpace(string(body)))
	default:
		return "", fmt.Errorf("the resource answered %s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
}
