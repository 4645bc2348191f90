package proxy

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// gateType is the name that the gate has among toxiproxy's toxics.
const gateType = "lockcheck_gate"

func init() { toxics.Register(gateType, new(gate)) }

// holdLimit bounds what one direction of one connection holds. Beyond it the
// proxy stops reading, and the sender's socket buffer fills up, as it would
// if the network swallowed its packets.
const holdLimit = 1 << 20

// rateQueue is how many bytes wait at most to go through a narrow link.
const rateQueue = 16 << 10

// gate is the toxic that each direction of each connection goes through, its only
// one, from first to last: adding and removing toxiproxy's own while bytes
// are on their way may lose some of them. It lets bytes and the end of the stream
// pass, at a pace, holds them, or drops them, as it is told. Order is
// kept always: what follows something held is held, and nothing that follows
// something dropped ever arrives, as in TCP.
//
// Its fields belong to the goroutine that runs Pipe, except where said.
type gate struct {
	control chan orders   // received until done is closed
	kill    chan struct{} // closed when the connection was cut off for good
	done    chan struct{} // closed when the stream has ended
	count   *counters     // of the link's direction
	caught  func()        // called whenever something was held or dropped

	orders orders
	queue  []item
	queued int       // bytes in queue
	held   int       // how many of queue were counted as held
	ended  bool      // the end of the stream is in queue, or was dropped
	dead   bool      // the connection was cut off: nothing goes anywhere
	next   []byte    // the piece of the head that goes next, nil if not planned
	due    time.Time // when it goes
	free   time.Time // when the piece before it is through

	aborted atomic.Bool  // the sender reset the connection; any goroutine may set it
	stopped atomic.Int64 // bytes held or dropped so far; the end counts one; any goroutine may read it
	lost    atomic.Bool  // something was dropped: the stream has a gap; any goroutine may read it
}

// item is something that travels.
type item struct {
	data []byte // nil is the end of the stream
	at   time.Time
}

// size counts the end of the stream as a byte.
func (i item) size() int64 { return max(1, int64(len(i.data))) }

// orders are what a gate is to do.
type orders struct {
	rules []rule
	pace  Pace
}

// rule is one fault's say on one direction of one connection.
type rule struct {
	id    int
	mode  Mode
	match func([]byte) bool // nil matches everything

	judged bool // match has seen the head of the queue
	hit    bool // match said yes: everything from there on is concerned
}

// init readies a gate that toxiproxy made, before the first Pipe.
func (g *gate) init(count *counters, caught func(), first orders, kill chan struct{}) {
	g.control = make(chan orders)
	g.kill = kill
	g.done = make(chan struct{})
	g.count = count
	g.caught = caught
	g.orders = first
}

// obey replaces the orders. When it returns, nothing that they stop passes any more.
func (g *gate) obey(o orders) {
	select {
	case g.control <- o:
	case <-g.done:
	}
}

// Pipe implements toxics.Toxic.
func (g *gate) Pipe(stub *toxics.ToxicStub) {
	defer close(g.done)
	defer stub.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		mode := g.mode()
		g.account(mode)
		if mode == Drop || g.dead {
			g.queue, g.queued, g.held, g.next = nil, 0, 0, nil
		}
		if g.dead && g.ended {
			return
		}

		var out chan<- *stream.StreamChunk
		var chunk *stream.StreamChunk
		var tick <-chan time.Time
		if mode == Pass && len(g.queue) > 0 {
			wait := g.plan()
			switch {
			case wait > 0:
				timer.Reset(wait)
				tick = timer.C
			case g.queue[0].data == nil:
				return
			default:
				out, chunk = stub.Output, &stream.StreamChunk{Data: g.next}
			}
		}
		in := stub.Input
		if g.ended || g.queued >= g.room(mode) {
			in = nil
		}

		select {
		case o := <-g.control:
			g.replace(o)
		case <-g.kill:
			g.kill, g.dead = nil, true
		case <-tick:
		case out <- chunk:
			g.sent()
		case c := <-in:
			i := item{at: time.Now()}
			if c == nil {
				g.ended = true
				if mode == Hold && g.aborted.Load() {
					g.forget()
				}
			} else {
				i.data = c.Data
			}
			g.queue = append(g.queue, i)
			g.queued += len(i.data)
		}
	}
}

