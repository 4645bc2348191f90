// Package gen makes histories of simulated locks, in virtual time and without
// servers: correct ones, and ones with a flaw of a known kind.
package gen

import (
	"container/heap"
	"fmt"
	"math/rand/v2"

	"github.com/lockcheck/lockcheck/history"
)

// Flaw is what is wrong with the simulated lock, or with the resource behind it.
type Flaw int

const (
	None         Flaw = iota
	GrantsTwice       // a lock is granted while another client holds it
	ExpiresEarly      // a lease ends at half its time
	RepeatsToken      // two grants get the same token
	LowersToken       // a grant gets a lower token than one before
	DeletesOther      // a release frees the lock whoever holds it
	AcceptsStale      // the resource accepts any write
)

// Flaws lists the flaws.
func Flaws() []Flaw {
	return []Flaw{GrantsTwice, ExpiresEarly, RepeatsToken, LowersToken, DeletesOther, AcceptsStale}
}

func (f Flaw) String() string {
	return [...]string{"none", "grants twice", "expires early", "repeats a token", "lowers a token", "deletes another's lock", "accepts stale writes"}[f]
}

// Config says what to simulate. Times are in nanoseconds.
type Config struct {
	Ops     int // lock operations, about
	Clients int
	Keys    int // 0 means 1
	Seed    uint64
	// Unknown is the share of operations whose outcome the client never
	// learns: half of these requests are lost, half of them take effect.
	Unknown float64
	TTL     int64 // lease, 0 for none
	Renew   bool  // holders renew at a third of the lease
	Tokens  bool  // grants carry tokens
	Try     bool  // a taken lock is refused at once; else acquires wait
	// Deadline has clients stop to believe when their lease may have ended.
	Deadline bool
	// Dawdle is the share of holds that go on after the lease.
	Dawdle float64
	Writes bool // holders write to a resource, which keeps the highest token
	// Late is the share of writes that reach the resource long after the
	// client gave up on them.
	Late float64
	Flaw Flaw
	// Plant grants one lock, about halfway, to a second client.
	Plant bool
}

// Times of the simulation: a message, a hold and a pause between two holds take
// up to twice as long as these.
const (
	message = 1_000
	section = 20_000
	pause   = 10_000
)

// margin is how long before the end of a lease a client lets go.
const margin = 8 * message

// Lease is a lease that holds of the simulation fit into.
const Lease = 6 * section

type kind uint8

const (
	wake   kind = iota // a client acts
	arrive             // a request arrives at the lock service
	answer             // an answer arrives at a client
	expire             // a lease may have ended
	apply              // a write arrives at the resource
)

type event struct {
	time   int64
	serial int64
	kind   kind
	client int32
	op     int32 // index in Ops; of expire the key
	grant  int64 // of expire: the grant it belongs to
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].time < q[j].time || q[i].time == q[j].time && q[i].serial < q[j].serial
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any     { o := *q; n := len(o) - 1; x := o[n]; *q = o[:n]; return x }

// lock is one lock at the service.
type lock struct {
	holder  int32 // client, -1 if free
	second  int32 // client that holds it as well, by a flaw, -1
	grant   int64 // counts grants
	expiry  int64
	token   int64
	waiters []int32 // requests
	highest int64   // token that the resource has seen
}

// fate is what becomes of a request whose outcome stays unknown.
type fate uint8

const (
	known fate = iota
	lost
	unanswered
)

type clientState struct {
	holding bool
	dawdles bool  // it goes on after the end of its lease
	waiting int32 // operation that it waits for, -1
	key     int32
	until   int64 // end of its work
	lease   int64 // end of its lease as it knows it
	token   int64
}

type sim struct {
	Config
	rng     *rand.Rand
	h       *history.History
	q       queue
	now     int64
	last    int64 // last stamp
	index   int32
	serial  int64
	locks   []lock
	clients []clientState
	fates   []fate
	granted []int64 // by operation: token of the grant, or -1 if refused
	planted bool
	term    int32
}

// History simulates.
func History(c Config) *history.History {
	c.Keys = max(c.Keys, 1)
	s := &sim{Config: c, rng: rand.New(rand.NewPCG(c.Seed, 1)), planted: !c.Plant}
	s.h = &history.History{
		Ops:    make([]history.Op, 0, c.Ops+c.Clients),
		Terms:  []history.Term{{}, {TTL: c.TTL}},
		Errors: []string{"", "not held"},
	}
	s.term = 1
	s.locks = make([]lock, c.Keys)
	for i := range s.locks {
		s.locks[i] = lock{holder: -1, second: -1}
		s.h.Keys = append(s.h.Keys, fmt.Sprintf("k%d", i))
	}
	s.clients = make([]clientState, c.Clients)
	for i := range s.clients {
		s.clients[i].waiting = -1
		s.h.Processes = append(s.h.Processes, fmt.Sprintf("c%d", i))
		s.at(s.some(pause), event{kind: wake, client: int32(i)})
	}
	for len(s.q) > 0 {
		e := heap.Pop(&s.q).(event)
		s.now = max(s.now, e.time)
		switch e.kind {
		case wake:
			s.act(e.client)
		case arrive:
			s.serve(e.op)
		case answer:
			s.answered(e.client, e.op)
		case expire:
			if l := &s.locks[e.op]; l.holder >= 0 && l.grant == e.grant {
				if s.now < l.expiry {
					s.at(l.expiry-s.now, e)
				} else {
					s.free(e.op)
				}
			}
		case apply:
			s.applied(e.op)
		}
	}
	s.h.Events = int64(s.index)
	return s.h
}

