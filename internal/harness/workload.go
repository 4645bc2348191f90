package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/scenarios"
)

// workloadGrace is how long, after the workload's end and the healing of all
// faults, clients may take to finish what they are at.
const workloadGrace = 10 * time.Second

// latencyFile has the latencies and the throughput of a workload.
const latencyFile = "latency.json"

// workload has the clients contend until the scenario says that it is over, with
// the nemesis between them.
func (r *run) workload(ctx context.Context) error {
	w := r.scenario.Workload
	// A workload of so many operations may still get stuck.
	limit := 10 * time.Minute
	if !w.For.IsZero() {
		limit = w.For.Of(r.ttl)
	}
	grace := w.Wait.Of(r.ttl) + workloadGrace
	working, stop := context.WithTimeout(ctx, limit)
	defer stop()
	finishing, giveUp := context.WithCancel(ctx)
	defer giveUp()

	camp := newCampaign(ctx, r)
	r.campaign = camp
	defer camp.end()
	counted := r.countContention(ctx, camp)
	begin := time.Now()
	var left atomic.Int64
	left.Store(int64(w.Operations))
	loops := make([]*loop, len(r.scenario.Clients))
	errs := make([]error, len(loops))
	var busy sync.WaitGroup
	for i, name := range r.scenario.Clients {
		l := &loop{
			run: r, camp: camp, directed: r.clients[name], Workload: *w, begin: begin,
			rng: rand.New(rand.NewPCG(uint64(r.Seed), uint64(1+i))), latency: map[string]*latency{},
		}
		if w.Operations > 0 {
			l.left = &left
		}
		loops[i] = l
		busy.Go(func() { errs[i] = l.loop(working, finishing) })
	}
	done := make(chan struct{})
	go func() { busy.Wait(); close(done) }()
	select {
	case <-done:
	case <-working.Done():
	}
	stop()
	counted(ctx)
	camp.end() // frozen clients cannot finish
	timer := time.AfterFunc(grace, giveUp)
	defer timer.Stop()
	<-done
	return errors.Join(ctx.Err(), errors.Join(errs...), camp.outcome(), r.writeLatency(loops, time.Since(begin)))
}

// loop is one client of a workload.
type loop struct {
	scenarios.Workload
	*directed
	run     *run
	camp    *campaign
	rng     *rand.Rand
	begin   time.Time
	left    *atomic.Int64 // acquires that the clients may still make; nil for any number
	latency map[string]*latency
	seconds []second
}

// errStopped ends a loop whose client cannot go on because of the run's end, or
// of a fault that is in the history.
var errStopped = errors.New("stopped")

// loop goes on until working ends. What is begun then is finished, until
// finishing ends.
func (l *loop) loop(working, finishing context.Context) error {
	for working.Err() == nil && (l.left == nil || l.left.Add(-1) >= 0) {
		err := l.section(working, finishing)
		if err == nil {
			l.sleep(working, l.jitter(l.Think.Of(l.run.ttl), 0.5))
			continue
		}
		if errors.Is(err, errStopped) {
			return nil
		}
		return err
	}
	return nil
}

// section is one section under the lock, from its acquire to its release.
func (l *loop) section(working, finishing context.Context) error {
	key := l.key()
	e, err := l.acquire(working, finishing, key)
	if err != nil || e.Type != history.OK {
		return err // refused, or unknown: nothing is done without a grant
	}
	held, err := l.protected(working, finishing, key)
	if err != nil {
		return err
	}
	if !held {
		l.run.rec.Record(history.Event{
			Process: history.Harness, Type: history.Info, F: history.Skip, Key: key,
			Error: l.Name() + " gives up: it knows that it lost the lock",
		})
	}
	_, err = l.do(finishing, client.Request{F: history.Release, Key: key})
	return err
}

// protected is what a client does while it holds. It reports whether the client
// still believes that it holds.
func (l *loop) protected(working, finishing context.Context, key string) (bool, error) {
	first := history.Write
	if l.Body == "rmw" {
		first = history.Read
	}
	if held, err := l.access(finishing, first, key); !held || err != nil {
		return held, err
	}
	work := l.jitter(l.Work.Of(l.run.ttl), float64(l.Vary)/100)
	if work == 0 && l.Body != "rmw" {
		return true, nil
	}
	end := time.Now().Add(work)
	renew := l.Renew.Of(l.run.ttl)
	for renew > 0 && l.hello.Can(client.CanRenew) && time.Until(end) > renew {
		l.sleep(working, renew)
		e, err := l.do(finishing, client.Request{F: history.Renew, Key: key})
		if err != nil {
			return false, err
		}
		if e.Type == history.Fail {
			return false, nil
		}
		if working.Err() != nil {
			break
		}
	}
	l.sleep(working, time.Until(end))
	return l.access(finishing, history.Write, key)
}

// access reads or writes the protected object, unless the client is asked whether
// it still holds and says no.
func (l *loop) access(ctx context.Context, f, key string) (bool, error) {
	if l.Check && l.hello.Can(client.CanCheck) {
		e, err := l.do(ctx, client.Request{F: history.Check, Key: key})
		if err != nil {
			return false, err
		}
		if e.Type == history.OK && string(e.Value) == "false" {
			return false, nil
		}
	}
	req := client.Request{F: f, Key: key}
	if f == history.Read {
		req.URL = l.run.resourceURL(l.directed, l.run.resource.ReadURL(l.Name(), key))
	} else {
		l.writes++
		req.Value = fmt.Sprintf("%s-%d", l.Name(), l.writes) // unique, so that each update can be told
		req.URL = l.run.resourceURL(l.directed, l.run.resource.WriteURL(l.Name(), key, req.Value))
	}
	_, err := l.do(ctx, req)
	return true, err
}

