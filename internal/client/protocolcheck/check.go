// Package protocolcheck talks to a client program and says what it does wrong,
// line by line: with respect to the protocol, not to the lock behind it.
package protocolcheck

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/nemesis"
)

// Options say whom to talk to.
type Options struct {
	Command  []string            // runs one client
	Servers  []backends.Endpoint // of the lock, which run
	TTL      time.Duration       // lease that a client is to lose; else they ask for a long one
	Patience time.Duration       // how long to wait for an answer; 0 means 10 s
	Dir      string              // folder for the clients' standard error
	Report   func(Line)          // gets each line when it is known
}

// Result is what a line says.
type Result string

const (
	Right   Result = "ok"    // as the protocol has it
	Wrong   Result = "WRONG" // verdicts on such a client would be worth nothing
	Note    Result = "note"  // allowed, and worth a look
	Skipped Result = "-"     // not asked
)

// Line is one thing that was looked at.
type Line struct {
	Result   Result
	What     string   // what the client should do
	Why      string   // what it did instead
	Messages []string // the lines concerned, with an arrow for their direction
}

// ErrStart wraps what kept the client program from being started.
var ErrStart = errors.New("the client cannot be started")

// timing of the checks.
const (
	longTTL   = time.Minute            // no lease may end in the midst of a talk
	wait      = 300 * time.Millisecond // of an acquire that must give up
	early     = 20 * time.Millisecond  // by which it may give up too soon
	slack     = 2 * time.Second        // by which anything may be late
	settle    = 5 * time.Second        // for the service to free a lost lock, beyond its lease
	pollEvery = 20 * time.Millisecond
)

// Run talks to clients of the program and reports lines. The error is that of
// the environment: one that wraps ErrStart, or the context's end.
func Run(ctx context.Context, o Options) error {
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	web, err := newStub()
	if err != nil {
		return err
	}
	defer web.close()
	c := &check{Options: o, ctx: ctx, web: web, key: "protocol-check/" + rand.Text()}
	defer func() {
		for _, p := range c.peers {
			p.end()
		}
	}()
	steps := []struct {
		what string
		do   func(*check)
	}{
		{"open connects", (*check).open},
		{"acquire of a free lock is granted", (*check).acquire},
		{"check says that the holder holds", (*check).holds},
		{"acquire of a lock that another holds fails", (*check).busy},
		{"release by a client that does not hold fails", (*check).release},
		{"acquire gives up when its wait is over", (*check).deadline},
		{"write posts to the resource, once", (*check).write},
		{"read returns what the resource answers", (*check).read},
		{"renew extends the holder's lease", (*check).renew},
		{"acquire of a lock that the client holds is granted", (*check).reentrant},
		{"release by the holder frees the lock", (*check).free},
		{"acquire that waits is granted on release", (*check).handOver},
		{"fields of a later version are ignored", (*check).unknown},
		{"keys may have any characters", (*check).anyKey},
		{"a frozen client goes on when it thaws", (*check).freeze},
		{"close ends the client", (*check).close},
		{"the end of its standard input ends the client", (*check).orphan},
	}
	for i, step := range steps {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		c.what, c.said = step.what, false
		step.do(c)
		if c.err != nil {
			return c.err
		}
		if !c.said && !c.over {
			return fmt.Errorf("nothing was said of: %s", step.what) // a mistake in this package
		}
		if rest := len(steps) - i - 1; c.over && rest > 0 {
			c.what = fmt.Sprintf("%d more", rest)
			c.say(Skipped, "not asked: after that, the client cannot be talked to", nil)
			return nil
		}
	}
	return nil
}

// check is a conversation with two clients, A and B; C and D have short leases.
type check struct {
	Options
	ctx   context.Context
	web   *stub
	key   string
	peers []*peer
	a, b  *peer
	token *int64 // of the grant before this one

	what string // the step
	said bool   // it has a line
	over bool   // no further step makes sense
	err  error  // of the environment
}

func (c *check) say(r Result, why string, messages []string) {
	c.said = true
	if c.Report != nil {
		c.Report(Line{r, c.what, why, messages})
	}
}

