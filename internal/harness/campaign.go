package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
	"github.com/lockcheck/lockcheck/scenarios"
)

// What the harness noticed, beside what history names.
const (
	leaderEvent  = "leader"  // a change of the leader
	answersEvent = "answers" // that many servers have answered an acquire
)

const (
	injectTimeout  = 15 * time.Second      // of a fault with its proof
	leaderInterval = 20 * time.Millisecond // between two looks at who leads
)

// campaign carries out a scenario's nemesis while its workload runs: each entry
// waits for its moment, finds its targets, is injected, and healed.
type campaign struct {
	run    *run
	ctx    context.Context // ends with the workload
	cancel context.CancelFunc
	busy   sync.WaitGroup // entries that are under way

	mu       sync.Mutex
	over     bool
	tracker  tracker
	changed  chan struct{} // closed and replaced when the tracker has taken an event of a lock
	waiting  map[int]*trigger
	gates    map[string][]chan struct{} // by client: closed when what it is to wait for is in effect
	acquires map[string]chan struct{}   // by client: closed when its acquire, whose answers are counted, has ended
	counting []*proxy.Tally             // not changed once the campaign has begun
	settled  map[string]*settled        // by kind of fault
	watchers []*watcher                 // of events that end faults
	faulty   map[[2]string]int          // by kind and target: faults in effect
	took     int                        // faults that took effect
	skipped  []string                   // entries that were not injected, and why
	failed   []error                    // those of which it could not be shown that they took effect
}

// newCampaign starts to watch, and to wait for the entries' moments.
func newCampaign(ctx context.Context, r *run) *campaign {
	c := &campaign{
		run: r, waiting: map[int]*trigger{}, changed: make(chan struct{}),
		gates: map[string][]chan struct{}{}, acquires: map[string]chan struct{}{}, faulty: map[[2]string]int{},
		settled: map[string]*settled{},
	}
	c.ctx, c.cancel = context.WithCancel(ctx)
	for _, i := range r.scenario.Nemesis {
		if c.settled[i.Fault] == nil {
			c.settled[i.Fault] = &settled{done: make(chan struct{})}
		}
		c.settled[i.Fault].left++
	}
	for n, i := range r.scenario.Nemesis {
		if i.When == "" {
			continue
		}
		t := newTrigger(i)
		if i.Answers > 0 {
			var err error
			if t.tallies, err = c.tallies(i); err != nil {
				c.skip(i, err.Error())
				c.settle(i.Fault)
				continue
			}
		}
		c.waiting[n] = t
	}
	r.rec.Watch(c.observe)
	leaders := false
	for n, i := range r.scenario.Nemesis {
		leaders = leaders || i.When == "leader"
		if i.When == "" {
			c.busy.Go(func() { c.entry(n, i.At.Of(r.ttl), cue{}) })
		}
	}
	if leaders {
		c.busy.Go(c.watchLeader)
	}
	return c
}

// observe takes an event, from within the recorder.
func (c *campaign) observe(e history.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tracker.observe(e)
	if c.over || e.Process == history.Resource {
		return
	}
	for _, w := range c.watchers {
		if ends(w.moment, e) {
			select {
			case w.who <- e.Process:
			default: // it has been told of others, and looks at them first
			}
		}
	}
	if e.Process != history.Nemesis && e.Process != history.Harness {
		close(c.changed)
		c.changed = make(chan struct{})
	}
	if e.F == history.Acquire && e.Type != history.Invoke {
		c.acquireEnded(e.Process)
	}
	for n, t := range c.waiting {
		if !t.fires(e) {
			continue
		}
		q := cue{client: e.Process}
		if t.tallies != nil {
			q = c.acquireBegan(t, e)
		}
		c.begin(n, q, answered(e))
	}
}

// begin has a waiting entry go on, and its client wait if it can and there is no
// time to pass. It needs mu.
func (c *campaign) begin(n int, q cue, canWait bool) {
	delete(c.waiting, n)
	after := c.run.scenario.Nemesis[n].After.Of(c.run.ttl)
	if canWait && after == 0 {
		q.gate = make(chan struct{})
		c.gates[q.client] = append(c.gates[q.client], q.gate)
	}
	c.busy.Go(func() { c.entry(n, after, q) })
}

