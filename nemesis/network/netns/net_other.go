//go:build !linux

package netns

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

var errUnavailable = errors.New("unavailable: network namespaces are a thing of Linux")

// Net is the network of one run; there is none here.
type Net struct {
	user string
}

// Available says that networks can't be made here.
func Available() error { return errUnavailable }

// NewNet says that networks can't be made here.
func NewNet() (*Net, error) { return nil, errUnavailable }

func (*Net) Node(string) (*Node, error)             { return nil, errUnavailable }
func (*Net) Nodes() []string                        { return nil }
func (*Net) Dial(netip.AddrPort) (net.Conn, error)  { return nil, errUnavailable }
func (*Net) Listen(string) (net.Listener, error)    { return nil, errUnavailable }
func (*Net) Drop(...Flow) error                     { return errUnavailable }
func (*Net) Heal(...Flow) error                     { return errUnavailable }
func (*Net) Dropped(Flow) (int64, error)            { return 0, errUnavailable }
func (*Net) Ping(Flow, time.Duration) (bool, error) { return false, errUnavailable }
func (*Net) Netem() error                           { return errUnavailable }
func (*Net) dropped() []Flow                        { return nil }
func (*Net) Close() error                           { return nil }