func (c *check) wrong(why string, messages []string) { c.say(Wrong, why, messages) }

func (c *check) skip(capability string) {
	c.say(Skipped, fmt.Sprintf("not asked: it does not state %q", capability), nil)
}

// ask returns nil if there is no answer that can be judged; then it has been
// said why.
func (c *check) ask(p *peer, r client.Request) *exchange {
	return c.askWith(p, r, nil)
}

func (c *check) askWith(p *peer, r client.Request, more map[string]any) *exchange {
	if r.F != "open" && r.F != "close" && r.Key == "" {
		r.Key = c.key
	}
	e, err := p.ask(c.ctx, r, more, c.stray(p))
	return c.judge(p, e, err)
}

// judge passes on an answer that can be relied on.
func (c *check) judge(p *peer, e *exchange, err error) *exchange {
	var f *faulty
	switch {
	case errors.As(err, &f):
		c.wrong(p.name+": "+f.why, f.messages)
		c.over = f.fatal
		return nil
	case err != nil:
		c.err = err
		return nil
	case e.ID != p.last:
		return nil // it was wrong, which has been said
	}
	return e
}

func (c *check) stray(p *peer) func(*faulty) {
	return func(f *faulty) { c.wrong(p.name+": "+f.why, f.messages) }
}

// expect says whether the answer has the wanted type.
func (c *check) expect(p *peer, e *exchange, want history.Type, since string) bool {
	if e == nil {
		return false
	}
	if e.Type == want {
		return true
	}
	why := fmt.Sprintf("%s answered %s, want %s: %s", p.name, e.Type, want, since)
	if e.Error != "" {
		why += fmt.Sprintf(" (it says %q)", excerpt([]byte(e.Error)))
	}
	if e.Type == history.Info && want == history.Fail {
		c.say(Note, why+". info is allowed, and makes verdicts less precise", e.messages())
		return false
	}
	c.wrong(why, e.messages())
	return false
}

// right says that a step went well, unless something else was said of it.
func (c *check) right() {
	if !c.said {
		c.say(Right, "", nil)
	}
}

func (c *check) start(name string) *peer {
	p, err := start(name, c.Options)
	if err != nil {
		c.err = fmt.Errorf("%w: %w", ErrStart, err)
		if errors.Is(err, exec.ErrNotFound) {
			c.err = fmt.Errorf("%w: %w (give a path, such as ./%s)", ErrStart, err, c.Command[0])
		}
		return nil
	}
	c.peers = append(c.peers, p)
	return p
}

func (c *check) connect(name string, ttl time.Duration) *peer {
	p := c.start(name)
	if p == nil {
		return nil
	}
	e := c.ask(p, client.Request{F: "open", Protocol: client.Version, Process: name, Servers: c.Servers, TTL: ttl.Milliseconds()})
	if !c.expect(p, e, history.OK, "its servers are up") {
		c.over = true
		return nil
	}
	p.ttl = ttl
	p.can = client.Hello{Name: e.Name, Version: e.Version, Capabilities: e.Capabilities}
	return p
}

func (c *check) open() {
	if c.a = c.connect("A", longTTL); c.a == nil {
		return
	}
	if c.b = c.connect("B", longTTL); c.b == nil {
		return
	}
	if !slices.Equal(c.a.can.Capabilities, c.b.can.Capabilities) {
		c.wrong(fmt.Sprintf("A states the capabilities %q, B %q", c.a.can.Capabilities, c.b.can.Capabilities), nil)
	}
	if c.a.can.Can(client.CanDeadline) && !c.a.can.Can(client.CanLease) {
		c.say(Note, "it states \"deadline\" and not \"lease\": a deadline without a lease protects nobody", nil)
	}
	if !c.said {
		can := strings.Join(c.a.can.Capabilities, ", ")
		c.say(Right, strings.TrimSpace(c.a.can.Name+" "+c.a.can.Version)+": "+cmp.Or(can, "no capabilities"), nil)
	}
}

