package protocolcheck

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// stub is a resource that answers as it is told.
type stub struct {
	server *http.Server
	addr   string

	mu     sync.Mutex
	status int
	body   string
	got    []webRequest
}

type webRequest struct {
	method string
	query  url.Values
}

func newStub() (*stub, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &stub{addr: l.Addr().String()}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go s.server.Serve(l) // ends with close
	return s, nil
}

func (s *stub) close() { s.server.Close() }

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, webRequest{r.Method, r.URL.Query()})
	w.WriteHeader(s.status)
	fmt.Fprint(w, s.body)
}

// answer sets what is answered from now on, and returns the url to ask.
func (s *stub) answer(status int, body string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body, s.got = status, body, nil
	return "http://" + s.addr + "/object?key=k"
}

// requests returns what was asked since answer was set.
func (s *stub) requests() []webRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// nobody is a url at which nobody listens.
func (s *stub) nobody() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "http://127.0.0.1:1/object?key=k"
	}
	defer l.Close()
	return "http://" + l.Addr().String() + "/object?key=k"
}

// decoded is a JSON string without its quotes.
func decoded(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) != nil {
		return string(value)
	}
	return s
}
