// Package resource is what a lock protects: a server that applies the clients'
// writes, one after the other, and records each in the history in the order in
// which it applied them. The kinds differ in whether they heed fencing tokens.
package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/registry"
)

// Options say where a resource records and keeps its objects.
type Options struct {
	Recorder *history.Recorder
	DSN      string // the database of kind "postgres"
	// Standbys are databases that have the same data, one of which may become
	// the primary while the resource is open.
	Standbys []string
}

// Kind is a kind of resource as registered under the name that users type.
type Kind struct {
	Name    string // "fenced"
	Summary string // one line
	// Software is the server that keeps the objects: its DSN must be given.
	// "" means that the resource keeps them itself.
	Software string
	open     func(context.Context, Options) (store, error)
}

// store keeps the objects of a resource. It is safe for concurrent use. It
// records every request as an event of the history, in the order in which it
// applied them, before it returns.
type store interface {
	write(context.Context, request) error // errStale if the token forbids it
	read(context.Context, request) (string, error)
	// sync returns once all that was applied before is recorded.
	sync(context.Context) error
	close() error
}

// request is a client's request to the resource.
type request struct {
	key, value string
	process    string
	op         *int64
	token      *int64
}

// event returns the event of a request that was applied.
func (r request) event(f string) history.Event {
	return history.Event{
		Process: history.Resource, Type: history.OK, F: f,
		Key: r.key, Token: r.token, Client: r.process, Op: r.op,
	}
}

// errStale is a write that was rejected because of its token.
type errStale struct{ token, highest int64 }

func (e errStale) Error() string {
	return fmt.Sprintf("token %d is lower than %d, which was accepted before", e.token, e.highest)
}

// noToken remarks that a resource that heeds tokens got none.
const noToken = "accepted without a token: cannot judge"

var kinds = registry.New[Kind]("resource")

func register(k Kind) { kinds.Register(k.Name, k) }

// Names returns the names of all kinds, sorted.
func Names() []string { return kinds.Names() }

// Find returns the kind registered under name.
func Find(name string) (Kind, error) { return kinds.Find(name) }

// Resource is an open resource: a server on the loopback interface. It is safe
// for concurrent use.
type Resource struct {
	kind   Kind
	dsn    string
	store  store
	base   string
	server *http.Server
	served chan error
}

// Open starts a resource of the named kind. The caller closes it, and the
// recorder after it.
func Open(ctx context.Context, kind string, o Options) (*Resource, error) {
	k, err := Find(kind)
	if err != nil {
		return nil, err
	}
	if k.Software != "" && o.DSN == "" {
		return nil, fmt.Errorf("resource %s is kept in %s: its address is missing", k.Name, k.Software)
	}
	s, err := k.open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", k.Name, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("resource %s: %w", k.Name, err), s.close())
	}
	r := &Resource{
		kind:   k,
		store:  s,
		base:   "http://" + listener.Addr().String(),
		served: make(chan error, 1),
	}
	if k.Software != "" {
		r.dsn = o.DSN
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /write", r.write)
	mux.HandleFunc("GET /read", r.read)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { r.served <- r.server.Serve(listener) }()
	return r, nil
}

// Kind returns the kind of the resource.
func (r *Resource) Kind() Kind { return r.kind }

// DSN returns the database that keeps the resource, or "" if there is none.
func (r *Resource) DSN() string { return r.dsn }

// WriteURL returns where a client POSTs a write. The client adds "&token=N" if it has
// a token, there and to reads, and the harness "&op=N", the index of the invocation.
func (r *Resource) WriteURL(process, key, value string) string {
	q := url.Values{"process": {process}, "key": {key}, "value": {value}}
	return r.base + "/write?" + q.Encode()
}

// ReadURL returns where a client GETs the present value. The harness adds "&op=N".
func (r *Resource) ReadURL(process, key string) string {
	q := url.Values{"process": {process}, "key": {key}}
	return r.base + "/read?" + q.Encode()
}

// Sync returns once all writes that were applied before are in the history. An
// error says that some may be missing.
func (r *Resource) Sync(ctx context.Context) error {
	if err := r.store.sync(ctx); err != nil {
		return fmt.Errorf("resource %s: writes may be missing from the history: %w", r.kind.Name, err)
	}
	return nil
}

// Close ends the server. Requests that have not come in by now are lost.
func (r *Resource) Close() error {
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, r.store.close())
}

func (r *Resource) write(w http.ResponseWriter, q *http.Request) {
	req, err := parse(q.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	err = r.store.write(q.Context(), req)
	if _, stale := errors.AsType[errStale](err); stale {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (r *Resource) read(w http.ResponseWriter, q *http.Request) {
	req, err := parse(q.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	value, err := r.store.read(q.Context(), req)
	if _, stale := errors.AsType[errStale](err); stale {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, value) // the client that does not get it knows
}

func parse(q url.Values) (request, error) {
	r := request{key: q.Get("key"), value: q.Get("value"), process: q.Get("process")}
	if r.key == "" {
		return request{}, errors.New("the request has no key")
	}
	var err error
	if r.op, err = number(q, "op"); err != nil {
		return request{}, err
	}
	r.token, err = number(q, "token")
	return r, err
}

// number returns an optional parameter.
func number(q url.Values, name string) (*int64, error) {
	if !q.Has(name) {
		return nil, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is not a whole number", name, q.Get(name))
	}
	return &n, nil
}

// text is a value as the history has it.
func text(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string cannot fail
	return b
}