// grant looks at what a grant states.
func (c *check) grant(p *peer, e *exchange, waited bool) {
	states := func(capability, field string, has bool) {
		switch {
		case p.can.Can(capability) && !has:
			c.wrong(fmt.Sprintf("%s states %q, and its grant has no %s", p.name, capability, field), e.messages())
		case has && !p.can.Can(capability):
			c.say(Note, fmt.Sprintf("%s's grant has %s, and it does not state %q: say so, or properties are not checked", p.name, field, capability), e.messages())
		}
	}
	states(client.CanToken, "token", e.Token != nil)
	states(client.CanDeadline, "valid_ms", e.Valid > 0)
	if e.TTL > 0 {
		states(client.CanLease, "lease_ms", true)
		if lease := time.Duration(e.TTL) * time.Millisecond; lease > 10*p.ttl || 10*lease < p.ttl {
			c.say(Note, fmt.Sprintf("%s's lease is %v, and %v was asked for: is its unit right?", p.name, lease, p.ttl), e.messages())
		}
	} else if !waited { // what is left of a lease after a wait a library may not say
		states(client.CanLease, "lease_ms", false)
	}
	if e.Token != nil && c.token != nil && *e.Token <= *c.token {
		c.wrong(fmt.Sprintf("%s's token %d is not higher than that of the grant before, %d: tokens rise from grant to grant", p.name, *e.Token, *c.token), e.messages())
	}
	if e.Token != nil {
		c.token = e.Token
	}
}

func (c *check) acquire() {
	e := c.ask(c.a, client.Request{F: history.Acquire})
	if !c.expect(c.a, e, history.OK, "the lock is free") {
		c.over = true
		return
	}
	c.grant(c.a, e, false)
	c.right()
}

func (c *check) holds() {
	if !c.a.can.Can(client.CanCheck) {
		c.skip(client.CanCheck)
		return
	}
	if c.checks(c.a, true) {
		c.right()
	}
}

func (c *check) checks(p *peer, want bool) bool {
	e := c.ask(p, client.Request{F: history.Check})
	if !c.expect(p, e, history.OK, "a check is always answered") {
		return false
	}
	if got := string(e.Value); got != fmt.Sprint(want) {
		c.wrong(fmt.Sprintf("%s's check says %s, want %v", p.name, got, want), e.messages())
		return false
	}
	return true
}

func (c *check) busy() {
	if c.expect(c.b, c.ask(c.b, client.Request{F: history.Acquire}), history.Fail, "A holds it, and both cannot") {
		c.right()
	}
}

func (c *check) release() {
	if !c.expect(c.b, c.ask(c.b, client.Request{F: history.Release}), history.Fail, "B never had it") {
		return
	}
	if c.expect(c.b, c.ask(c.b, client.Request{F: history.Acquire}), history.Fail, "A still holds it, whatever B released") {
		c.right()
	}
}

func (c *check) deadline() {
	if !c.b.can.Can(client.CanWait) {
		c.skip(client.CanWait)
		return
	}
	e := c.ask(c.b, client.Request{F: history.Acquire, Wait: wait.Milliseconds()})
	if !c.expect(c.b, e, history.Fail, "A holds it all the time") {
		return
	}
	switch {
	case e.took < wait-early:
		c.wrong(fmt.Sprintf("B gave up after %v, want %v: it states \"wait\"", e.took.Round(time.Millisecond), wait), e.messages())
	case e.took > wait+slack:
		c.wrong(fmt.Sprintf("B gave up after %v, want %v", e.took.Round(time.Millisecond), wait), e.messages())
	}
	c.right()
}

