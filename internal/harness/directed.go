package harness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

// Events of the harness, beside those that history names.
const (
	EndEvent          = "end"          // the run came to its end; without it the history was cut off
	excusedEvent      = "excused"      // a property, its key, that does not count, and why
	remarkEvent       = "remark"       // something that a reader should know
	inconclusiveEvent = "inconclusive" // why the run proves nothing
	errorEvent        = "error"        // why the environment failed
	interruptEvent    = "interrupted"  // the user ended the run
)

const (
	stepTimeout = 10 * time.Second     // for an answer, where a step names no other
	answerGrace = 5 * time.Second      // for the answer to a waiting acquire, after its wait
	tryInterval = 5 * time.Millisecond // between tries of a client that cannot wait
)

// directed is a client that walks through a script.
type directed struct {
	*client.Proc
	powers *powers
	inside *deploy.Container // nil if it is a process of this machine
	hello  client.Hello
	queued *queued
	writes int
	// resource is a URL of the resource as the client reaches it.
	resource string
	holds    map[string]int // how often it was granted a key and has not released it
}

// queued is an operation whose answer nobody waits for yet.
type queued struct {
	*client.Pending
	step scenarios.Step
}

// inconclusive is an error after which a run proves nothing, although nothing
// of the environment failed.
type inconclusive struct{ error }

func (i inconclusive) Unwrap() error { return i.error }

// directed walks through the scenario's steps, with the nemesis between them.
func (r *run) directed(ctx context.Context) error {
	r.campaign = newCampaign(ctx, r)
	defer r.campaign.end()
	for _, s := range r.scenario.Steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.step(ctx, s); err != nil {
			return fmt.Errorf("%s:%d: %w", r.scenario.File, s.Line, err)
		}
	}
	r.campaign.end()
	return r.campaign.outcome()
}

func (r *run) step(ctx context.Context, s scenarios.Step) error {
	switch {
	case s.Fault != "":
		var on []string
		rng := rand.New(rand.NewPCG(uint64(r.Seed), uint64(s.Line)))
		for _, role := range s.On {
			names, err := r.group(ctx, role, rng)
			if err != nil {
				return err
			}
			on = append(on, names...)
		}
		if err := r.noteLeader(ctx); err != nil {
			return err
		}
		_, err := r.inject(ctx, s.Fault, s.With, on)
		return err
	case s.Heal != "":
		return r.healYoungest(ctx, s.Heal)
	case s.Await != "":
		c, ok := r.clients[s.Await]
		switch {
		case !ok && s.Await == scenarios.NewLeader:
			return r.newLeader(ctx)
		case !ok:
			return r.campaign.inEffect(ctx, s.Await)
		}
		q := c.queued
		c.queued = nil
		if q == nil {
			return nil // its invocation was skipped
		}
		return r.finish(ctx, c, q.step, q.Pending, stepTimeout)
	default:
		return r.operate(ctx, s)
	}
}

// operate has a client do one operation.
func (r *run) operate(ctx context.Context, s scenarios.Step) error {
	c := r.clients[s.Client]
	if why := r.skip(c, s); why != "" {
		r.rec.Record(history.Event{
			Process: history.Harness, Type: history.Info, F: history.Skip, Key: r.keyOf(s),
			Error: fmt.Sprintf("%s %s: %s", s.Client, s.Do, why),
		})
		return nil
	}
	within := s.Within.Of(r.ttl)
	if within == 0 && s.Do != history.Acquire {
		within = stepTimeout
	}
	req := client.Request{F: s.Do, Key: r.keyOf(s)}
	switch s.Do {
	case history.Acquire:
		if within > 0 && !s.Queue {
			return r.acquireByTries(ctx, c, s, req, within)
		}
		if c.hello.Can(client.CanWait) {
			req.Wait = within.Milliseconds()
		}
		within += answerGrace
	case history.Write:
		c.writes++
		req.Value = s.Value
		if req.Value == "" {
			req.Value = fmt.Sprintf("%s-%d", s.Client, c.writes)
		}
		req.URL = r.resourceURL(c, r.resource.WriteURL(s.Client, req.Key, req.Value))
	case history.Read:
		req.URL = r.resourceURL(c, r.resource.ReadURL(s.Client, req.Key))
	}
	r.campaign.before(c.Name(), s.Do)
	p, err := c.Invoke(ctx, req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", s.Client, s.Do, err)
	}
	if s.Queue {
		c.queued = &queued{p, s}
		return nil
	}
	return r.finish(ctx, c, s, p, within)
}