func (s *sim) some(mean int64) int64 { return 1 + s.rng.Int64N(2*mean) }

func (s *sim) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

func (s *sim) at(after int64, e event) {
	s.serial++
	e.time, e.serial = s.now+after, s.serial
	heap.Push(&s.q, e)
}

// stamp is the time and the index of an event that is recorded now.
func (s *sim) stamp() (int64, int32) {
	s.last = max(s.last+1, s.now)
	s.index++
	return s.last, s.index - 1
}

// act has a client do what it does next.
func (s *sim) act(i int32) {
	c := &s.clients[i]
	switch {
	case c.waiting >= 0: // it gives up on an answer
		op := &s.h.Ops[c.waiting]
		_, op.RetIndex = s.stamp()
		c.waiting = -1
		if op.Kind == history.KindRenew || op.Kind == history.KindWrite {
			s.at(s.some(message), event{kind: wake, client: i})
			return
		}
		c.holding = false
		s.at(s.some(pause), event{kind: wake, client: i})
	case !c.holding:
		if len(s.h.Ops) >= s.Ops {
			return
		}
		c.key = int32(s.rng.IntN(s.Keys))
		s.invoke(i, history.KindAcquire)
	case s.now >= c.until || s.now >= c.lease-margin && !c.dawdles || len(s.h.Ops) >= s.Ops:
		c.holding = false
		s.invoke(i, history.KindRelease)
	case s.Writes && s.now < c.lease-margin && s.rng.IntN(2) == 0:
		s.invoke(i, history.KindWrite)
	case s.Renew && s.now < c.lease-margin:
		s.invoke(i, history.KindRenew)
	case c.dawdles:
		s.at(c.until-s.now, event{kind: wake, client: i})
	default:
		s.at(min(c.until, c.lease-margin)-s.now, event{kind: wake, client: i})
	}
}

// invoke sends a request.
func (s *sim) invoke(i int32, k history.Kind) {
	c := &s.clients[i]
	t, index := s.stamp()
	n := int32(len(s.h.Ops))
	op := history.Op{Call: t, Ret: history.Never, Process: i, Key: c.key, Index: index, RetIndex: -1, Value: -1, Kind: k}
	if k == history.KindWrite && s.Tokens {
		op.Token, op.HasToken = c.token, true
	}
	s.h.Ops = append(s.h.Ops, op)
	f := known
	if s.chance(s.Unknown) {
		f = lost + fate(s.rng.IntN(2))
		if s.TTL == 0 && k == history.KindAcquire {
			f = lost // nobody would ever free it
		} else if s.TTL == 0 {
			f = unanswered
		}
	}
	s.fates = append(s.fates, f)
	s.granted = append(s.granted, 0)
	c.waiting = n
	delay := s.some(message)
	to := arrive
	if k == history.KindWrite {
		to = apply
		if s.chance(s.Late) {
			f, delay = unanswered, delay+10*section
			s.fates[n] = f
		}
	}
	if f != lost {
		s.at(delay, event{kind: to, op: n})
	}
	if f != known {
		s.at(4*message, event{kind: wake, client: i})
	}
}

// serve has the lock service answer a request.
func (s *sim) serve(n int32) {
	op := &s.h.Ops[n]
	l := &s.locks[op.Key]
	switch op.Kind {
	case history.KindAcquire:
		switch {
		case l.holder < 0:
			s.grant(l, n)
		case s.twice(l, op, n):
			l.second = op.Process
			l.token++
			s.granted[n] = l.token
			s.reply(n)
		case s.Try:
			s.granted[n] = -1
			s.reply(n)
		case s.fates[n] == known:
			l.waiters = append(l.waiters, n)
		}
	case history.KindRenew:
		if l.holder == op.Process {
			l.expiry = s.now + s.TTL
		} else {
			s.granted[n] = -1
		}
		s.reply(n)
	case history.KindRelease:
		switch {
		case l.second == op.Process:
			l.second = -1
		case l.holder == op.Process || s.Flaw == DeletesOther && l.holder >= 0:
			s.free(op.Key)
		default:
			s.granted[n] = -1
		}
		s.reply(n)
	}
}