// write tries all that a resource may answer.
func (c *check) write() {
	for _, t := range []struct {
		status int
		want   history.Type
		since  string
	}{
		{200, history.OK, "the resource answered 200"},
		{409, history.Fail, "the resource answered 409, which rejects the write"},
		{500, history.Info, "the resource answered 500: nobody knows whether it was done"},
	} {
		if c.over {
			return
		}
		url := c.web.answer(t.status, "a reason")
		e := c.ask(c.a, client.Request{F: history.Write, URL: url + "&value=v%20%26", Value: "v &", Op: 7})
		got := c.web.requests()
		if !c.expect(c.a, e, t.want, t.since) {
			continue
		}
		if len(got) != 1 {
			c.wrong(fmt.Sprintf("the resource got %d requests, want 1: do not retry", len(got)), e.messages())
			continue
		}
		r := got[0]
		token := r.query.Get("token")
		switch {
		case r.method != "POST":
			c.wrong("the resource got a "+r.method+", want a POST", e.messages())
		case r.query.Get("value") != "v &":
			c.wrong(fmt.Sprintf("the resource got the value %q, want %q: use the url as it is", r.query.Get("value"), "v &"), e.messages())
		case (e.Token != nil || e.Type == history.OK && token != "") && said(e.Token) != token:
			c.wrong(fmt.Sprintf("the resource got the token %q, and the answer says %q", token, said(e.Token)), e.messages())
		case c.a.can.Can(client.CanToken) && c.token != nil && token != fmt.Sprint(*c.token):
			c.wrong(fmt.Sprintf("the write went with the token %q, and the grant's is %d: add &token=N to the url", token, *c.token), e.messages())
		case t.status == 409 && !strings.Contains(e.Error, "a reason"):
			c.say(Note, "the answer does not pass on why the resource rejected the write", e.messages())
		}
	}
	if c.over {
		return
	}
	if e := c.ask(c.a, client.Request{F: history.Write, URL: c.web.nobody(), Value: "v", Op: 7}); e != nil && e.Type == history.OK {
		c.wrong("A answered ok, and nobody was there to write to", e.messages())
	}
	c.right()
}

// said is a token as an answer states it.
func said(token *int64) string {
	if token == nil {
		return ""
	}
	return fmt.Sprint(*token)
}

func (c *check) read() {
	const body = "12 \"ä\""
	e := c.ask(c.a, client.Request{F: history.Read, URL: c.web.answer(200, body), Op: 8})
	got := c.web.requests()
	if !c.expect(c.a, e, history.OK, "the resource answered 200") {
		return
	}
	switch {
	case len(got) != 1 || got[0].method != "GET":
		c.wrong(fmt.Sprintf("the resource got %v, want one GET", got), e.messages())
	case decoded(e.Value) != body:
		c.wrong(fmt.Sprintf("its value is %s, want %q", e.Value, body), e.messages())
	}
	c.right()
}

func (c *check) renew() {
	if !c.a.can.Can(client.CanRenew) {
		c.skip(client.CanRenew)
		return
	}
	e := c.ask(c.a, client.Request{F: history.Renew})
	if !c.expect(c.a, e, history.OK, "A holds it") {
		return
	}
	if e.TTL <= 0 && c.a.can.Can(client.CanLease) {
		c.say(Note, "its renewal states no lease_ms: how long it holds now is unknown", e.messages())
	}
	if c.expect(c.b, c.ask(c.b, client.Request{F: history.Renew}), history.Fail, "B does not hold it") {
		c.right()
	}
}

func (c *check) reentrant() {
	if !c.a.can.Can(client.CanReentrant) {
		c.skip(client.CanReentrant)
		return
	}
	ok := c.expect(c.a, c.ask(c.a, client.Request{F: history.Acquire}), history.OK, `A holds it, and states "reentrant"`) &&
		c.expect(c.a, c.ask(c.a, client.Request{F: history.Release}), history.OK, "it was acquired twice") &&
		c.expect(c.b, c.ask(c.b, client.Request{F: history.Acquire}), history.Fail, "A released it once, and acquired it twice")
	if ok {
		c.right()
	}
}

