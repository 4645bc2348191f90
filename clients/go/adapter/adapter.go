// Package adapter speaks lockcheck's client protocol for lock libraries written
// in Go: what is left to write is how the library opens, takes and releases its
// lock. It needs nothing but the standard library, so that its one file can be
// copied. See docs/client-protocol.md.
package adapter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Adapter says what there is to be tested.
type Adapter struct {
	Name         string   // of the library
	Module       string   // its import path, for the version; "" means none
	Capabilities []string // besides those that follow from the methods of its Lock
	Open         func(context.Context, Config) (Lock, error)
}

// Config is what a lock is opened with.
type Config struct {
	Process string        // name of the client
	URLs    []string      // of the servers
	TTL     time.Duration // lease to ask for
}

// Lock is one client of a lock, used by one goroutine. It may also be a Renewer
// or Checker.
//
// An error that wraps ErrBusy or ErrNotHeld says that the operation certainly
// had no effect. Any other error means that nobody knows.
type Lock interface {
	// Acquire takes the lock within wait; with wait 0 it tries once.
	Acquire(ctx context.Context, key string, wait time.Duration) (Grant, error)
	Release(ctx context.Context, key string) error
}

// Renewer is a Lock that extends its lease on request.
type Renewer interface {
	Renew(ctx context.Context, key string) (Grant, error)
}

// Checker is a Lock that says, without asking anybody, whether it believes
// that it holds.
type Checker interface {
	Check(key string) bool
}

// Grant is what an acquire or a renewal gives. What a library does not have is
// left zero.
type Grant struct {
	Token int64           // fencing token
	Lease time.Duration   // promised by the service, from the call on
	Until time.Time       // when the client stops to act as a holder: then it writes no more
	Lost  <-chan struct{} // closed when the library learns that the grant is lost
}

var (
	ErrBusy    = errors.New("lock is held by another")
	ErrNotHeld = errors.New("lock is not held")
)

// operationTimeout bounds an operation in addition to the wait of an acquire.
const operationTimeout = 5 * time.Second

// Main serves requests on standard input until it is asked to close or the
// harness is gone.
func Main(a Adapter) {
	s := &server{adapter: a, grants: map[string]*grant{}, out: json.NewEncoder(os.Stdout)}
	requests := make(chan request)
	go func() {
		defer os.Exit(0) // the harness is gone, whatever goes on
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			var q request
			if err != nil || json.Unmarshal(line, &q) != nil {
				return
			}
			requests <- q
		}
	}()
	for q := range requests {
		read := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(q.Wait)*time.Millisecond+operationTimeout)
		r, err := s.serve(ctx, q, read)
		cancel()
		r["id"], r["type"] = q.ID, "ok"
		if err != nil {
			r["type"], r["error"] = "info", err.Error()
			if errors.Is(err, ErrBusy) || errors.Is(err, ErrNotHeld) || errors.Is(err, errNever) {
				r["type"] = "fail"
			}
		}
		s.send(r)
		if q.F == "close" {
			os.Exit(0)
		}
	}
}

// request is what the harness asks; see docs/client-protocol.md.
type request struct {
	ID      int64  `json:"id"`
	F       string `json:"f"`
	Process string `json:"process"`
	Servers []struct {
		URL string `json:"url"`
	} `json:"servers"`
	TTL  int64  `json:"ttl_ms"`
	Key  string `json:"key"`
	Wait int64  `json:"wait_ms"`
	URL  string `json:"url"`
}

type answer = map[string]any

type server struct {
	adapter Adapter
	lock    Lock
	grants  map[string]*grant // by key

	mu  sync.Mutex // loss notices come at any time
	out *json.Encoder
}

// grant is a grant that was not released.
type grant struct {
	token   int64
	until   time.Time
	dropped chan struct{} // closed by drop
	watched chan struct{} // closed when no notice can come any more
}

// errNever marks what certainly did not happen.
var errNever = errors.New("certain")

func never(err error) error { return fmt.Errorf("%w (%w)", err, errNever) }

