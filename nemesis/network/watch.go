package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// probeTimeout bounds the wait for what a probe is to show. All of it takes well
// under a millisecond a link, besides the delays that faults bring.
const probeTimeout = 10 * time.Second

// watch shows by probes what a fault does to links.
type watch struct {
	mesh    *proxy.Mesh
	payload []byte
	links   []*watched
}

// watched is a link with a probe that was there before the fault, and one that was
// opened during it. Either is nil where no connection could be opened.
type watched struct {
	proxy.Link
	old, fresh *proxy.Probe
	before     proxy.Fate
	took       time.Duration // for an answer before the fault
	traffic    proxy.Stats   // before the fault
}

// newWatch opens a probe through each link and sends payload through it.
func newWatch(ctx context.Context, mesh *proxy.Mesh, links []proxy.Link, payload []byte) (*watch, error) {
	w := &watch{mesh: mesh, payload: payload}
	for _, l := range links {
		w.links = append(w.links, &watched{Link: l})
	}
	return w, w.each(ctx, func(ctx context.Context, l *watched) (err error) {
		l.old, l.before, err = w.open(ctx, l.Link)
		if err != nil {
			return err
		}
		if l.before != proxy.Answered && !mesh.Troubled(l.Link) {
			return fmt.Errorf("the link does not work even before: a probe was %s", l.before)
		}
		if l.before == proxy.Answered {
			l.took = l.old.Took()
		}
		l.traffic, err = mesh.Stats(l.Link)
		return err
	})
}

// open opens a probe and sends the payload. The probe is nil if it was refused.
func (w *watch) open(ctx context.Context, l proxy.Link) (*proxy.Probe, proxy.Fate, error) {
	p, err := w.mesh.Probe(ctx, l)
	if proxy.IsCut(err) {
		return nil, proxy.CutOff, nil
	}
	if err != nil {
		return nil, 0, err
	}
	fate, err := p.Try(ctx, w.payload)
	return p, fate, err
}

// each does something for all links, several at a time.
func (w *watch) each(ctx context.Context, do func(context.Context, *watched) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var working sync.WaitGroup
	slots := make(chan struct{}, 8)
	errs := make([]error, len(w.links))
	for i, l := range w.links {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			if err := do(ctx, l); err != nil {
				errs[i] = fmt.Errorf("%s: %w", l.Link, err)
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// answers returns an error unless every link carries a new connection to its end.
// Links that another fault still troubles are left out, and returned.
func (w *watch) answers(ctx context.Context) (troubled []string, err error) {
	var mu sync.Mutex
	err = w.each(ctx, func(ctx context.Context, l *watched) error {
		if w.mesh.Troubled(l.Link) {
			mu.Lock()
			defer mu.Unlock()
			troubled = append(troubled, l.String())
			return nil
		}
		p, fate, err := w.open(ctx, l.Link)
		if p != nil {
			defer p.Close()
		}
		if err == nil && fate != proxy.Answered {
			err = fmt.Errorf("a probe is still %s", fate)
		}
		return err
	})
	slices.Sort(troubled)
	return troubled, err
}

// traffic tells what happened to real traffic since the watch began.
func (w *watch) traffic() string {
	var held, dropped, passed, opened, abandoned, cut int64
	for _, l := range w.links {
		now, err := w.mesh.Stats(l.Link)
		if err != nil {
			continue
		}
		was := l.traffic
		held += now.Up.Held + now.Down.Held - was.Up.Held - was.Down.Held
		dropped += now.Up.Dropped + now.Down.Dropped - was.Up.Dropped - was.Down.Dropped
		passed += now.Up.Passed + now.Down.Passed - was.Up.Passed - was.Down.Passed
		opened += now.Opened - was.Opened
		abandoned += now.Abandoned - was.Abandoned
		cut += now.Reset + now.Refused - was.Reset - was.Refused
	}
	return fmt.Sprintf("real traffic meanwhile: %d B held, %d B dropped, %d B passed; connections: %d opened, %d reset or refused, %d given up while waiting",
		held, dropped, passed, opened, cut, abandoned)
}

// usual returns the median time of an answer before the fault.
func (w *watch) usual() time.Duration {
	var took []time.Duration
	for _, l := range w.links {
		if l.before == proxy.Answered {
			took = append(took, l.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// names names the links, not more than a few.
func (w *watch) names() string {
	const most = 6
	var names []string
	for _, l := range w.links[:min(most, len(w.links))] {
		names = append(names, l.String())
	}
	if more := len(w.links) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func (w *watch) close() {
	for _, l := range w.links {
		for _, p := range []*proxy.Probe{l.old, l.fresh} {
			if p != nil {
				p.Close()
			}
		}
		l.old, l.fresh = nil, nil
	}
}
