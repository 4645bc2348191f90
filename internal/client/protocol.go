// Package client is the protocol between the harness and lock clients, both
// ends of it. Every client is a process of its own, so that it can be frozen
// for real, that reads requests on its standard input and answers on its
// standard output, one JSON object a line. docs/client-protocol.md is the
// specification.
package client

import (
	"encoding/json"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/history"
)

// Version is the version of the protocol.
const Version = 1

// Request is what the harness asks of a client. A client has at most one
// operation open at a time: the next request is written after the answer to the
// last one was read. Only close may come at any time.
type Request struct {
	ID int64 `json:"id"`
	// F is "open", "acquire", "renew", "release", "check", "write", "read" or "close".
	F string `json:"f"`

	// of open
	Protocol int                 `json:"protocol,omitempty"`
	Process  string              `json:"process,omitempty"`
	Servers  []backends.Endpoint `json:"servers,omitempty"`
	TTL      int64               `json:"ttl_ms,omitempty"` // lease to ask for
	// ResourceDSN is the resource's database when it is in Postgres.
	ResourceDSN string `json:"resource_dsn,omitempty"`

	// of all others
	Key string `json:"key,omitempty"`
	// Wait is, of an acquire, how long to wait for the lock; 0 is a single try.
	Wait int64 `json:"wait_ms,omitempty"`
	// URL is, of a write or read, where to POST (write) or GET (read) it: the
	// client adds "&token=N" to a write if its grant has a token, and answers ok
	// for status 200, fail for 409 (with the body as error), else info. A read's
	// value is the body. Invoke adds "&op=N" to what the resource made.
	URL   string `json:"url,omitempty"`
	Value string `json:"value,omitempty"`
	// Op is the index of the invocation in the history. Invoke sets it.
	Op int64 `json:"op,omitempty"`
}

// Response answers the request with the same ID; or, with F "lost" and no ID,
// it is a loss notice.
type Response struct {
	ID   int64        `json:"id,omitempty"`
	Type history.Type `json:"type,omitempty"` // ok, fail, info

	// of open
	Protocol     int      `json:"protocol,omitempty"`
	Name         string   `json:"name,omitempty"`         // of the client: "redis", "my-lock"
	Version      string   `json:"version,omitempty"`      // of the client
	Capabilities []string `json:"capabilities,omitempty"` // see Capability constants

	// of acquire and renew, and the token of a write
	Token *int64 `json:"token,omitempty"`
	// TTL and Valid are counted from the moment at which the client read the
	// request, so that an answer which is late shortens them: an acquire that
	// waited 300 ms and then was granted a lease of 1 s may answer 1300.
	TTL   int64 `json:"lease_ms,omitempty"` // lease promised
	Valid int64 `json:"valid_ms,omitempty"` // until the client stops to believe that it holds

	// of check and read
	Value json.RawMessage `json:"value,omitempty"`

	F     string `json:"f,omitempty"`   // "lost"
	Key   string `json:"key,omitempty"` // of a loss notice
	Error string `json:"error,omitempty"`
}

// Capabilities that a client may state when it is opened.
const (
	CanToken    = "token"    // grants carry fencing tokens
	CanRenew    = "renew"    // answers renew
	CanCheck    = "check"    // answers check
	CanNotify   = "lost"     // sends loss notices
	CanWait     = "wait"     // acquire waits for wait_ms; without it the harness tries again
	CanDeadline = "deadline" // stops to believe after valid_ms
	CanLease    = "lease"    // grants end by themselves
	// CanKeep says that the client renews its grants by itself until it releases
	// them or learns of their loss: they may last for longer than their leases.
	CanKeep = "keepalive"
	// CanReentrant says that an acquire of what the client holds is granted, and
	// needs as many releases. Without it the harness never asks for that.
	CanReentrant = "reentrant"
)

// Capabilities returns all that a client may state, in the order of the
// specification.
func Capabilities() []string {
	return []string{CanWait, CanToken, CanLease, CanRenew, CanCheck, CanNotify, CanDeadline, CanReentrant, CanKeep}
}