// keyOf returns the name of the lock that a step is about.
func (r *run) keyOf(s scenarios.Step) string { return cmp.Or(s.Key, r.scenario.Key) }

// skip says why a step must be left out, or "": what is done outside of a claim
// would be the workload's fault and not the lock's.
func (r *run) skip(c *directed, s scenarios.Step) string {
	switch s.Do {
	case history.Write, history.Renew, history.Release:
		if c.holds[r.keyOf(s)] == 0 {
			return "it was not granted the lock"
		}
	}
	switch {
	case s.Do == history.Renew && !c.hello.Can(client.CanRenew):
		return "it cannot renew"
	case s.Do == history.Check && !c.hello.Can(client.CanCheck):
		return "it cannot check"
	}
	return ""
}

// acquireByTries has a client try until it is granted the lock, which one that can
// wait for it does at its first try, unless something else is in its way, such as
// a connection that ended with its server. Each try is an operation of its own.
func (r *run) acquireByTries(ctx context.Context, c *directed, s scenarios.Step, req client.Request, within time.Duration) error {
	end := time.Now().Add(within)
	for {
		grace := stepTimeout
		if c.hello.Can(client.CanWait) {
			wait := max(time.Until(end), 0)
			req.Wait = wait.Milliseconds()
			grace = wait + answerGrace
		}
		r.campaign.before(c.Name(), req.F)
		p, err := c.Invoke(ctx, req)
		if err != nil {
			return fmt.Errorf("%s %s: %w", s.Client, s.Do, err)
		}
		e, err := await(ctx, p, grace)
		// A client that waited stops a little before its time is over.
		if err != nil || e.Type == history.OK || time.Until(end) < 2*tryInterval {
			return r.judge(ctx, c, s, e, err)
		}
		select {
		case <-ctx.Done():
			return r.judge(ctx, c, s, e, nil)
		case <-time.After(tryInterval):
		}
	}
}

// finish waits for the answer to an operation and judges it.
func (r *run) finish(ctx context.Context, c *directed, s scenarios.Step, p *client.Pending, within time.Duration) error {
	e, err := await(ctx, p, within)
	return r.judge(ctx, c, s, e, err)
}

func await(ctx context.Context, p *client.Pending, within time.Duration) (history.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return p.Wait(ctx)
}

// judge decides whether the script may go on after an answer. An acquire that
// is not granted leaves untested what the scenario is about; other operations
// may come out as they will: that is what is being observed.
func (r *run) judge(ctx context.Context, c *directed, s scenarios.Step, e history.Event, err error) error {
	if err != nil && s.MayFail && ctx.Err() == nil && r.wasHit(c.Name()) {
		return nil // it ended under its fault, which the history tells
	}
	if err != nil && (ctx.Err() != nil || !errors.Is(err, client.ErrUnanswered)) {
		return fmt.Errorf("%s %s: %w", c.Name(), s.Do, err)
	}
	if c.holds == nil {
		c.holds = map[string]int{}
	}
	key, done := r.keyOf(s), err == nil && e.Type == history.OK
	switch {
	case s.Do == history.Acquire && done:
		c.holds[key]++
	case s.Do == history.Acquire:
		c.holds[key] = 0
	case s.Do == history.Release && c.holds[key] > 0:
		c.holds[key]--
	}
	if s.Refused {
		if done {
			return inconclusive{fmt.Errorf("%s succeeded with its %s, which was to be refused", c.Name(), s.Do)}
		}
		return nil
	}
	if s.MayFail {
		return nil
	}
	if err != nil {
		return inconclusive{fmt.Errorf("%s did not answer to %s in time", c.Name(), s.Do)}
	}
	if s.Do == history.Acquire && e.Type != history.OK {
		return inconclusive{fmt.Errorf("%s was not granted the lock (%s): the thing to be tested did not happen", c.Name(), e.Error)}
	}
	return nil
}

// inject brings a fault into effect. One that cannot be shown to be in effect
// makes the run inconclusive. The fault is returned also with an error, if it
// has to be healed.
func (r *run) inject(ctx context.Context, name string, with map[string]string, on []string) (*fault, error) {
	_, f, err := r.prove(ctx, name, with, on)
	return f, err
}

