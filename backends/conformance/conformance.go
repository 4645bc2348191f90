// Package conformance is what every lock must do while nothing but clients
// fails: one suite for all backends, with real client processes and real servers.
package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
)

// Subject is a lock with the servers that it needs, which are running.
type Subject struct {
	Backend backends.Backend
	Servers []backends.Endpoint
	Command []string // runs one client, which speaks the client protocol
	// TTL is of the leases that the suite waits for the end of; 0 is a short one.
	// Slow clients need a longer one, to do a few operations in half of it.
	TTL time.Duration
}

// Bounds of the suite. They are generous where a late answer is no fault of the
// lock, and exact where an early one would be.
const (
	patience = 10 * time.Second // for anything that must happen in the end
	slack    = 2 * time.Second  // for servers that look for expired leases now and then
	work     = time.Minute      // for the whole contention
)

// shortTTL is short, so that the suite is quick, and long enough for a busy
// machine to do a few operations in half of it.
const shortTTL = 800 * time.Millisecond

// Run runs the suite. The program must be able to run s.Command: a test binary
// whose own role that is calls selfexec.Main in its TestMain.
func Run(t *testing.T, s Subject) {
	ttl := cmp.Or(s.TTL, shortTTL)
	if s.Backend.MinTTL != nil {
		ttl = max(ttl, s.Backend.MinTTL(backends.Options{TTL: ttl}))
	}
	for _, c := range []struct {
		name string
		test func(*run)
		ttl  time.Duration
	}{
		{"ExclusiveWhenHealthy", exclusive, patience},
		{"TokensRise", tokensRise, patience},
		{"CheckSaysWhetherItHolds", check, patience},
		{"ReleaseByOwnerOnly", ownerOnly, patience},
		{"WaitingAcquireObeysItsDeadline", deadline, patience},
		{"WaitingAcquireIsGrantedOnRelease", handOver, patience},
		{"FreedWhenTheHolderIsKilled", killed, ttl},
		{"RenewalExtends", renewal, ttl},
		{"ReleaseAfterLossFreesNothing", releaseAfterLoss, ttl},
		{"RenewalAfterLossFails", renewAfterLoss, ttl},
		{"ContentionLosesNothing", contention, patience},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRun(t, s, c.ttl)
			c.test(r)
		})
	}
}

// run is one test with its history.
type run struct {
	*testing.T
	subject  Subject
	ttl      time.Duration
	key      string
	rec      *history.Recorder
	resource *resource.Resource
	dir      string

	mu     sync.Mutex
	events []history.Event
}

func newRun(t *testing.T, s Subject, ttl time.Duration) *run {
	r := &run{T: t, subject: s, ttl: ttl, key: "conformance/" + t.Name(), dir: t.TempDir()}
	var err error
	if r.rec, err = history.Create(filepath.Join(r.dir, "history.jsonl")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.rec.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(r.dir, "history.jsonl")) // the failure is reported already
			const most = 8 << 10
			t.Logf("history:\n%s", b[max(0, len(b)-most):])
		}
	})
	r.rec.Watch(func(e history.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	})
	kind := s.Backend.Resource
	if kind == "" {
		kind = "unfenced"
	}
	o := resource.Options{Recorder: r.rec}
	if k, err := resource.Find(kind); err == nil && k.Software != "" {
		for _, e := range s.Servers {
			if e.Software == k.Software {
				o.DSN = e.URL
			}
		}
	}
	if r.resource, err = resource.Open(t.Context(), kind, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.resource.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// person is a client of a run.
type person struct {
	*client.Proc
	run *run
	can client.Hello
}

// clients starts and opens clients of the given names side by side.
func (r *run) clients(names ...string) []*person {
	r.Helper()
	all := make([]*person, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			p, err := client.Start(client.Options{
				Name:     name,
				Command:  r.subject.Command,
				Stderr:   filepath.Join(r.dir, name+".log"),
				Recorder: r.rec,
			})
			if err != nil {
				errs[i] = err
				return
			}
			all[i] = &person{Proc: p, run: r}
			ctx, cancel := context.WithTimeout(r.Context(), patience)
			defer cancel()
			all[i].can, errs[i] = p.Open(ctx, client.OpenOptions{Servers: r.subject.Servers, TTL: r.ttl, ResourceDSN: r.resource.DSN()})
		})
	}
	wg.Wait()
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var wg sync.WaitGroup
		for _, p := range all {
			if p != nil {
				wg.Go(func() { p.Close(ctx) }) // a client that failed has failed the test before
			}
		}
		wg.Wait()
	})
	for i, err := range errs {
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(r.dir, names[i]+".log")) // there may be none
			r.Fatalf("%v\n%s", err, log)
		}
	}
	return all
}