// before is called when a client is about to ask for an operation. It returns when
// the faults that begin with that, or began with the client's last event, are in
// effect.
func (c *campaign) before(client, operation string) {
	c.mu.Lock()
	for n, t := range c.waiting {
		if !c.over && t.firesBefore(client, operation) {
			c.begin(n, cue{client: client}, true)
		}
	}
	gates := c.gates[client]
	delete(c.gates, client)
	c.mu.Unlock()
	for _, g := range gates {
		<-g // bounded by injectTimeout
	}
}

// entry carries out the nth entry, so long from now.
func (c *campaign) entry(n int, after time.Duration, q cue) {
	i := c.run.scenario.Nemesis[n]
	open := sync.OnceFunc(func() {
		c.settle(i.Fault)
		if q.gate != nil {
			close(q.gate)
		}
	})
	defer open()
	if err := c.counted(q); err != nil {
		c.skip(i, err.Error())
		return
	}
	if !c.sleep(after) {
		c.skip(i, "the workload ended before")
		return
	}
	rng := rand.New(rand.NewPCG(uint64(c.run.Seed), uint64(n)))
	names, err := c.resolve(i, q.client, rng)
	if err != nil {
		c.skip(i, err.Error())
		return
	}
	if names = c.take(i.Fault, names); len(names) == 0 {
		c.skip(i, "the same fault was in effect on its targets already")
		return
	}
	defer c.give(i.Fault, names)
	w := &watcher{moment: i.Until, who: make(chan string, 64)}
	c.watch(w)
	defer c.unwatch(w)
	// Neither is cut short by the end of the workload: what is half injected
	// has to be healed as well.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), injectTimeout)
	defer cancel()
	f, err := c.run.inject(ctx, i.Fault, i.With, names)
	err = errors.Join(err, q.during())
	c.mu.Lock()
	if err != nil {
		c.failed = append(c.failed, err)
	} else {
		c.took++
	}
	c.mu.Unlock()
	open()
	if err == nil {
		c.last(i, names, w.who)
	}
	if f == nil {
		return
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(c.ctx), injectTimeout)
	defer cancel()
	if err := c.run.heal(ctx, f); err != nil {
		c.fail(err)
	}
}

// settled are the entries of one kind of fault, for those who wait for them.
type settled struct {
	left int           // those that were neither injected nor skipped so far
	done chan struct{} // closed when there are none left
}

// settle says that an entry of the kind was injected, or will not be.
func (c *campaign) settle(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.settled[kind]
	if s.left--; s.left == 0 {
		close(s.done)
	}
}

// inEffect waits until all entries with the kind of fault have injected it. If one
// could not, outcome will say so.
func (c *campaign) inEffect(ctx context.Context, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, injectTimeout)
	defer cancel()
	select {
	case <-c.settled[kind].done:
		return nil
	case <-ctx.Done():
		return inconclusive{fmt.Errorf("the moment for the fault %s of the nemesis did not come", kind)}
	}
}

func (c *campaign) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, err)
}

// last waits until a fault is to end.
func (c *campaign) last(i scenarios.Injection, targets []string, ended <-chan string) {
	var limit <-chan time.Time
	if d := i.For.Of(c.run.ttl); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		limit = t.C
	}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-limit:
			return
		case who := <-ended:
			if !slices.Contains(targets, who) {
				return
			}
		}
	}
}

// sleep reports whether so much time has passed before the workload's end.
func (c *campaign) sleep(d time.Duration) bool {
	if d <= 0 {
		return c.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// watcher is told who does what ends a fault.
type watcher struct {
	moment string // scenarios.Injection.Until
	who    chan string
}

func (c *campaign) watch(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, w)
}

func (c *campaign) unwatch(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = slices.DeleteFunc(c.watchers, func(o *watcher) bool { return o == w })
}

func (c *campaign) skip(i scenarios.Injection, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipped = append(c.skipped, entryWhy(i, why))
}

// entryWhy says why an entry was not injected.
func entryWhy(i scenarios.Injection, why string) string {
	return fmt.Sprintf("%s on %s: %s", i.Fault, strings.Join(i.On, ", "), why)
}

// take returns the targets on which no fault of the kind is in effect, and has
// them taken. Two clocks that jump on one target, or two pauses, would end
// together.
func (c *campaign) take(kind string, names []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var free []string
	for _, n := range names {
		k := [2]string{kind, n}
		if c.faulty[k] == 0 {
			c.faulty[k]++
			free = append(free, n)
		}
	}
	return free
}

func (c *campaign) give(kind string, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		delete(c.faulty, [2]string{kind, n})
	}
}