// mode returns what the strictest rule says of the head of the queue.
func (g *gate) mode() Mode {
	switch {
	case g.dead:
		return Pass
	case g.lost.Load():
		return Drop
	}
	strictest := Pass
	for i := range g.orders.rules {
		r := &g.orders.rules[i]
		if r.match != nil && !r.hit && !r.judged && len(g.queue) > 0 {
			r.judged = true
			r.hit = r.match(g.queue[0].data)
		}
		if r.match == nil || r.hit {
			strictest = max(strictest, r.mode)
		}
	}
	return strictest
}

// account counts what is in the queue as held or dropped, each once.
func (g *gate) account(mode Mode) {
	if mode == Pass || len(g.queue) == 0 {
		return
	}
	var stopped int64
	for i, it := range g.queue {
		if i >= g.held {
			stopped += it.size()
			if mode == Hold {
				g.count.held.Add(int64(len(it.data)))
			}
		}
		if mode == Drop {
			g.count.dropped.Add(int64(len(it.data)))
			g.lost.Store(true)
		}
	}
	g.held = len(g.queue)
	if stopped > 0 {
		g.stopped.Add(stopped)
		g.caught()
	}
}

// forget drops what is held, since its sender reset the connection: it would not
// send any of it again.
func (g *gate) forget() {
	g.count.dropped.Add(int64(g.queued))
	g.queue, g.queued, g.held, g.next = nil, 0, 0, nil
}

// plan decides which part of the head goes next, and returns how long it has to
// wait still.
func (g *gate) plan() time.Duration {
	head, p := g.queue[0], g.orders.pace
	if p == (Pace{}) {
		g.next = head.data
		return 0
	}
	if g.next == nil {
		g.next = head.data[:min(len(head.data), p.piece())]
		g.due = p.due(head.at, g.free, len(g.next))
	}
	return time.Until(g.due)
}

// sent takes what was sent out of the queue.
func (g *gate) sent() {
	n := len(g.next)
	g.count.passed.Add(int64(n))
	g.queued -= n
	g.free = g.due.Add(g.orders.pace.Pause)
	g.next = nil
	if n < len(g.queue[0].data) {
		g.queue[0].data = g.queue[0].data[n:]
		return
	}
	g.queue = g.queue[1:]
	g.held = max(0, g.held-1)
	for i := range g.orders.rules {
		g.orders.rules[i].judged = false
	}
}

// replace takes over new orders. Rules that were there already keep what they
// have seen of the stream.
func (g *gate) replace(o orders) {
	for i := range o.rules {
		for _, old := range g.orders.rules {
			if old.id == o.rules[i].id {
				o.rules[i] = old
			}
		}
	}
	g.orders = o
	g.next, g.free = nil, time.Time{}
}

// room returns how many bytes the queue may have before nothing more is read.
func (g *gate) room(mode Mode) int {
	switch {
	case mode == Hold || g.orders.pace.Delay > 0:
		return holdLimit
	case g.orders.pace.Rate > 0:
		return rateQueue
	}
	return 1
}

// A Matcher makes functions that tell, chunk by chunk, whether a stream has come
// to what a fault is after; each stream gets a function of its own.
type Matcher func() func(chunk []byte) bool

// Containing matches streams from where they contain pattern, in upper or lower
// case, also where it is spread over several chunks (the first of which has then
// passed).
//
// It sees what is on the wire: it can't see through TLS, nor through the
// compressed headers of HTTP/2, which etcd speaks. A script that Redis runs by
// its hash (EVALSHA) is known by that hash only.
func Containing(pattern string) Matcher {
	want := bytes.ToLower([]byte(pattern))
	return func() func([]byte) bool {
		var tail []byte
		return func(chunk []byte) bool {
			seen := append(tail, bytes.ToLower(chunk)...)
			tail = bytes.Clone(seen[max(0, len(seen)-len(want)+1):])
			return bytes.Contains(seen, want)
		}
	}
}
