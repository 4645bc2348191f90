package harness

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
	"github.com/lockcheck/lockcheck/scenarios"
)

// trigger is the moment at which an injection begins, as far as it is an event.
type trigger struct {
	when, by string
	nth      int
	seen     int
	tallies  map[string]*proxy.Tally // by client, if answers are counted
}

func newTrigger(i scenarios.Injection) *trigger {
	return &trigger{when: i.When, by: i.By, nth: max(i.Nth, 1)}
}

// fires reports whether the event is the one that the trigger waits for. It
// counts events, so each is to be shown to it once, in order.
func (t *trigger) fires(e history.Event) bool {
	return is(t.when, e) && t.count(e.Process)
}

// firesBefore reports whether what the client is about to ask for is what the
// trigger waits for. It counts as fires does.
func (t *trigger) firesBefore(client, operation string) bool {
	return t.when == "before-"+operation && t.count(client)
}

func (t *trigger) count(client string) bool {
	if t.seen >= t.nth || t.by != "" && t.by != client {
		return false
	}
	t.seen++
	return t.seen == t.nth
}

// is reports whether an event is of a kind that scenarios.Moments names.
func is(moment string, e history.Event) bool {
	switch e.Process {
	case history.Nemesis, history.Resource, history.Observer:
		return false
	case history.Harness:
		return moment == "leader" && e.F == leaderEvent
	}
	switch moment {
	case "grant":
		return e.F == history.Acquire && e.Type == history.OK
	case "check":
		return e.F == history.Check && e.Type == history.OK
	case "lost":
		return e.F == history.Lost
	case "acquire", "renew", "write", "release":
		return e.F == moment && e.Type == history.Invoke
	case "operation":
		return e.Type == history.Invoke
	}
	return false
}

// ends reports whether an event is of a kind that scenarios.Ends names.
func ends(moment string, e history.Event) bool {
	switch moment {
	case "grant", "leader":
		return is(moment, e)
	case "renew", "write", "release":
		return e.F == moment && e.Type == history.OK && e.Process != history.Resource && e.Process != history.Nemesis
	}
	return false
}

// answered reports whether an event that fires a trigger leaves the client free
// to wait with its next step.
func answered(e history.Event) bool {
	return e.Process != history.Harness && e.Type == history.OK
}

// cue is what an entry of a nemesis begins with.
type cue struct {
	client string        // whose event it was, "" for none
	gate   chan struct{} // closed when the client may go on; nil if it does not wait
	tally  *proxy.Tally  // of the answers to its acquire; nil if they are not counted
	ended  chan struct{} // closed when that acquire has ended
}

// tallies readies the counting of answers to the clients' acquires, for a trigger
// that is n answers into one.
func (c *campaign) tallies(i scenarios.Injection) (map[string]*proxy.Tally, error) {
	mesh := c.run.powers.mesh
	if mesh == nil {
		return nil, errors.New("answers are counted by proxies: use the network proxy")
	}
	clients := c.run.scenario.Clients
	if i.By != "" {
		clients = []string{i.By}
	}
	all := map[string]*proxy.Tally{}
	for _, name := range clients {
		var asked []string
		for _, l := range mesh.Links() {
			if l.Source == name && slices.Contains(c.run.serverNames(), l.Target) {
				asked = append(asked, l.Target)
			}
		}
		t, err := mesh.Tally(name, asked, i.Answers)
		c.counting = append(c.counting, t)
		if err != nil {
			return nil, err
		}
		all[name] = t
	}
	return all, nil
}

// stopCounting ends all tallies.
func (c *campaign) stopCounting() error {
	var errs []error
	for _, t := range c.counting {
		errs = append(errs, t.End())
	}
	return errors.Join(errs...)
}

// counted waits until as many servers have answered the acquire as the entry asks
// for, if it does. The error says why they have not.
func (c *campaign) counted(q cue) error {
	if q.tally == nil {
		return nil
	}
	select {
	case <-q.tally.Reached():
	case <-q.ended:
	case <-c.ctx.Done():
	}
	select {
	case <-q.tally.Reached(): // perhaps at once with another
	default:
		return fmt.Errorf("%s's acquire ended after %d answers", q.client, q.tally.Answered())
	}
	c.run.rec.Record(history.Event{
		Process: history.Harness, Type: history.Info, F: answersEvent,
		Value: encode(map[string]any{"to": q.client, "answers": q.tally.Answered()}),
	})
	return nil
}

// during lets the other answers go on, and returns an error if the acquire ended
// before the fault was in effect.
func (q cue) during() error {
	if q.tally == nil {
		return nil
	}
	var err error
	select {
	case <-q.ended:
		err = inconclusive{fmt.Errorf("%s's acquire ended before the fault was in effect", q.client)}
	default:
	}
	return errors.Join(err, q.tally.End())
}

// acquireEnded tells entries that wait for answers that there will be none.
func (c *campaign) acquireEnded(client string) {
	if ended := c.acquires[client]; ended != nil {
		close(ended)
		delete(c.acquires, client)
	}
}

// acquireBegan returns the cue of an acquire whose answers are counted.
func (c *campaign) acquireBegan(t *trigger, e history.Event) cue {
	tally := t.tallies[e.Process]
	tally.Start(e.Key)
	if c.acquires[e.Process] == nil {
		c.acquires[e.Process] = make(chan struct{})
	}
	return cue{client: e.Process, tally: tally, ended: c.acquires[e.Process]}
}

// unmet says of the entries that still wait that their moment did not come.
func (c *campaign) unmet() []string {
	var all []string
	for _, n := range slices.Sorted(maps.Keys(c.waiting)) {
		i := c.run.scenario.Nemesis[n]
		all = append(all, entryWhy(i, fmt.Sprintf("its moment (%s) did not come %d times", i.When, i.Nth)))
	}
	return all
}