// resolve finds the targets that an entry means at this moment. Where it means
// a holder or a waiter and there is none, it waits for one.
func (c *campaign) resolve(i scenarios.Injection, by string, rng *rand.Rand) ([]string, error) {
	var names []string
	for _, on := range i.On {
		found, err := c.role(on, by, rng)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("there is no such target")
	}
	return names, nil
}

func (c *campaign) role(role, by string, rng *rand.Rand) ([]string, error) {
	switch role {
	case "holder":
		return c.await(func(t *tracker) string { return t.holder(by) })
	case "waiter":
		return c.await(func(t *tracker) string {
			var all []string
			for _, name := range c.run.scenario.Clients {
				if t.waiting[name] != "" && t.holder(name) != name {
					all = append(all, name)
				}
			}
			if len(all) == 0 {
				return ""
			}
			return all[rng.IntN(len(all))]
		})
	}
	return c.run.group(c.ctx, role, rng)
}

// group finds the clients and servers that a role means, as far as that can be
// told without the history. What is no role is a name.
func (r *run) group(ctx context.Context, role string, rng *rand.Rand) ([]string, error) {
	clients, servers := r.scenario.Clients, r.serverNames()
	switch role {
	case "random":
		all := slices.Concat(clients, servers)
		return []string{all[rng.IntN(len(all))]}, nil
	case "all":
		return slices.Concat(clients, servers), nil
	case "clients":
		return clients, nil
	case "servers":
		return servers, nil
	case "leader", "primary", "followers":
		n, err := leader(ctx, r.nodes)
		if err != nil {
			return nil, err
		}
		if role == "followers" {
			return slices.DeleteFunc(servers, func(s string) bool { return s == n.Name() }), nil
		}
		return []string{n.Name()}, nil
	case "majority", "minority":
		// The leader's side counts: which one it is on is chance.
		shuffled := slices.Clone(servers)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		// With the same chance the two are all servers.
		n := len(servers)/2 + 1
		if role == "minority" {
			return shuffled[n:], nil
		}
		return shuffled[:n], nil
	}
	return []string{role}, nil
}

// named returns a fault's parameters with the roles leader and followers in
// them replaced by names, as in {groups: "A,leader|B,followers"}.
func (r *run) named(ctx context.Context, with map[string]string) (map[string]string, error) {
	out := maps.Clone(with)
	for name, value := range with {
		if name != "groups" && name != "peers" {
			continue
		}
		groups := strings.Split(value, "|")
		for i, g := range groups {
			var all []string
			for _, one := range strings.Split(g, ",") {
				one = strings.TrimSpace(one)
				found := []string{one}
				if slices.Contains([]string{"leader", "followers", "servers", "majority", "minority"}, one) {
					var err error
					if found, err = r.group(ctx, one, rand.New(rand.NewPCG(uint64(r.Seed), 0))); err != nil {
						return nil, err
					}
				}
				all = append(all, found...)
			}
			groups[i] = strings.Join(all, ",")
		}
		out[name] = strings.Join(groups, "|")
	}
	return out, nil
}

// await waits until find finds somebody.
func (c *campaign) await(find func(*tracker) string) ([]string, error) {
	for {
		c.mu.Lock()
		who := find(&c.tracker)
		changed := c.changed
		c.mu.Unlock()
		if who != "" {
			return []string{who}, nil
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return nil, errors.New("there was nobody of that role until the workload ended")
		}
	}
}

// watchLeader records changes of the leader.
func (c *campaign) watchLeader() {
	last := ""
	for c.sleep(leaderInterval) {
		n, err := leader(c.ctx, c.run.nodes)
		if err != nil || n.Name() == last {
			continue // an election is going on
		}
		if last != "" {
			c.run.rec.Record(history.Event{
				Process: history.Harness, Type: history.Info, F: leaderEvent,
				Value: encode(map[string]string{"from": last, "to": n.Name()}),
			})
		}
		last = n.Name()
	}
}

