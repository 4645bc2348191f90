package memory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	backends.Register(backends.Backend{
		Name:    "memory",
		Apart:   "it is for tests of lockcheck itself",
		Summary: "a correct lease lock in the harness's memory, with fencing tokens",
		Servers: func(backends.Options) []backends.Server {
			return []backends.Server{{Name: "memory",
				Software: "memory"}}
		},
		Open:   open,
		MinTTL: func(backends.Options) time.Duration { return time.Millisecond },
		Leased: true,
		Tokens: true,
	})
}

// client is not safe for concurrent use, as backends.Client has it.
type client struct {
	url  string
	http *http.Client
	ttl  time.Duration
	held map[string]hold // by key
}

// hold is a grant as the client remembers it.
type hold struct {
	owner string
	until time.Time // the lease's end by the client's clock
}

func open(_ context.Context, c backends.Config) (backends.Client, error) {
	urls := c.URLs("memory")
	if len(urls) != 1 {
		return nil, fmt.Errorf("the memory lock needs one server, got %d", len(urls))
	}
	if c.TTL < time.Millisecond {
		return nil, fmt.Errorf("the memory lock needs a TTL of at least 1ms, got %v", c.TTL)
	}
	return &client{
		url:  urls[0],
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}},
		ttl:  c.TTL.Truncate(time.Millisecond),
		held: map[string]hold{},
	}, nil
}

func (c *client) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) {
		// Each try has its own name, so that one with an unknown outcome
		// is not taken for a later one. It ends by itself.
		asked := time.Now()
		h := hold{rand.Text(), asked.Add(c.ttl)}
		token, err := c.post(ctx, "acquire", query(key, h.owner, c.ttl), backends.ErrBusy)
		if err != nil {
			return backends.Grant{}, err
		}
		if late := backends.TooLate(asked, c.ttl); late != nil {
			return backends.Grant{}, c.undo(ctx, key, h.owner, late)
		}
		c.held[key] = h
		return backends.Grant{Token: &token, TTL: c.ttl}, nil
	})
}

// undo gives back what was granted too late. If it cannot, the outcome is
// unknown.
func (c *client) undo(ctx context.Context, key, owner string, late error) error {
	_, err := c.post(ctx, "release", query(key, owner, 0), backends.ErrNotHeld)
	if err != nil && !errors.Is(err, backends.ErrNotHeld) {
		return fmt.Errorf("%v; and it could not be released: %v", late, err)
	}
	return late
}

func (c *client) Renew(ctx context.Context, key string) (backends.Grant, error) {
	h, ok := c.held[key]
	if !ok {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	token, err := c.post(ctx, "renew", query(key, h.owner, c.ttl), backends.ErrNotHeld)
	if err != nil {
		return backends.Grant{}, err
	}
	if late := backends.TooLate(asked, c.ttl); late != nil {
		delete(c.held, key)
		return backends.Grant{}, fmt.Errorf("%w: %w", backends.ErrNotHeld, c.undo(ctx, key, h.owner, late))
	}
	c.held[key] = hold{h.owner, asked.Add(c.ttl)}
	return backends.Grant{Token: &token, TTL: c.ttl}, nil
}

func (c *client) Release(ctx context.Context, key string) error {
	h, ok := c.held[key]
	if !ok {
		return backends.ErrNotHeld
	}
	_, err := c.post(ctx, "release", query(key, h.owner, 0), backends.ErrNotHeld)
	if err == nil || errors.Is(err, backends.ErrNotHeld) {
		delete(c.held, key)
	}
	return err
}

// Check says whether the lease still runs by the client's own clock, as of now.
func (c *client) Check(_ context.Context, key string) (bool, error) {
	h, ok := c.held[key]
	return ok && time.Now().Before(h.until), nil
}

func (c *client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// post asks the server; refused is the error for its no.
func (c *client) post(ctx context.Context, do, query string, refused error) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/"+do+"?"+query, nil)
	if err != nil {
		return 0, backends.Failed(err)
	}
	resp, err := c.http.Do(req)
	if backends.NotDialed(err) {
		return 0, backends.Failed(err)
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	switch {
	case err != nil:
		return 0, err
	case resp.StatusCode == http.StatusConflict:
		return 0, refused
	case resp.StatusCode != http.StatusOK:
		return 0, backends.Failed(fmt.Errorf("the memory lock's server answered %s: %s", resp.Status, strings.TrimSpace(string(body))))
	}
	return strconv.ParseInt(string(body), 10, 64)
}