func (c *check) free() {
	if !c.expect(c.a, c.ask(c.a, client.Request{F: history.Release}), history.OK, "A holds it") {
		return
	}
	if c.a.can.Can(client.CanCheck) && !c.checks(c.a, false) {
		return
	}
	if !c.expect(c.a, c.ask(c.a, client.Request{F: history.Release}), history.Fail, "A has released it already") {
		return
	}
	if c.a.can.Can(client.CanRenew) && !c.expect(c.a, c.ask(c.a, client.Request{F: history.Renew}), history.Fail, "A has released it") {
		return
	}
	e := c.ask(c.b, client.Request{F: history.Acquire})
	if !c.expect(c.b, e, history.OK, "A released it") {
		c.over = true
		return
	}
	c.grant(c.b, e, false)
	c.right()
}

// handOver begins while B holds.
func (c *check) handOver() {
	if !c.a.can.Can(client.CanWait) {
		c.skip(client.CanWait)
		c.done(c.b)
		return
	}
	r := client.Request{F: history.Acquire, Key: c.key, Wait: settle.Milliseconds()}
	begin := time.Now()
	request, err := c.a.send(r, nil)
	if err != nil {
		c.judge(c.a, nil, err)
		return
	}
	c.expect(c.b, c.ask(c.b, client.Request{F: history.Release}), history.OK, "B holds it")
	e, err := c.a.await(c.ctx, r, request, begin, c.stray(c.a))
	e = c.judge(c.a, e, err)
	if !c.expect(c.a, e, history.OK, "B released it while A waited") {
		return
	}
	c.grant(c.a, e, true)
	c.done(c.a)
	c.right()
}

// done has a holder release.
func (c *check) done(p *peer) {
	if !c.over {
		c.expect(p, c.ask(p, client.Request{F: history.Release}), history.OK, p.name+" holds it")
	}
}

// unknown begins while nobody holds.
func (c *check) unknown() {
	more := map[string]any{"later": map[string]any{"f": "x", "key": 7}, "soft": true}
	e := c.askWith(c.a, client.Request{F: history.Acquire}, more)
	if !c.expect(c.a, e, history.OK, "the lock is free") {
		return
	}
	c.grant(c.a, e, false)
	if c.expect(c.a, c.askWith(c.a, client.Request{F: history.Release}, more), history.OK, "A holds it") {
		c.right()
	}
}

func (c *check) anyKey() {
	token := c.token
	defer func() { c.token = token }() // those of other keys have an order of their own
	c.token = nil
	key := c.key + `/a "b" ä`
	if c.expect(c.a, c.ask(c.a, client.Request{F: history.Acquire, Key: key}), history.OK, "the lock is free") &&
		c.expect(c.b, c.ask(c.b, client.Request{F: history.Acquire, Key: key}), history.Fail, "A holds it") &&
		c.expect(c.a, c.ask(c.a, client.Request{F: history.Release, Key: key}), history.OK, "A holds it") {
		c.right()
	}
}

// freeze begins while nobody holds. A leased lock is lost to another meanwhile.
func (c *check) freeze() {
	holder := c.connect("C", c.TTL)
	if holder == nil {
		return
	}
	rival := c.connect("D", c.TTL)
	if rival == nil {
		return
	}
	e := c.ask(holder, client.Request{F: history.Acquire})
	if !c.expect(holder, e, history.OK, "the lock is free") {
		return
	}
	lease := max(c.TTL, time.Duration(e.TTL)*time.Millisecond)
	c.grant(holder, e, false)
	pause, err := frozen(c.ctx, holder)
	if err != nil {
		c.err = err
		return
	}
	// What is asked of a frozen client waits for it.
	read := client.Request{F: history.Read, Key: c.key, URL: c.web.answer(200, "late"), Op: 9}
	begin := time.Now()
	request, sendErr := holder.send(read, nil)
	lost := false
	if sendErr == nil && holder.can.Can(client.CanLease) {
		lost = c.takeOver(rival, lease)
	}
	// A program that ends as soon as it goes on, since its session is gone, makes
	// Heal complain. What does not go on gives no answer, which is told below.
	_, _ = pause.Heal(context.WithoutCancel(c.ctx))
	if c.err != nil || c.over {
		return
	}
	if sendErr != nil {
		c.judge(holder, nil, sendErr)
		return
	}
	e, err = holder.await(c.ctx, read, request, begin, c.stray(holder))
	c.web.requests()
	if e = c.judge(holder, e, err); !c.expect(holder, e, history.OK, "the resource answered 200") {
		return
	}
	if !lost {
		c.done(holder)
	} else {
		c.afterLoss(holder, e.lost)
	}
	c.right()
}

