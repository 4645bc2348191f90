// Package bench measures what locks cost: latency and throughput of each lock system,
// side by side in one run, so that ratios mean something on any machine; and what the
// harness itself adds to that.
//
// Locks are measured with the clients that runs use, but within this process and
// without a history, so that nothing but the lock and its library is measured. What is
// compared takes turns: each goes through several short rounds, so that whatever else
// the machine does meanwhile hits all of them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/deploy"
)

// Subject is what is measured: a lock, and perhaps a write under it.
type Subject struct {
	Backend  string
	Resource string // what is written to under the lock; "" is nothing
}

func (s Subject) String() string {
	if s.Resource == "" {
		return s.Backend
	}
	return s.Backend + " + write " + s.Resource
}

// Options say how locks are measured.
type Options struct {
	Subjects []Subject
	Clients  int           // that contend, beside one alone
	Rounds   int           // of each subject, in turn
	For      time.Duration // a round of one alone; contention takes twice that
	Dir      string        // for logs of servers
	Bin      map[string]string
	Progress func(what string) // told before each round; nil is nobody
}

// ttl is that of all leases: no round is that long.
const ttl = 30 * time.Second

// Measure is what was measured of one subject with so many clients.
type Measure struct {
	Subject   string  `json:"subject"`
	Clients   int     `json:"clients"`
	Sections  int64   `json:"sections"` // from acquire to release
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"` // of a whole section; with its wait, if others contend
	P99       float64 `json:"p99_us"`
}

// Run measures all subjects, alone and contended. The measures are in the order of
// the subjects, those of one client first.
func Run(ctx context.Context, o Options) ([]Measure, error) {
	var all []*bed
	defer func() {
		for _, b := range all {
			_ = b.close() // what it measured is told already
		}
	}()
	for _, s := range o.Subjects {
		b, err := newBed(ctx, s, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		all = append(all, b)
	}
	var measures []Measure
	for _, clients := range []int{1, o.Clients} {
		tallies := make([]*tally, len(all))
		for i := range tallies {
			tallies[i] = newTally()
		}
		for n := range o.Rounds {
			for i, b := range all {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if o.Progress != nil {
					o.Progress(fmt.Sprintf("%s, clients: %d, round %d of %d", b.subject, clients, n+1, o.Rounds))
				}
				round := o.For
				if clients > 1 {
					round *= 2
				}
				if err := b.round(ctx, clients, round, 0, tallies[i]); err != nil {
					return nil, fmt.Errorf("%s: %w", b.subject, err)
				}
			}
		}
		for i, b := range all {
			measures = append(measures, tallies[i].measure(b.subject.String(), clients))
		}
	}
	return measures, nil
}

// Work is what was measured with work under one lock.
type Work struct {
	Clients   int     `json:"clients"`
	PerSecond float64 `json:"per_second"`
}

// RunWork measures how many sections a second are made under one lock with work in
// each, for each number of clients.
func RunWork(ctx context.Context, s Subject, clients []int, work time.Duration, o Options) ([]Work, error) {
	b, err := newBed(ctx, s, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	defer b.close()
	var all []Work
	for _, n := range clients {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("%s, work of %v, clients: %d", s, work, n))
		}
		t := newTally()
		if err := b.round(ctx, n, 15*work, work, t); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		all = append(all, Work{n, t.rate()})
	}
	return all, ctx.Err()
}

// bed is the servers of a subject, and clients of them.
type bed struct {
	subject  Subject
	backend  backends.Backend
	servers  *deploy.Local
	at       []backends.Endpoint
	resource *resource.Resource
	rec      *history.Recorder
	clients  []backends.Client
	keys     int // given out so far: rounds do not share any
}

func newBed(ctx context.Context, s Subject, o Options) (*bed, error) {
	backend, err := backends.Find(s.Backend)
	if err != nil {
		return nil, err
	}
	b := &bed{subject: s, backend: backend}
	if err := b.open(ctx, o); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bed) open(ctx context.Context, o Options) error {
	if b.backend.Servers != nil {
		var err error
		if b.servers, err = deploy.NewLocal(deploy.Options{Dir: o.Dir, Bin: o.Bin}); err != nil {
			return err
		}
		nodes, err := b.servers.Start(ctx, b.backend.Servers(backends.Options{TTL: ttl}))
		if err != nil {
			return err
		}
		for _, n := range nodes {
			b.at = append(b.at, n.Endpoint())
		}
	}
	if b.subject.Resource == "" {
		return nil
	}
	var dsn string
	for _, e := range b.at {
		if e.Software == "postgres" {
			dsn = e.URL
		}
	}
	var err error
	if b.rec, err = history.Create(o.Dir + "/" + b.subject.Backend + "-" + b.subject.Resource + ".jsonl"); err != nil {
		return err
	}
	b.resource, err = resource.Open(ctx, b.subject.Resource, resource.Options{Recorder: b.rec, DSN: dsn})
	return err
}

func (b *bed) close() error {
	var errs []error
	for _, c := range b.clients {
		errs = append(errs, c.Close())
	}
	if b.resource != nil {
		errs = append(errs, b.resource.Close())
	}
	if b.rec != nil {
		errs = append(errs, b.rec.Close())
	}
	if b.servers != nil {
		errs = append(errs, b.servers.Close())
	}
	return errors.Join(errs...)
}

// client returns the nth client, which is opened if it was not yet.
func (b *bed) client(ctx context.Context, n int) (backends.Client, error) {
	for len(b.clients) <= n {
		cfg := backends.Config{Process: "c" + strconv.Itoa(len(b.clients)+1), Servers: b.at, TTL: ttl}
		if b.resource != nil {
			cfg.ResourceDSN = b.resource.DSN()
		}
		c, err := b.backend.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		b.clients = append(b.clients, c)
	}
	return b.clients[n], nil
}

// round has so many clients make sections under one lock, for a time.
func (b *bed) round(ctx context.Context, clients int, limit, work time.Duration, t *tally) error {
	b.keys++
	key := "bench-" + strconv.Itoa(b.keys)
	all := make([]*worker, clients)
	for i := range all {
		c, err := b.client(ctx, i)
		if err != nil {
			return err
		}
		all[i] = &worker{bed: b, client: c, name: "c" + strconv.Itoa(i+1), key: key, work: work, took: newHistogram()}
	}
	begin := time.Now()
	end := begin.Add(limit)
	errs := make([]error, clients)
	var busy sync.WaitGroup
	for i, w := range all {
		busy.Go(func() { errs[i] = w.loop(ctx, end) })
	}
	busy.Wait()
	took := time.Since(begin)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, w := range all {
		t.took.Merge(w.took)
		t.sections += w.took.TotalCount()
	}
	t.elapsed += took
	return nil
}

// worker is a client in a round.
type worker struct {
	*bed
	client    backends.Client
	name, key string
	work      time.Duration
	writes    int
	took      *hdrhistogram.Histogram // sections, in tenths of a microsecond
}

func (w *worker) loop(ctx context.Context, end time.Time) error {
	for time.Now().Before(end) && ctx.Err() == nil {
		begin := time.Now()
		g, err := w.client.Acquire(ctx, w.key, time.Until(end))
		if errors.Is(err, backends.ErrBusy) {
			continue // the round is over
		}
		if err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		if w.resource != nil {
			if err := w.write(ctx, g.Token); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		if w.work > 0 {
			time.Sleep(w.work) // what is measured is how work under a lock adds up
		}
		if err := w.client.Release(ctx, w.key); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		record(w.took, time.Since(begin))
	}
	return nil
}
