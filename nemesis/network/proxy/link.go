package proxy

import (
	"sync/atomic"
)

// Mode is what a cut does, from the mildest.
type Mode int

const (
	Pass   Mode = iota // nothing
	Hold               // bytes and the end of the stream stay in the network, and arrive when the cut heals
	Drop               // they never arrive; connections that lost something are reset when the cut heals
	Refuse             // connections are reset, and new ones refused; at an address that peers share they are accepted first
)

func (m Mode) String() string {
	return [...]string{"pass", "hold", "drop", "refuse"}[m]
}

// link is the state of a Link. Its fields are under Mesh.mu, but for counters.
type link struct {
	Link
	listeners []*listener
	cuts      map[int]Cut
	slowdowns map[int]Slowdown
	tallies   map[int]*Tally
	conns     map[*conn]struct{}
	changed   chan struct{} // closed, and replaced, whenever cuts change

	up, down  counters
	opened    atomic.Int64
	waiting   atomic.Int64
	abandoned atomic.Int64
	refusals  atomic.Int64
	resets    atomic.Int64
}

// counters count the bytes of one direction.
type counters struct {
	passed, held, dropped atomic.Int64
}

// Stats is what travelled on a link, without the mesh's own probes.
type Stats struct {
	Up, Down  Traffic
	Opened    int64 // connections that reached the target
	Open      int64 // of these, are still there
	Waiting   int64 // connections that wait for the link to heal
	Abandoned int64 // connections that were closed while they waited, and so never reached the target
	Refused   int64 // connections that the proxy refused; those that the kernel refused, as the port was closed, are not seen
	Reset     int64 // connections that a fault ended
}

// Traffic is bytes. What is held and then delivered counts as held and passed.
type Traffic struct {
	Passed, Held, Dropped int64
}

func newLink(l Link) *link {
	return &link{
		Link:      l,
		cuts:      map[int]Cut{},
		slowdowns: map[int]Slowdown{},
		tallies:   map[int]*Tally{},
		conns:     map[*conn]struct{}{},
		changed:   make(chan struct{}),
	}
}

func (l *link) stats() Stats {
	s := Stats{
		Up:        l.up.traffic(),
		Down:      l.down.traffic(),
		Opened:    l.opened.Load(),
		Waiting:   l.waiting.Load(),
		Abandoned: l.abandoned.Load(),
		Refused:   l.refusals.Load(),
		Reset:     l.resets.Load(),
	}
	for c := range l.conns {
		if c.probe == nil {
			s.Open++
		}
	}
	return s
}

func (c *counters) traffic() Traffic {
	return Traffic{Passed: c.passed.Load(), Held: c.held.Load(), Dropped: c.dropped.Load()}
}

// refused tells whether a cut refuses connections.
func (l *link) refused() bool {
	for _, c := range l.cuts {
		if c.Mode == Refuse {
			return true
		}
	}
	return false
}

// opening returns what cuts do to a connection that is being opened.
func (l *link) opening() Mode {
	strictest := Pass
	for _, c := range l.cuts {
		if c.Mode == Refuse || c.Match == nil && !c.Established {
			strictest = max(strictest, c.Mode)
		}
	}
	return strictest
}

// orders returns new orders for the gates of a connection.
func (l *link) orders() (up, down orders) {
	for id, c := range l.cuts {
		if c.Up {
			up.rules = append(up.rules, newRule(id, c))
		}
		if c.Down {
			down.rules = append(down.rules, newRule(id, c))
		}
	}
	for id, t := range l.tallies {
		ask, answer := t.rules(id, l.Target)
		up.rules = append(up.rules, ask)
		down.rules = append(down.rules, answer)
	}
	for _, s := range l.slowdowns {
		if s.Up {
			up.pace = up.pace.and(s.Pace)
		}
		if s.Down {
			down.pace = down.pace.and(s.Pace)
		}
	}
	return up, down
}

// whole reports whether no cut is on the direction up, and on the one down.
func (l *link) whole() (up, down bool) {
	up, down = true, true
	for _, c := range l.cuts {
		up, down = up && !c.Up, down && !c.Down
	}
	return up, down
}

func newRule(id int, c Cut) rule {
	r := rule{id: id, mode: c.Mode}
	if c.Match != nil {
		r.match = c.Match()
	}
	return r
}
