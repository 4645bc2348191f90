package deploy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// service is a server inside the harness.
type service struct {
	node *Node

	mu   sync.Mutex
	addr string // "" until it has started for the first time
	at   string // its URL
	stop func() error
}

func (s *service) start(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == "" {
		port, err := s.node.local.port()
		if err != nil {
			return err
		}
		s.addr = address(port)
	}
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.node.Name(), err)
	}
	url, stop, err := s.node.software.Serve(l, s.node.server.Options)
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", s.node.Name(), err), l.Close())
	}
	s.at, s.stop = url, stop
	return nil
}

func (s *service) kill(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop == nil {
		return nil
	}
	stop := s.stop
	s.stop = nil
	return stop()
}

func (s *service) wipe() error { return nil } // it has none that outlives it

func (s *service) url() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *service) pids() ([]int, error) {
	return nil, fmt.Errorf("%s runs inside lockcheck: it has no process of its own", s.node.Name())
}