// twice says whether a lock that is held is granted nevertheless.
func (s *sim) twice(l *lock, op *history.Op, n int32) bool {
	c := &s.clients[l.holder]
	sure := c.holding && c.waiting < 0 && c.key == op.Key && min(c.until, c.lease) > s.now+3*message && l.second < 0
	if !sure || op.Process == l.holder || s.fates[n] != known {
		return false
	}
	if !s.planted && len(s.h.Ops) >= s.Ops/2 {
		s.planted = true
		return true
	}
	return s.Flaw == GrantsTwice && s.rng.IntN(4) == 0
}

// grant gives a free lock to a request.
func (s *sim) grant(l *lock, n int32) {
	op := &s.h.Ops[n]
	l.holder = op.Process
	l.grant++
	l.token++
	s.granted[n] = l.token
	switch {
	case s.Flaw == RepeatsToken && l.token > 1 && s.rng.IntN(4) == 0:
		l.token--
		s.granted[n] = l.token
	case s.Flaw == LowersToken && l.token > 3 && s.rng.IntN(4) == 0:
		// Half of a token that was given, so that it does not repeat one.
		s.granted[n] = -1 - l.token
	}
	if s.TTL > 0 {
		ttl := s.TTL
		if s.Flaw == ExpiresEarly {
			ttl /= 2
		}
		l.expiry = s.now + ttl
		s.at(ttl+s.some(message), event{kind: expire, op: op.Key, grant: l.grant})
	}
	s.reply(n)
}

// free ends a hold and grants the lock to a waiter.
func (s *sim) free(key int32) {
	l := &s.locks[key]
	l.holder = -1
	for l.holder < 0 && len(l.waiters) > 0 {
		i := s.rng.IntN(len(l.waiters))
		n := l.waiters[i]
		l.waiters[i] = l.waiters[len(l.waiters)-1]
		l.waiters = l.waiters[:len(l.waiters)-1]
		s.grant(l, n)
	}
}

// reply sends an answer, unless it is lost.
func (s *sim) reply(n int32) {
	if s.fates[n] == known {
		s.at(s.some(message), event{kind: answer, client: s.h.Ops[n].Process, op: n})
	}
}

// answered has a client read an answer.
func (s *sim) answered(i, n int32) {
	op, c := &s.h.Ops[n], &s.clients[i]
	c.waiting = -1
	op.Ret, op.RetIndex = s.stamp()
	op.Outcome = history.Done
	if s.granted[n] == -1 {
		op.Outcome, op.Error = history.Failed, 1
	}
	switch {
	case op.Kind == history.KindAcquire && op.Outcome == history.Done:
		s.begin(c, op, s.granted[n])
		s.at(s.some(section/4), event{kind: wake, client: i})
		return
	case op.Kind == history.KindRenew && op.Outcome == history.Done:
		s.promise(c, op)
		s.at(min(s.some(section), s.TTL/3), event{kind: wake, client: i})
		return
	case op.Kind == history.KindWrite:
		s.at(s.some(section/4), event{kind: wake, client: i})
		return
	}
	c.holding = false
	s.at(s.some(pause), event{kind: wake, client: i})
}

// begin starts a client's hold.
func (s *sim) begin(c *clientState, op *history.Op, token int64) {
	c.holding, c.token = true, token
	if s.Tokens {
		if token < -1 {
			c.token = -token / 2
		}
		op.Token, op.HasToken = 2*c.token, true
		if token < -1 {
			op.Token++
		}
		c.token = op.Token
	}
	c.until = s.now + s.some(section)
	c.lease, c.dawdles = never, false
	if s.TTL > 0 {
		s.promise(c, op)
		switch {
		case s.chance(s.Dawdle):
			c.until, c.dawdles = c.lease+2*margin+s.some(section), true
			c.lease = min(c.lease, s.now) // it neither writes nor renews any more
		case s.Renew:
			c.until = s.now + s.some(s.TTL)
		case s.Flaw == ExpiresEarly:
			c.until = c.lease // it holds for all of the time that it was promised
		}
	}
}

// promise notes the lease that an answer states. The client stops to believe
// where it may have ended, if it keeps a deadline.
func (s *sim) promise(c *clientState, op *history.Op) {
	op.Term = s.term
	c.lease = op.Call + s.TTL
	if s.Deadline {
		op.Term = int32(len(s.h.Terms))
		s.h.Terms = append(s.h.Terms, history.Term{TTL: s.TTL, Until: c.lease})
	}
}

// applied has the resource take a write.
func (s *sim) applied(n int32) {
	op := &s.h.Ops[n]
	l := &s.locks[op.Key]
	t, index := s.stamp()
	ok := !s.Tokens || s.Flaw == AcceptsStale || op.Token >= l.highest
	if ok {
		l.highest = max(l.highest, op.Token)
	} else {
		s.granted[n] = -1
	}
	s.h.Applied = append(s.h.Applied, history.Applied{
		Time: t, Token: op.Token, HasToken: op.HasToken, Client: op.Process, Key: op.Key, Op: op.Index, Index: index, Value: -1,
		Kind: history.KindWrite, Accepted: ok,
	})
	s.reply(n)
}

const never = history.Never