func (s *server) serve(ctx context.Context, q request, read time.Time) (answer, error) {
	switch {
	case q.F == "close":
		return answer{}, nil
	case q.F == "open":
		return s.open(ctx, q)
	case s.lock == nil:
		return answer{}, never(errors.New("not open"))
	}
	switch q.F {
	case "acquire":
		g, err := s.lock.Acquire(ctx, q.Key, time.Duration(q.Wait)*time.Millisecond)
		if err != nil {
			return answer{}, err
		}
		s.drop(q.Key)
		s.keep(q.Key, g)
		return g.answer(read), nil
	case "renew":
		l, ok := s.lock.(Renewer)
		if !ok {
			break
		}
		g, err := l.Renew(ctx, q.Key)
		if err != nil {
			return answer{}, err
		}
		if k := s.grants[q.Key]; k != nil {
			k.until = g.Until
		}
		return g.answer(read), nil
	case "release":
		s.drop(q.Key)
		return answer{}, s.lock.Release(ctx, q.Key)
	case "check":
		if l, ok := s.lock.(Checker); ok {
			return answer{"value": l.Check(q.Key)}, nil
		}
	case "write":
		r, g := answer{}, s.grants[q.Key]
		if g != nil && !g.until.IsZero() && time.Now().After(g.until) {
			return r, never(fmt.Errorf("%w: its deadline has passed", ErrNotHeld))
		}
		if g != nil && g.token != 0 {
			r["token"] = g.token
			q.URL += fmt.Sprintf("&token=%d", g.token)
		}
		_, err := ask(ctx, http.MethodPost, q.URL)
		return r, err
	case "read":
		body, err := ask(ctx, http.MethodGet, q.URL)
		return answer{"value": body}, err
	}
	return answer{}, never(errors.New("cannot " + q.F))
}

func (s *server) open(ctx context.Context, q request) (answer, error) {
	c := Config{Process: q.Process, TTL: time.Duration(q.TTL) * time.Millisecond}
	for _, e := range q.Servers {
		c.URLs = append(c.URLs, e.URL)
	}
	var err error
	if s.lock, err = s.adapter.Open(ctx, c); err != nil {
		return answer{}, err
	}
	can := append([]string{}, s.adapter.Capabilities...)
	if _, ok := s.lock.(Renewer); ok {
		can = append(can, "renew")
	}
	if _, ok := s.lock.(Checker); ok {
		can = append(can, "check")
	}
	return answer{"protocol": 1, "name": s.adapter.Name, "version": version(s.adapter.Module), "capabilities": can}, nil
}

func version(module string) string {
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range b.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return "unknown"
}

func (g Grant) answer(read time.Time) answer {
	r := answer{}
	if g.Token != 0 {
		r["token"] = g.Token
	}
	if g.Lease > 0 {
		r["lease_ms"] = g.Lease.Milliseconds()
	}
	if !g.Until.IsZero() {
		r["valid_ms"] = max(1, g.Until.Sub(read).Milliseconds())
	}
	return r
}

// keep remembers a grant, and passes on the news of its loss.
func (s *server) keep(key string, g Grant) {
	k := &grant{token: g.Token, until: g.Until, dropped: make(chan struct{}), watched: make(chan struct{})}
	s.grants[key] = k
	go func() {
		defer close(k.watched)
		select {
		case <-g.Lost: // never, if it is nil
			select {
			case <-k.dropped:
			default:
				s.send(answer{"f": "lost", "key": key})
			}
		case <-k.dropped:
		}
	}()
}

// drop forgets a grant: from now on there is no news of its loss.
func (s *server) drop(key string) {
	if g := s.grants[key]; g != nil {
		close(g.dropped)
		<-g.watched
		delete(s.grants, key)
	}
}

func (s *server) send(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out.Encode(a) != nil {
		os.Exit(1) // the harness is gone
	}
}

// ask has the resource do what the protocol says of writes and reads.
func ask(ctx context.Context, method, url string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", never(err)
	}
	r, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return "", never(err)
		}
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	body := strings.TrimSpace(string(b))
	switch {
	case err != nil:
		return "", err
	case r.StatusCode == http.StatusOK:
		return string(b), nil
	case r.StatusCode == http.StatusConflict:
		return "", never(errors.New(body))
	}
	return "", fmt.Errorf("%s: %s", r.Status, body)
}
