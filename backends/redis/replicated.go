package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

func init() {
	register("redis-replicated", "a Redis primary with an asynchronous replica that is promoted by hand", pair(), openReplicated, nil)
}

// pair returns a primary and its replica. Without a disk in between, the first
// copy waits for more replicas to come.
func pair() []backends.Server {
	options := func(replicaof string) map[string]string {
		o := map[string]string{"repl-diskless-sync": "no", "hz": "100"}
		if replicaof != "" {
			o["replicaof"] = replicaof
		}
		return o
	}
	return []backends.Server{
		{Name: "redis-1", Software: "redis", Options: options("")},
		{Name: "redis-2", Software: "redis", Options: options("redis-1")},
	}
}

func openReplicated(ctx context.Context, c backends.Config) (backends.Client, error) {
	s, err := dialPrimary(c.URLs("redis"))
	if err != nil {
		return nil, err
	}
	return newClient(ctx, s, s, c)
}

// dialPrimary returns whichever of the servers is the primary when a connection
// is made. A connection to one that is demoted ends at the first error that
// says so.
func dialPrimary(urls []string) (*Server, error) {
	if len(urls) < 2 {
		return nil, fmt.Errorf("the replicated redis lock needs two redis servers, got %d", len(urls))
	}
	var addresses []string
	for _, u := range urls {
		o, err := redis.ParseURL(u)
		if err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
		addresses = append(addresses, o.Addr)
	}
	s, err := Dial(urls[0])
	if err != nil {
		return nil, err
	}
	o := *s.rdb.Options()
	if err := s.Close(); err != nil {
		return nil, err
	}
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return connectPrimary(ctx, addresses) }
	return &Server{redis.NewClient(&o)}, nil
}

// connectPrimary connects to the first server that says that it is a primary.
// If there is none the error is that of a dial: nothing was asked of any.
func connectPrimary(ctx context.Context, addresses []string) (net.Conn, error) {
	var errs []error
	for _, a := range addresses {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", a)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		role, err := roleOf(c)
		if err == nil && role == "master" {
			return c, nil
		}
		c.Close()
		if err == nil {
			err = fmt.Errorf("%s is no primary: it says %q", a, role)
		}
		errs = append(errs, err)
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.Join(errs...)}
}

// roleLimit is how long a server may take to say its role: a frozen one must
// not keep a client from the next.
const roleLimit = 500 * time.Millisecond

// roleOf asks for the role, as in "master" or "slave", and leaves the connection
// as it was.
func roleOf(c net.Conn) (string, error) {
	if err := c.SetDeadline(time.Now().Add(roleLimit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "INFO replication\r\n"); err != nil {
		return "", err
	}
	// A bulk string, after which the server has nothing to say.
	r := bufio.NewReader(c)
	var length int
	if _, err := fmt.Fscanf(r, "$%d\r\n", &length); err != nil {
		return "", fmt.Errorf("answer to INFO: %w", err)
	}
	const most = 1 << 16
	if length < 0 || length > most {
		return "", fmt.Errorf("the answer to INFO has %d bytes", length)
	}
	text := make([]byte, length+len("\r\n"))
	if _, err := io.ReadFull(r, text); err != nil {
		return "", fmt.Errorf("answer to INFO: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if role, ok := strings.CutPrefix(strings.TrimSpace(line), "role:"); ok {
			return role, c.SetDeadline(time.Time{})
		}
	}
	return "", errors.New("the answer to INFO says no role")
}