// end heals all faults and returns when that is done. Nothing more begins.
func (c *campaign) end() {
	c.cancel()
	c.mu.Lock()
	c.over = true
	c.skipped = append(c.skipped, c.unmet()...)
	clear(c.waiting)
	c.mu.Unlock()
	c.busy.Wait()
	if err := c.stopCounting(); err != nil {
		c.fail(err)
	}
}

// outcome returns an error of the kind inconclusive if the run proves nothing,
// and otherwise records what is worth knowing.
func (c *campaign) outcome() error {
	if err := c.doubt(); err != nil {
		return err
	}
	// Not under mu, which observe takes within the recorder.
	for _, s := range c.skipped {
		c.run.remark("not injected: " + s)
	}
	return nil
}

// doubt says why the run proves nothing. The campaign has ended.
func (c *campaign) doubt() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.skipped)
	if err := errors.Join(c.failed...); err != nil {
		return inconclusive{err}
	}
	faults := len(c.run.scenario.Nemesis)
	if c.run.scenario.Workload == nil {
		if len(c.skipped) > 0 {
			return inconclusive{fmt.Errorf("the story was not the one to be told: %s", strings.Join(c.skipped, "; "))}
		}
		return nil
	}
	switch {
	case faults > 0 && c.took == 0:
		return inconclusive{fmt.Errorf("no fault took effect: %s", strings.Join(c.skipped, "; "))}
	case len(c.run.scenario.Clients) > 1 && !c.tracker.contended:
		return inconclusive{errors.New("nobody contended: no acquire was refused, nor asked for a lock that another held")}
	case faults > 0 && !c.tracker.granted:
		return inconclusive{errors.New("no lock was granted after the first fault")}
	}
	return nil
}

// params are the parameters of a fault, in which times may be multiples of the
// TTL: "1.5 ttl", "-2 ttl", also one of several values, as in "100ms,2 ttl".
func params(with map[string]string, ttl time.Duration) map[string]string {
	out := make(map[string]string, len(with))
	for name, value := range with {
		parts := strings.Split(value, ",")
		for i, p := range parts {
			p = strings.TrimSpace(p)
			if !strings.HasSuffix(p, "ttl") {
				continue
			}
			lead, rest := "", p
			if at := strings.LastIndex(strings.TrimSpace(strings.TrimSuffix(p, "ttl")), " "); at >= 0 {
				lead, rest = p[:at+1], p[at+1:] // "slow 0.5 ttl"
			}
			sign := ""
			if r, ok := strings.CutPrefix(rest, "-"); ok {
				sign, rest = "-", r
			}
			if d, err := scenarios.ParseDuration(rest); err == nil {
				parts[i] = lead + sign + d.Of(ttl).String()
			}
		}
		out[name] = strings.Join(parts, ",")
	}
	return out
}

// CheckParams says what is wrong with the parameters of a fault in a scenario, in
// which times may be multiples of the TTL.
func CheckParams(fault string, with map[string]string, ttl time.Duration) error {
	kind, err := nemesis.Find(fault)
	if err == nil {
		_, err = kind.Make(params(with, ttl))
	}
	return err
}

// needs are the powers that the faults and triggers of a scenario need, and whether
// a fault fills a disk. Faults that cannot be injected here need none, as
// injecting them will say.
func needs(sc *scenarios.Scenario) (all []string, full bool) {
	add := func(more ...string) {
		for _, n := range more {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	fault := func(kind string, with map[string]string) {
		full = full || with["full"] != ""
		if k, err := nemesis.Find(kind); err == nil && (k.Available == nil || k.Available() == nil) {
			add(k.Needs...)
		}
	}
	for _, s := range sc.Steps {
		if s.Fault != "" {
			fault(s.Fault, s.With)
		}
	}
	for _, i := range sc.Nemesis {
		fault(i.Fault, i.With)
		if i.Answers > 0 {
			add(nemesis.Links)
		}
	}
	return all, full
}

var _ nemesis.Target = store{}
