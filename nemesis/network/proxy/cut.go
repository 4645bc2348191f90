package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// A Cut stops what travels on a link.
type Cut struct {
	Link
	// Up and Down say which directions are cut. Refuse concerns connections,
	// and so both.
	Up, Down bool
	Mode     Mode
	// Match limits the cut to streams that contain something, from there on.
	// Nil means all.
	Match Matcher
	// Established leaves the opening of connections alone. Otherwise, and
	// without Match, a connection that is opened while either direction is cut
	// waits, and its client can't tell: the target sees it when the cut heals,
	// if it is still there then.
	Established bool
}

// A Slowdown makes a link slow without cutting it.
type Slowdown struct {
	Link
	Up, Down bool // which directions
	Pace     Pace
}

// Trouble is cuts, slowdowns or a tally that are in effect.
type Trouble struct {
	mesh  *Mesh
	id    int
	links []*link
	once  sync.Once
	err   error
}

// Cut makes all cuts, one a link at most. When it returns, nothing that they stop
// passes any more, except what has left the proxy already. What several calls
// bring about adds up. Heal must be called also when there was an error.
func (m *Mesh) Cut(cuts ...Cut) (*Trouble, error) {
	links := make([]Link, len(cuts))
	for i, c := range cuts {
		links[i] = c.Link
		if c.Mode != Refuse && !c.Up && !c.Down {
			return &Trouble{mesh: m}, fmt.Errorf("cut %s: no direction", c.Link)
		}
	}
	return m.trouble("cut", links, func(id int, i int, l *link) { l.cuts[id] = cuts[i] })
}

// Slow makes all slowdowns, one a link at most, and else is like Cut.
func (m *Mesh) Slow(slowdowns ...Slowdown) (*Trouble, error) {
	links := make([]Link, len(slowdowns))
	for i, s := range slowdowns {
		links[i] = s.Link
	}
	return m.trouble("slow", links, func(id int, i int, l *link) { l.slowdowns[id] = slowdowns[i] })
}

func (m *Mesh) trouble(what string, names []Link, add func(id int, i int, l *link)) (*Trouble, error) {
	m.change.Lock()
	defer m.change.Unlock()

	t := &Trouble{mesh: m}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return t, fmt.Errorf("%s: the mesh is closed", what)
	}
	var links []*link
	for _, name := range names {
		l, err := m.find(name)
		if err == nil && slices.Contains(links, l) {
			err = fmt.Errorf("%s is named twice", name)
		}
		if err != nil {
			m.mu.Unlock()
			return t, fmt.Errorf("%s: %w", what, err)
		}
		links = append(links, l)
	}
	m.lastID++
	t.id, t.links = m.lastID, links
	for i, l := range links {
		add(t.id, i, l)
	}
	m.mu.Unlock()
	return t, m.enforce(links)
}

// Heal ends the trouble. What it held is on its way when Heal returns, in order;
// connections that lost something to it are reset. It may be called
// repeatedly.
func (t *Trouble) Heal() error {
	t.once.Do(func() {
		t.mesh.change.Lock()
		defer t.mesh.change.Unlock()
		t.mesh.mu.Lock()
		for _, l := range t.links {
			delete(l.cuts, t.id)
			delete(l.slowdowns, t.id)
			delete(l.tallies, t.id)
		}
		t.mesh.mu.Unlock()
		t.err = t.mesh.enforce(t.links)
	})
	return t.err
}

// Reset resets the connections that are open on a link, and tells how many there
// were, besides probes. New ones are welcome.
func (m *Mesh) Reset(name Link) (int, error) {
	m.mu.Lock()
	l, err := m.find(name)
	if err != nil {
		m.mu.Unlock()
		return 0, fmt.Errorf("reset: %w", err)
	}
	conns := slices.Collect(maps.Keys(l.conns))
	m.mu.Unlock()
	n := 0
	for _, c := range conns {
		if c.reset() && c.probe == nil {
			n++
		}
	}
	return n, nil
}

// Troubled tells whether any cut or slowdown is in effect on a link.
func (m *Mesh) Troubled(name Link) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.find(name)
	return err == nil && len(l.cuts)+len(l.slowdowns) > 0
}

// enforce brings listeners and connections of links into line with their cuts.
// It needs m.change.
func (m *Mesh) enforce(links []*link) error {
	var errs []error
	for _, l := range links {
		m.mu.Lock()
		refused := l.refused()
		listeners := slices.Clone(l.listeners)
		conns := slices.Collect(maps.Keys(l.conns))
		close(l.changed)
		l.changed = make(chan struct{})
		closed := m.closed
		m.mu.Unlock()

		for _, ln := range listeners {
			switch {
			case ln.identify != nil || closed:
				// Others share it, and are not refused; connect resets.
			case refused:
				ln.shut()
			default:
				if err := ln.open(); err != nil {
					errs = append(errs, fmt.Errorf("heal %s: %w", l.Link, err))
				}
			}
		}
		for _, c := range conns {
			if refused {
				c.reset()
				continue
			}
			m.mu.Lock()
			up, down := l.orders()
			upWhole, downWhole := l.whole()
			m.mu.Unlock()
			c.up.obey(up)
			c.down.obey(down)
			if upWhole && c.up.lost.Load() || downWhole && c.down.lost.Load() {
				c.reset()
			}
		}
	}
	return errors.Join(errs...)
}
