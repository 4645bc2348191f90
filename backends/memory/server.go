package memory

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy"
)

func init() {
	deploy.Register(deploy.Software{
		Name: "memory",
		Serve: func(l net.Listener, _ map[string]string) (string, func() error, error) {
			url, stop := Serve(l, New(time.Now))
			return url, stop, nil
		},
	})
}

// Serve serves locks over HTTP on l and returns the URL for clients. Stop ends
// the server, its connections and l.
func Serve(l net.Listener, locks *Locks) (url string, stop func() error) {
	s := &server{locks}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{do}", s.serve)
	h := http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	return "http://" + l.Addr().String(), func() error {
		err := h.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	}
}

type server struct{ locks *Locks }

// serve answers POST /acquire, /renew and /release with 200 and the token, or
// 409 if the lock is another's.
func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	key, owner := q.Get("key"), q.Get("owner")
	if key == "" || owner == "" {
		http.Error(w, "key and owner are required", http.StatusBadRequest)
		return
	}
	do := r.PathValue("do")
	var ttl time.Duration
	if do != "release" {
		ms, err := strconv.ParseInt(q.Get("ttl_ms"), 10, 64)
		if err != nil || ms <= 0 {
			http.Error(w, fmt.Sprintf("ttl_ms=%q is not a positive number", q.Get("ttl_ms")), http.StatusBadRequest)
			return
		}
		ttl = time.Duration(ms) * time.Millisecond
	}
	var token int64
	var ok bool
	switch do {
	case "acquire":
		token, ok = s.locks.Acquire(key, owner, ttl)
	case "renew":
		token, ok = s.locks.Renew(key, owner, ttl)
	case "release":
		ok = s.locks.Release(key, owner)
	default:
		http.NotFound(w, r)
		return
	}
	if !ok {
		w.WriteHeader(http.StatusConflict)
		return
	}
	fmt.Fprint(w, token)
}

// query is what a client asks.
func query(key, owner string, ttl time.Duration) string {
	q := url.Values{"key": {key}, "owner": {owner}}
	if ttl > 0 {
		q.Set("ttl_ms", strconv.FormatInt(ttl.Milliseconds(), 10))
	}
	return q.Encode()
}