// frozen freezes a client. A program that it had started may just end while that
// is done: then it is tried again.
func frozen(ctx context.Context, p *peer) (nemesis.Fault, error) {
	kind, err := nemesis.Find("pause")
	if err != nil {
		return nil, err
	}
	const tries = 5
	for try := 1; ; try++ {
		pause, err := kind.New(nil)
		if err != nil {
			return nil, err
		}
		if _, err = pause.Inject(ctx, []nemesis.Target{p}); err == nil {
			return pause, nil
		}
		// Heal complains of the one that ended, too, and lets the others go on.
		if _, healErr := pause.Heal(context.WithoutCancel(ctx)); try == tries {
			return nil, errors.Join(err, healErr)
		}
	}
}

// takeOver has the rival acquire what the holder is frozen with.
func (c *check) takeOver(rival *peer, lease time.Duration) bool {
	for end := time.Now().Add(lease + settle); time.Now().Before(end); {
		next := time.After(pollEvery)
		e := c.ask(rival, client.Request{F: history.Acquire})
		if e == nil || c.err != nil || c.over {
			return false
		}
		if e.Type == history.OK {
			c.grant(rival, e, false)
			return true
		}
		<-next
	}
	c.say(Note, fmt.Sprintf("it states \"lease\", and its lock was not free %v after its lease of %v", settle, lease), nil)
	return false
}

// afterLoss asks a holder what it makes of a lock that is another's by now.
func (c *check) afterLoss(holder *peer, told bool) {
	if holder.can.Can(client.CanNotify) && !told && !c.notice(holder) {
		c.wrong(fmt.Sprintf("C states \"lost\", and sent no notice within %v after it had lost the lock and thawed", settle), nil)
	}
	e := c.ask(holder, client.Request{F: history.Release})
	switch {
	case e == nil:
	case e.Type == history.OK:
		c.say(Note, "C's release of the lock that it had lost says ok: if the library can tell, answer fail; if not, this is a finding about it", e.messages())
	case e.Type == history.Info:
		c.say(Note, "C's release of the lock that it had lost says info: fail, if the library can tell", e.messages())
	}
}

// notice waits for a loss notice that came without an answer.
func (c *check) notice(p *peer) bool {
	timeout := time.NewTimer(settle)
	defer timeout.Stop()
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				return false
			}
			if err := client.Validate(client.LostNote, line); err == nil {
				return true
			}
			c.wrong(p.name+" wrote a line that nobody asked for", []string{"← " + excerpt(line)})
		case <-timeout.C:
			return false
		case <-c.ctx.Done():
			c.err = context.Cause(c.ctx)
			return false
		}
	}
}

func (c *check) close() {
	if !c.expect(c.a, c.ask(c.a, client.Request{F: "close"}), history.OK, "close always works") {
		return
	}
	if !c.a.awaitExit(slack) {
		c.wrong(fmt.Sprintf("A still runs %v after it answered close", slack), nil)
		return
	}
	if how := c.a.how(); how != "exit status 0" {
		c.say(Note, "A exited with "+how, nil)
	}
	if c.a.left {
		c.say(Note, "A left a process behind when it exited", nil)
	}
	for _, line := range c.a.end() {
		c.wrong("A wrote a line that nobody asked for", []string{"← " + excerpt(line)})
	}
	c.peers = slices.DeleteFunc(c.peers, func(p *peer) bool { return p == c.a })
	c.right()
}

func (c *check) orphan() {
	c.b.stdin.Close()
	if !c.b.awaitExit(slack) {
		c.wrong(fmt.Sprintf("B still runs %v after its standard input ended: the harness is gone then", slack), nil)
	}
	c.right()
}