// prove is inject with the proof.
func (r *run) prove(ctx context.Context, name string, with map[string]string, on []string) (nemesis.Proof, *fault, error) {
	kind, err := nemesis.Find(name)
	if err != nil {
		return "", nil, err
	}
	if kind.Available != nil {
		if err := kind.Available(); err != nil {
			return "", nil, inconclusive{fmt.Errorf("fault %s is unavailable: %w", name, err)}
		}
	}
	if with, err = r.named(ctx, with); err != nil {
		return "", nil, err
	}
	f, err := kind.Make(params(with, r.ttl))
	if err != nil {
		return "", nil, err
	}
	var targets []nemesis.Target
	for _, name := range on {
		t, err := r.target(name)
		if err != nil {
			return "", nil, err
		}
		if err := r.powers.patched(kind, t); err != nil {
			return "", nil, inconclusive{fmt.Errorf("fault %s is unavailable: %w", kind.Name, err)}
		}
		targets = append(targets, t)
	}
	ft := &fault{kind: name, targets: on, Fault: f}
	r.faultsMu.Lock()
	r.faults = append(r.faults, ft)
	for _, name := range on {
		r.hit[name] = true
	}
	r.faultsMu.Unlock()
	r.record(ft, history.Invoke, "", nil)
	proof, err := f.Inject(ctx, targets)
	if err != nil {
		r.record(ft, history.Fail, proof, err)
		return proof, ft, inconclusive{fmt.Errorf("fault %s did not take effect: %w", name, err)}
	}
	r.record(ft, history.OK, proof, nil)
	return proof, ft, nil
}

// healYoungest ends the youngest fault of the kind, if there is one.
func (r *run) healYoungest(ctx context.Context, kind string) error {
	r.faultsMu.Lock()
	at := len(r.faults) - 1
	for at >= 0 && r.faults[at].kind != kind {
		at--
	}
	var f *fault
	if at >= 0 {
		f = r.faults[at]
	}
	r.faultsMu.Unlock()
	if f == nil {
		return nil
	}
	return r.heal(ctx, f)
}

// heal ends a fault. That healing begins is recorded before it does: what the
// targets do from then on, they may do unharmed. It does nothing if the fault
// is not in effect.
func (r *run) heal(ctx context.Context, f *fault) error {
	_, err := r.proveHealed(ctx, f)
	return err
}

// proveHealed is heal with the proof.
func (r *run) proveHealed(ctx context.Context, f *fault) (nemesis.Proof, error) {
	r.faultsMu.Lock()
	at := slices.Index(r.faults, f)
	if at >= 0 {
		r.faults = slices.Delete(r.faults, at, at+1)
	}
	r.faultsMu.Unlock()
	if at < 0 {
		return "", nil
	}
	r.rec.Record(history.Event{
		Process: history.Nemesis, Type: history.Info, F: history.Heal,
		Value: encode(map[string]any{"fault": f.kind, "on": f.targets}),
	})
	proof, err := f.Heal(ctx)
	r.record(f, history.Info, proof, err)
	if err != nil {
		return proof, fmt.Errorf("heal %s: %w", f.kind, err)
	}
	return proof, nil
}

// record writes an event of the nemesis.
func (r *run) record(f *fault, t history.Type, proof nemesis.Proof, failure error) {
	value := map[string]any{"on": f.targets}
	if proof != "" {
		value["proof"] = proof
	}
	e := history.Event{Process: history.Nemesis, Type: t, F: f.kind, Value: encode(value)}
	if failure != nil {
		e.Error = failure.Error()
	}
	r.rec.Record(e)
}

// encode returns v as JSON. Values of the harness's own making cannot fail.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// target finds a client or a server by its name.
func (r *run) target(name string) (nemesis.Target, error) {
	if c, ok := r.clients[name]; ok {
		return c, nil
	}
	for _, n := range r.nodes {
		if n.Name() == name {
			return r.powers.target(n), nil
		}
	}
	if name == resourceNode {
		return store{r.powers}, nil
	}
	return nil, fmt.Errorf("no client and no server is named %q here", name)
}

// fail records why a run did not come to its end, so that checking its folder
// again tells the same.
func (r *run) fail(ctx context.Context, err error) {
	f := errorEvent
	var in inconclusive
	switch {
	case ctx.Err() != nil:
		f = interruptEvent
	case errors.As(err, &in):
		f = inconclusiveEvent
	}
	r.rec.Record(history.Event{Process: history.Harness, Type: history.Info, F: f, Error: err.Error()})
}