// do has the client do an operation and returns its completion.
func (p *person) do(request client.Request) history.Event {
	p.run.Helper()
	request.Key = p.run.key
	ctx, cancel := context.WithTimeout(p.run.Context(), patience+time.Duration(request.Wait)*time.Millisecond)
	defer cancel()
	e, err := p.Do(ctx, request)
	if err != nil {
		p.run.Fatal(err)
	}
	return e
}

func (p *person) acquire(wait time.Duration) history.Event {
	p.run.Helper()
	return p.do(client.Request{F: history.Acquire, Wait: wait.Milliseconds()})
}

func (p *person) ask(f string) history.Event {
	p.run.Helper()
	return p.do(client.Request{F: f})
}

func (r *run) want(e history.Event, t history.Type, why string) history.Event {
	r.Helper()
	if e.Type != t {
		r.Fatalf("%s %s: %s %q, want %s: %s", e.Process, e.F, e.Type, e.Error, t, why)
	}
	return e
}

// await waits until an event of the history satisfies f.
func (r *run) await(what string, f func(history.Event) bool) history.Event {
	r.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		r.mu.Lock()
		i := slices.IndexFunc(r.events, f)
		var e history.Event
		if i >= 0 {
			e = r.events[i]
		}
		r.mu.Unlock()
		if i >= 0 {
			return e
		}
	}
	r.Fatalf("no %s within %v", what, patience)
	panic("unreachable")
}