// acquire waits for the lock, or tries again and again if the client cannot.
func (l *loop) acquire(working, finishing context.Context, key string) (history.Event, error) {
	req := client.Request{F: history.Acquire, Key: key}
	wait := l.Wait.Of(l.run.ttl)
	if wait == 0 || l.hello.Can(client.CanWait) {
		req.Wait = wait.Milliseconds()
		return l.do(finishing, req)
	}
	deadline := time.Now().Add(wait)
	for {
		e, err := l.do(finishing, req)
		if err != nil || e.Type != history.Fail || working.Err() != nil || time.Until(deadline) < tryInterval {
			return e, err
		}
		l.sleep(working, tryInterval)
	}
}

// do has the client do one operation, and waits for the answer however long that
// takes: a client that is frozen answers when it thaws.
func (l *loop) do(ctx context.Context, req client.Request) (history.Event, error) {
	l.camp.before(l.Name(), req.F)
	begin := time.Now()
	p, err := l.Invoke(ctx, req)
	if err != nil {
		return history.Event{}, l.gone(ctx, err)
	}
	e, err := p.Wait(ctx)
	if err != nil {
		return e, l.gone(ctx, err)
	}
	l.count(req.F, e.Type, begin)
	return e, nil
}

// gone sorts an error of a client: one that a fault has hit may end, and at the
// end of the run it need not answer any more.
func (l *loop) gone(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		l.run.remark(l.Name() + " did not finish: " + err.Error())
		return errStopped
	case l.run.wasHit(l.Name()):
		l.run.remark(l.Name() + " ended under a fault: " + err.Error())
		return errStopped
	}
	return err
}

func (l *loop) key() string {
	if l.Keys == 1 {
		return l.run.scenario.Key
	}
	return l.run.scenario.Key + strconv.Itoa(1+l.rng.IntN(l.Keys))
}

// jitter varies a time at random by a part of it, more or less.
func (l *loop) jitter(d time.Duration, part float64) time.Duration {
	return time.Duration(float64(d) * (1 + part*(2*l.rng.Float64()-1)))
}

// sleep is the workload's own time: there is nothing to wait for but that.
func (l *loop) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// latency is how long the operations of a kind took, from before they were sent
// until after they were answered, and how they came out.
type latency struct {
	took           *hdrhistogram.Histogram // in microseconds
	ok, fail, info int64
}

// second is what happened in one second of a workload.
type second struct {
	Second     int   `json:"second"` // since its start
	Operations int64 `json:"operations"`
	Grants     int64 `json:"grants"`
}

// An operation takes a minute at most, to be told from others to a hundredth.
const maxLatency = int64(time.Minute / time.Microsecond)

func newLatency() *latency { return &latency{took: hdrhistogram.New(1, maxLatency, 2)} }

func (l *loop) count(f string, t history.Type, begin time.Time) {
	now := time.Now()
	c := l.latency[f]
	if c == nil {
		c = newLatency()
		l.latency[f] = c
	}
	_ = c.took.RecordValue(min(max(now.Sub(begin).Microseconds(), 1), maxLatency)) // within its bounds
	switch t {
	case history.OK:
		c.ok++
	case history.Fail:
		c.fail++
	default:
		c.info++
	}
	at := int(now.Sub(l.begin) / time.Second)
	for len(l.seconds) <= at {
		l.seconds = append(l.seconds, second{Second: len(l.seconds)})
	}
	l.seconds[at].Operations++
	if f == history.Acquire && t == history.OK {
		l.seconds[at].Grants++
	}
}

// writeLatency writes what all loops have counted into the run's folder.
func (r *run) writeLatency(loops []*loop, took time.Duration) error {
	total := map[string]*latency{}
	var seconds []second
	for _, l := range loops {
		for f, c := range l.latency {
			if total[f] == nil {
				total[f] = newLatency()
			}
			t := total[f]
			t.took.Merge(c.took)
			t.ok, t.fail, t.info = t.ok+c.ok, t.fail+c.fail, t.info+c.info
		}
		for i, s := range l.seconds {
			if i == len(seconds) {
				seconds = append(seconds, second{Second: i})
			}
			seconds[i].Operations += s.Operations
			seconds[i].Grants += s.Grants
		}
	}
	type row struct {
		OK   int64   `json:"ok"`
		Fail int64   `json:"fail"`
		Info int64   `json:"info"`
		P50  float64 `json:"p50_ms"`
		P90  float64 `json:"p90_ms"`
		P99  float64 `json:"p99_ms"`
		Max  float64 `json:"max_ms"`
	}
	rows := map[string]row{}
	for f, t := range total {
		at := func(q float64) float64 { return float64(t.took.ValueAtQuantile(q)) / 1e3 }
		rows[f] = row{t.ok, t.fail, t.info, at(50), at(90), at(99), float64(t.took.Max()) / 1e3}
	}
	return writeJSON(filepath.Join(r.meta.Dir, latencyFile), map[string]any{
		"took_ms": took.Milliseconds(), "operations": rows, "seconds": slices.Clip(seconds),
	})
}
