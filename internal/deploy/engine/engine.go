// Package engine speaks to a container engine: Docker, or one that serves
// Docker's API, such as Podman. It has only what lockcheck needs of that API, so
// that it needs no library.
//
// All methods may be called concurrently. Errors that the engine answers with are
// [*Error]; others are of the connection, and then it is unknown whether the engine
// did what it was asked for.
package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// apiVersion is the oldest version of the API that has all that is used here:
// that of Docker 18.09, which Podman serves too.
const apiVersion = "1.39"

// standard is where an engine listens if nobody says otherwise.
const standard = "unix:///var/run/docker.sock"

// Engine is a connection to an engine. It holds nothing that has to be closed.
type Engine struct {
	http *http.Client
	base string // of the URLs of requests, with the version
	at   string // as in DOCKER_HOST
	host string // its machine's name or address, "" if it is this one
	info Info
}

// Info is what an engine says of itself.
type Info struct {
	Version string // "20.10.24"
	Podman  bool   // it is Podman, which serves Docker's API
	OS      string // of containers: "linux"
}

// ErrNone says that no engine answers.
var ErrNone = errors.New("no container engine answers")

// Connect finds the engine that DOCKER_HOST names, or else this machine's, and
// asks it who it is. The error is [ErrNone] if it does not answer.
func Connect(ctx context.Context) (*Engine, error) {
	at := cmp.Or(os.Getenv("DOCKER_HOST"), standard)
	e := &Engine{at: at}
	u, err := url.Parse(at)
	if err != nil {
		return nil, fmt.Errorf("DOCKER_HOST: %w", err)
	}
	transport := &http.Transport{MaxIdleConns: 8, IdleConnTimeout: time.Minute}
	e.http = &http.Client{Transport: transport}
	switch u.Scheme {
	case "unix":
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.Path)
		}
		e.base = "http://engine"
	case "tcp", "http", "https":
		scheme := "http"
		if os.Getenv("DOCKER_TLS_VERIFY") != "" || u.Scheme == "https" {
			scheme = "https"
			if transport.TLSClientConfig, err = certificates(); err != nil {
				return nil, err
			}
		}
		e.base = scheme + "://" + u.Host
		if a := net.ParseIP(u.Hostname()); a == nil && u.Hostname() != "localhost" || a != nil && !a.IsLoopback() {
			e.host = u.Hostname()
		}
	default:
		return nil, fmt.Errorf("DOCKER_HOST %s: lockcheck speaks to an engine over unix:// and tcp:// only: forward its socket, as by ssh -L /tmp/engine.sock:/var/run/docker.sock HOST, and set DOCKER_HOST=unix:///tmp/engine.sock", at)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var version struct {
		Version    string
		APIVersion string `json:"ApiVersion"`
		OS         string `json:"Os"`
		Components []struct{ Name string }
	}
	if err := e.call(ctx, http.MethodGet, "/version", nil, nil, &version); err != nil {
		return nil, fmt.Errorf("%w at %s (start one, or say with DOCKER_HOST where it is): %w", ErrNone, at, err)
	}
	e.base += "/v" + apiVersion
	e.info = Info{Version: version.Version, OS: version.OS}
	for _, c := range version.Components {
		e.info.Podman = e.info.Podman || strings.HasPrefix(c.Name, "Podman")
	}
	return e, nil
}

// certificates are those that Docker's own client uses.
func certificates() (*tls.Config, error) {
	dir := os.Getenv("DOCKER_CERT_PATH")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(home, ".docker")
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		return nil, fmt.Errorf("the certificate for the engine (DOCKER_CERT_PATH): %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, fmt.Errorf("the engine's authority (DOCKER_CERT_PATH): %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(dir, "ca.pem"))
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// At returns where the engine is, as DOCKER_HOST has it.
func (e *Engine) At() string { return e.at }

// Info returns what the engine said of itself.
func (e *Engine) Info() Info { return e.info }

// Host returns the name of the engine's machine if that is another, else "".
func (e *Engine) Host() string { return e.host }

// Here reports whether containers run on this machine's kernel, so that their
// addresses can be reached and their processes seen. An engine in a virtual
// machine, as on macOS, is not here, although its socket is.
func (e *Engine) Here() bool { return e.host == "" && runtime.GOOS == "linux" }

// Error is an answer of the engine that is no success.
type Error struct {
	Status  int // of HTTP
	Message string
}

func (e *Error) Error() string { return e.Message }

// IsMissing reports whether the engine said that it has no such thing.
func IsMissing(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// unchanged is the status of an answer that says that it was so already.
const unchanged = http.StatusNotModified

// do sends a request and returns the body of a successful answer.
func (e *Engine) do(ctx context.Context, method, path string, query url.Values, body io.Reader, kind string) (io.ReadCloser, error) {
	at := e.base + path
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 || resp.StatusCode == unchanged {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return nil, err
	}
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(b, &said) != nil || said.Message == "" {
		said.Message = resp.Status + ": " + string(bytes.TrimSpace(b))
	}
	return nil, &Error{resp.StatusCode, said.Message}
}

// call sends in as JSON and decodes the answer into out; either may be nil.
func (e *Engine) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	kind := ""
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, kind = bytes.NewReader(b), "application/json"
	}
	answer, err := e.do(ctx, method, path, query, body, kind)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, answer)
		return err
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("the engine's answer to %s: %w", path, err)
	}
	return nil
}

// labelled is the query for what has a label, "name" or "name=value".
func labelled(label string) url.Values {
	filters, _ := json.Marshal(map[string][]string{"label": {label}}) // cannot fail
	return url.Values{"filters": {string(filters)}}
}