func (p *person) signal(s syscall.Signal) {
	p.run.Helper()
	pids, err := p.PIDs()
	if err != nil || len(pids) == 0 {
		p.run.Fatalf("processes of %s: %v, %v", p.Name(), pids, err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil {
			p.run.Fatal(err)
		}
	}
}

func exclusive(r *run) {
	c := r.clients("A", "B")
	a, b := c[0], c[1]
	for range 5 {
		r.want(a.acquire(0), history.OK, "the lock is free")
		r.want(b.acquire(0), history.Fail, "A holds it")
		r.want(a.ask(history.Release), history.OK, "A holds it")
		r.want(b.acquire(0), history.OK, "A released it")
		r.want(a.acquire(0), history.Fail, "B holds it")
		r.want(b.ask(history.Release), history.OK, "B holds it")
	}
}

func tokensRise(r *run) {
	c := r.clients("A", "B")
	if !c[0].can.Can(client.CanToken) {
		r.Skip("its grants carry no token")
	}
	var last int64
	for i := range 6 {
		p := c[i%2]
		e := r.want(p.acquire(0), history.OK, "the lock is free")
		if e.Token == nil || *e.Token <= last {
			r.Fatalf("token of grant %d is %v, want more than %d", i, e.Token, last)
		}
		last = *e.Token
		w := p.do(client.Request{F: history.Write, Value: fmt.Sprint(i), URL: r.resource.WriteURL(p.Name(), r.key, fmt.Sprint(i))})
		if w.Token == nil || *w.Token != last {
			r.Fatalf("the write went with token %v, want %d", w.Token, last)
		}
		r.want(p.ask(history.Release), history.OK, "it holds it")
	}
}

func check(r *run) {
	a := r.clients("A")[0]
	if !a.can.Can(client.CanCheck) {
		r.Skip("its clients cannot check")
	}
	holds := func(want string, why string) {
		r.Helper()
		if e := r.want(a.ask(history.Check), history.OK, "a check is answered"); string(e.Value) != want {
			r.Fatalf("check says %s, want %s: %s", e.Value, want, why)
		}
	}
	holds("false", "it was not acquired")
	r.want(a.acquire(0), history.OK, "the lock is free")
	holds("true", "it was acquired")
	r.want(a.ask(history.Release), history.OK, "A holds it")
	holds("false", "it was released")
}

func ownerOnly(r *run) {
	c := r.clients("A", "B", "C")
	r.want(c[0].acquire(0), history.OK, "the lock is free")
	r.want(c[1].ask(history.Release), history.Fail, "B does not hold it")
	r.want(c[2].acquire(0), history.Fail, "A holds it")
	r.want(c[2].ask(history.Release), history.Fail, "a failed acquire gives C nothing to release")
	r.want(c[1].acquire(0), history.Fail, "A still holds it")
	r.want(c[0].ask(history.Release), history.OK, "A holds it")
	r.want(c[0].ask(history.Release), history.Fail, "A has released it already")
}

func deadline(r *run) {
	c := r.clients("A", "B")
	if !c[1].can.Can(client.CanWait) {
		r.Skip("its clients cannot wait")
	}
	r.want(c[0].acquire(0), history.OK, "the lock is free")
	const wait = 300 * time.Millisecond
	begin := time.Now()
	r.want(c[1].acquire(wait), history.Fail, "A holds it all the time")
	if took := time.Since(begin); took < wait-20*time.Millisecond || took > wait+slack {
		r.Errorf("gave up after %v, want %v", took, wait)
	}
	r.want(c[0].ask(history.Release), history.OK, "A holds it")
	r.want(c[0].acquire(0), history.OK, "a waiter that gave up is not in the way")
}

func handOver(r *run) {
	c := r.clients("A", "B")
	a, b := c[0], c[1]
	if !b.can.Can(client.CanWait) {
		r.Skip("its clients cannot wait")
	}
	r.want(a.acquire(0), history.OK, "the lock is free")
	waiting, err := b.Invoke(r.Context(), client.Request{F: history.Acquire, Key: r.key, Wait: patience.Milliseconds()})
	if err != nil {
		r.Fatal(err)
	}
	released := r.want(a.ask(history.Release), history.OK, "A holds it")
	granted, err := waiting.Wait(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	r.want(granted, history.OK, "A released it")
	if late := time.Duration(granted.Time - released.Time); late > slack {
		r.Errorf("B was granted the lock %v after A had released it", late)
	}
}

func killed(r *run) {
	c := r.clients("A", "B")
	a, b := c[0], c[1]
	invoked := r.rec.Now()
	grant := r.want(a.acquire(0), history.OK, "the lock is free")
	a.signal(syscall.SIGKILL)
	<-a.Exited()
	e := r.want(b.acquire(patience), history.OK, "the holder is dead")
	if bound := r.ttl + slack; time.Duration(e.Time-grant.Time) > bound {
		r.Errorf("free %v after the grant, want %v at the most", time.Duration(e.Time-grant.Time), bound)
	}
	if freed := e.Time - invoked; r.subject.Backend.Leased && freed < grant.TTL {
		r.Errorf("granted again %v after the acquire, within the promised lease of %v", time.Duration(freed), time.Duration(grant.TTL))
	}
}

func renewal(r *run) {
	c := r.clients("A", "B")
	a, b := c[0], c[1]
	if !a.can.Can(client.CanRenew) {
		r.Skip("its clients cannot renew")
	}
	e := r.want(a.acquire(0), history.OK, "the lock is free")
	for begin := e.Time; r.rec.Now()-begin < 2*int64(r.ttl); {
		next := time.After(r.ttl / 8)
		r.want(a.ask(history.Renew), history.OK, "A holds it")
		r.want(b.acquire(0), history.Fail, "A renewed its lease")
		<-next
	}
	r.want(a.ask(history.Release), history.OK, "A renewed its lease")
	r.want(a.ask(history.Renew), history.Fail, "A has released it")
}

// loseToAnother has A lose the lock to B, which holds it, and tells A if its
// client can be told.
func (r *run) loseToAnother() (a, b, c *person) {
	r.Helper()
	all := r.clients("A", "B", "C")
	a, b, c = all[0], all[1], all[2]
	r.want(a.acquire(0), history.OK, "the lock is free")
	a.signal(syscall.SIGSTOP)
	r.want(b.acquire(patience), history.OK, "A is frozen, so its hold must end")
	a.signal(syscall.SIGCONT)
	if a.can.Can(client.CanNotify) {
		r.await("loss notice to A", func(e history.Event) bool { return e.Process == "A" && e.F == history.Lost })
	}
	return a, b, c
}

func releaseAfterLoss(r *run) {
	a, b, c := r.loseToAnother()
	r.want(a.ask(history.Release), history.Fail, "A has lost it")
	r.want(c.acquire(0), history.Fail, "B holds it, whatever A does")
	r.want(b.ask(history.Release), history.OK, "B holds it, whatever A does")
}

func renewAfterLoss(r *run) {
	a, b, c := r.loseToAnother()
	if !a.can.Can(client.CanRenew) {
		r.Skip("its clients cannot renew")
	}
	r.want(a.ask(history.Renew), history.Fail, "A has lost it")
	r.want(b.ask(history.Renew), history.OK, "B holds it, whatever A does")
	r.want(c.acquire(0), history.Fail, "B holds it, whatever A does")
}

// contention has many processes count to a number together, each step being a
// read and a write under the lock.
func contention(r *run) {
	const processes, rounds = 20, 10
	names := make([]string, processes)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	all := r.clients(names...)
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() {
			for range rounds {
				if err := p.increment(); err != nil {
					r.Errorf("client %s: %v", p.Name(), err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := r.resource.Sync(r.Context()); err != nil {
		r.Fatal(err)
	}
	e := all[0].do(client.Request{F: history.Read, URL: r.resource.ReadURL("0", r.key)})
	if want := fmt.Sprintf("%q", fmt.Sprint(processes*rounds)); string(e.Value) != want {
		r.Errorf("the counter stands at %s, want %s: updates were lost", e.Value, want)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	holder := ""
	writes := 0
	for _, e := range r.events {
		switch {
		case e.F == history.Acquire && e.Type == history.OK:
			if holder != "" {
				r.Fatalf("%s was granted the lock while %s held it: %v", e.Process, holder, e)
			}
			holder = e.Process
		case e.F == history.Release && e.Type == history.Invoke:
			holder = ""
		case e.Process == history.Resource && e.F == history.Write && e.Type == history.OK:
			writes++
		}
	}
	if writes != processes*rounds {
		r.Errorf("the resource recorded %d writes, want %d", writes, processes*rounds)
	}
}

// increment adds one to the counter under the lock.
func (p *person) increment() error {
	ctx, cancel := context.WithTimeout(p.run.Context(), work)
	defer cancel()
	r := p.run
	do := func(q client.Request, types ...history.Type) (history.Event, error) {
		q.Key = r.key
		e, err := p.Do(ctx, q)
		if err == nil && !slices.Contains(types, e.Type) {
			err = fmt.Errorf("%s: %s %s", q.F, e.Type, e.Error)
		}
		return e, err
	}
	if _, err := do(client.Request{F: history.Acquire, Wait: work.Milliseconds()}, history.OK); err != nil {
		return err
	}
	e, err := do(client.Request{F: history.Read, URL: r.resource.ReadURL(p.Name(), r.key)}, history.OK)
	if err != nil {
		return err
	}
	var text string
	if err := json.Unmarshal(e.Value, &text); err != nil {
		return err
	}
	n, err := strconv.Atoi("0" + text)
	if err != nil {
		return err
	}
	next := fmt.Sprint(n + 1)
	w, err := do(client.Request{F: history.Write, Value: next, URL: r.resource.WriteURL(p.Name(), r.key, next)}, history.OK, history.Info)
	if err != nil {
		return err
	}
	if w.Type == history.Info && !strings.Contains(w.Error, backends.ErrPending.Error()) {
		return fmt.Errorf("write: %s", w.Error)
	}
	_, err = do(client.Request{F: history.Release}, history.OK)
	return err
}
