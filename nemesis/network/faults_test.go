package network_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

// node is a target of faults.
type node struct {
	name string
	mesh *proxy.Mesh
}

func (n node) Name() string       { return n.name }
func (n node) Links() *proxy.Mesh { return n.mesh }

var _ network.Linked = node{}

// world is clients A and B, and three servers that talk to each other too, all
// echoes, with a connection open on every link.
type world struct {
	mesh  *proxy.Mesh
	conns map[proxy.Link]*line
	addrs map[proxy.Link]string
}

type line struct {
	net.Conn
	in *bufio.Reader
	n  int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	mesh, err := proxy.NewMesh()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{mesh: mesh, conns: map[proxy.Link]*line{}, addrs: map[proxy.Link]string{}}
	t.Cleanup(func() {
		for _, c := range w.conns {
			c.Close()
		}
		if err := mesh.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, server := range []string{"n1", "n2", "n3"} {
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); io.Copy(c, c) }()
			}
		}()
		for _, source := range []string{"A", "B", "n1", "n2", "n3"} {
			if source == server {
				continue
			}
			l := proxy.Link{Source: source, Target: server}
			if w.addrs[l], err = mesh.Listen(source, server, ln.Addr().String()); err != nil {
				t.Fatal(err)
			}
			w.dial(t, l)
		}
	}
	return w
}

func (w *world) dial(t testing.TB, l proxy.Link) {
	t.Helper()
	c, err := net.Dial("tcp", w.addrs[l])
	if err != nil {
		t.Fatal(l, err)
	}
	w.conns[l] = &line{Conn: c, in: bufio.NewReader(c)}
	if got := w.talk(t, l); got != "works" {
		t.Fatalf("%s at first: %s", l, got)
	}
}

// talk says something on a link, and returns "works", "up" or "down" for where it
// is stopped, or "ended".
func (w *world) talk(t testing.TB, l proxy.Link) string {
	t.Helper()
	c := w.conns[l]
	stopped := func() (up, down int64) {
		s, err := w.mesh.Stats(l)
		if err != nil {
			t.Fatal(err)
		}
		return s.Up.Held + s.Up.Dropped, s.Down.Held + s.Down.Dropped
	}
	up, down := stopped()
	c.n++
	text := fmt.Sprintf("%s %d pexpire\n", l, c.n)
	if _, err := io.WriteString(c, text); err != nil {
		return "ended"
	}
	got := ""
	for range 5000 {
		c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		more, err := c.in.ReadString('\n')
		got += more
		switch {
		case got == text:
			return "works"
		case errors.Is(err, os.ErrDeadlineExceeded):
		default:
			return "ended"
		}
		upNow, downNow := stopped()
		if upNow > up {
			return "up"
		}
		if downNow > down {
			return "down"
		}
	}
	t.Fatalf("%s: neither stopped nor answered", l)
	return ""
}

func (w *world) targets(names ...string) []nemesis.Target {
	var targets []nemesis.Target
	for _, n := range names {
		targets = append(targets, node{n, w.mesh})
	}
	return targets
}

func newFault(t testing.TB, kind string, params map[string]string) nemesis.Fault {
	t.Helper()
	k, err := nemesis.Find(kind)
	if err != nil {
		t.Fatal(err)
	}
	for p := range params {
		if k.Params[p] == "" {
			t.Fatalf("%s does not say that it takes %s", kind, p)
		}
	}
	f, err := k.New(params)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func inject(t testing.TB, f nemesis.Fault, targets []nemesis.Target) nemesis.Proof {
	t.Helper()
	start := time.Now()
	proof, err := f.Inject(t.Context(), targets)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %s", time.Since(start).Round(10*time.Microsecond), proof)
	return proof
}

func heal(t testing.TB, f nemesis.Fault) nemesis.Proof {
	t.Helper()
	start := time.Now()
	proof, err := f.Heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %s", time.Since(start).Round(10*time.Microsecond), proof)
	if _, err := f.Heal(t.Context()); err != nil {
		t.Error("again:", err)
	}
	return proof
}

type params = map[string]string

// TestPartitionsCutWhatTheySay sends real traffic over all links.
func TestPartitionsCutWhatTheySay(t *testing.T) {
	for _, tc := range []struct {
		kind    string
		params  params
		targets string
		want    string // links and what becomes of what is said on them
	}{
		{"partition", nil, "n1",
			"A->n1:up B->n1:up n2->n1:up n3->n1:up n1->n2:up n1->n3:up"},
		{"partition", params{"mode": "drop"}, "A",
			"A->n1:up A->n2:up A->n3:up"},
		{"partition", params{"direction": "to"}, "n1",
			"A->n1:up B->n1:up n2->n1:up n3->n1:up n1->n2:down n1->n3:down"},
		{"partition", params{"direction": "from", "peers": "n2,n3"}, "n1",
			"n2->n1:down n3->n1:down n1->n2:up n1->n3:up"},
		{"partition", params{"direction": "replies", "mode": "drop"}, "A",
			"A->n1:down A->n2:down A->n3:down"},
		{"partition", params{"mode": "refuse", "peers": "A"}, "n1",
			"A->n1:ended"},
		{"partition", params{"match": "PEXPIRE", "peers": "n2"}, "B",
			"B->n2:up"},
		{"partition", params{"shape": "split", "groups": "A,n1|B,n2,n3"}, "n1",
			"A->n2:up A->n3:up B->n1:up n1->n2:up n1->n3:up n2->n1:up n3->n1:up"},
		{"refuse", nil, "A",
			"A->n1:ended A->n2:ended A->n3:ended"},
		{"reset", params{"peers": "n1"}, "B",
			"B->n1:ended"},
	} {
		t.Run(fmt.Sprintf("%s %v", tc.kind, tc.params), func(t *testing.T) {
			w := newWorld(t)
			f := newFault(t, tc.kind, tc.params)
			inject(t, f, w.targets(tc.targets))
			want := map[string]string{}
			for part := range strings.FieldsSeq(tc.want) {
				link, fate, _ := strings.Cut(part, ":")
				want[link] = fate
			}
			for _, l := range w.mesh.Links() {
				fate := want[l.String()]
				if fate == "" {
					fate = "works"
				}
				if got := w.talk(t, l); got != fate {
					t.Errorf("%s: %s, want %s", l, got, fate)
				}
			}
			heal(t, f)
			for _, l := range w.mesh.Links() {
				c := w.conns[l]
				fate := want[l.String()]
				if fate == "ended" || fate != "" && tc.params["mode"] == "drop" {
					c.SetReadDeadline(time.Now().Add(5 * time.Second))
					if _, err := c.in.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%s after the heal: %v, want its end", l, err)
					}
					c.Close()
					w.dial(t, l)
					continue
				}
				if fate != "" {
					c.SetReadDeadline(time.Now().Add(5 * time.Second))
					if _, err := c.in.ReadString('\n'); err != nil {
						t.Errorf("%s: what was held did not arrive: %v", l, err)
					}
				}
				if got := w.talk(t, l); got != "works" {
					t.Errorf("%s after the heal: %s", l, got)
				}
			}
		})
	}
}

func TestRandomShapesAreEffective(t *testing.T) {
	for _, shape := range []string{"halves", "bridge", "ring"} {
		w := newWorld(t)
		f := newFault(t, "partition", params{"shape": shape, "seed": "5"})
		inject(t, f, w.targets("n1", "n2", "n3"))
		stopped := 0
		for _, l := range w.mesh.Links() {
			if got := w.talk(t, l); got != "works" {
				stopped++
				if l.Source == "A" || l.Source == "B" {
					t.Errorf("%s: %s is %s, but only servers are concerned", shape, l, got)
				}
			}
		}
		if stopped == 0 {
			t.Errorf("%s: nothing is cut", shape)
		}
		heal(t, f)
	}
}

func TestSlowLinksAreMeasured(t *testing.T) {
	for _, tc := range []struct {
		kind   string
		params params
		least  time.Duration
	}{
		{"latency", params{"delay": "20ms", "jitter": "5ms"}, 30 * time.Millisecond},
		{"latency", params{"delay": "20ms", "direction": "to"}, 20 * time.Millisecond},
		{"bandwidth", params{"rate": "1KB"}, 10 * time.Millisecond},
		{"slicer", params{"size": "2", "pause": "1ms"}, 5 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s %v", tc.kind, tc.params), func(t *testing.T) {
			w := newWorld(t)
			f := newFault(t, tc.kind, tc.params)
			inject(t, f, w.targets("n1"))
			for _, l := range w.mesh.Links() {
				start := time.Now()
				w.talk(t, l)
				if took := time.Since(start); (l.Source == "n1" || l.Target == "n1") && took < tc.least {
					t.Errorf("%s took %v, want %v", l, took, tc.least)
				}
			}
			heal(t, f)
			if got := w.talk(t, proxy.Link{Source: "A", Target: "n1"}); got != "works" {
				t.Error(got)
			}
		})
	}
}

func TestFlappingComesAndGoes(t *testing.T) {
	w := newWorld(t)
	l := proxy.Link{Source: "A", Target: "n1"}
	f := newFault(t, "flapping", params{"period": "40ms", "duty": "50", "peers": "A"})
	inject(t, f, w.targets("n1"))
	seen := map[string]bool{}
	for deadline := time.Now().Add(10 * time.Second); len(seen) < 2 && time.Now().Before(deadline); {
		fate := w.talk(t, l)
		seen[fate] = true
		if fate == "down" { // it was cut between the two
			fate = "up"
			seen[fate] = true
		}
		if fate == "up" { // read the late answer
			w.conns[l].SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := w.conns[l].in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !seen["works"] || !seen["up"] {
		t.Errorf("saw only %v", seen)
	}
	heal(t, f)
	if got := w.talk(t, l); got != "works" {
		t.Error(got)
	}
}

// TestFaultsOverlap: each proves what it can, and heals only itself.
func TestFaultsOverlap(t *testing.T) {
	w := newWorld(t)
	l := proxy.Link{Source: "A", Target: "n1"}
	first, second := newFault(t, "partition", nil), newFault(t, "partition", params{"mode": "drop", "peers": "n1"})
	inject(t, first, w.targets("n1"))
	if proof := inject(t, second, w.targets("A")); !strings.Contains(string(proof), "in trouble already") {
		t.Errorf("the proof hides that it can't tell: %s", proof)
	}
	if proof := heal(t, first); !strings.Contains(string(proof), "A->n1") {
		t.Errorf("the proof hides that a link is still cut: %s", proof)
	}
	if got := w.talk(t, l); got != "up" {
		t.Errorf("the second fault is gone with the first: %s", got)
	}
	heal(t, second)
}

func TestTrafficMeanwhileIsInTheProof(t *testing.T) {
	w := newWorld(t)
	f := newFault(t, "partition", nil)
	inject(t, f, w.targets("A"))
	if proof := heal(t, f); !strings.Contains(string(proof), " 0 B held, 0 B dropped") {
		t.Errorf("no traffic met the partition, but: %s", proof)
	}
	inject(t, f, w.targets("A"))
	w.talk(t, proxy.Link{Source: "A", Target: "n1"})
	if proof := heal(t, f); strings.Contains(string(proof), " 0 B held") {
		t.Errorf("traffic was held, but: %s", proof)
	}
}

func TestWrongUseIsAnError(t *testing.T) {
	for _, tc := range []struct {
		kind   string
		params params
		want   string
	}{
		{"partition", params{"mode": "cut"}, "hold, drop, refuse"},
		{"partition", params{"shape": "split"}, "groups"},
		{"partition", params{"shape": "split", "groups": "A|A"}, "twice"},
		{"partition", params{"groups": "A|B"}, "only for the shape split"},
		{"partition", params{"shape": "ring", "direction": "to"}, "no meaning"},
		{"partition", params{"mode": "refuse", "match": "x"}, "match"},
		{"partition", params{"mode": "refuse", "direction": "to"}, "both directions"},
		{"latency", params{"delay": "soon"}, "a time"},
		{"latency", params{"delay": "1ms", "jitter": "2ms"}, "jitter"},
		{"latency", params{"delay": "1m"}, "no more than"},
		{"bandwidth", params{"rate": "0"}, "bytes from"},
		{"slicer", params{"size": "none"}, "bytes from"},
		{"flapping", params{"duty": "100"}, "duty"},
	} {
		k, err := nemesis.Find(tc.kind)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.New(tc.params); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), tc.kind) {
			t.Errorf("%s %v: %v, want something on %q", tc.kind, tc.params, err, tc.want)
		}
	}
	w := newWorld(t)
	for _, tc := range []struct {
		params  params
		targets []nemesis.Target
		want    string
	}{
		{nil, nil, "no target"},
		{nil, w.targets("nobody"), "nobody"},
		{params{"peers": "nobody"}, w.targets("n1"), "nobody"},
		{params{"shape": "ring"}, w.targets("n1", "n2"), "three nodes"},
		{params{"peers": "B"}, w.targets("A"), "no link"},
		{nil, []nemesis.Target{stone{}}, "do not pass the proxies"},
	} {
		f := newFault(t, "partition", tc.params)
		if _, err := f.Inject(t.Context(), tc.targets); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want something on %q", tc.params, err, tc.want)
		}
		if _, err := f.Heal(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// stone is a target that nothing can be done to.
type stone struct{}

func (stone) Name() string { return "stone" }

// TestAFaultWithoutEffectIsAnError: the proofs can fail.
func TestAFaultWithoutEffectIsAnError(t *testing.T) {
	w := newWorld(t)
	w.mesh.Close()
	f := newFault(t, "partition", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if proof, err := f.Inject(ctx, w.targets("A")); err == nil {
		t.Errorf("in a closed mesh: %s", proof)
	}
	if _, err := f.Heal(ctx); err != nil {
		t.Error(err)
	}
}

func TestHundredsOfFaultsLeaveNothing(t *testing.T) {
	w := newWorld(t)
	files := func() int {
		names, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(names)
	}
	runtime.GC()
	goroutines, fds := runtime.NumGoroutine(), files()
	for i := range 50 {
		for _, mode := range []string{"hold", "drop"} {
			f := newFault(t, "partition", params{"mode": mode, "shape": "halves", "seed": fmt.Sprint(i)})
			if _, err := f.Inject(t.Context(), w.targets("n1", "n2", "n3")); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Heal(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > goroutines || files() > fds {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d files; before: %d, %d", runtime.NumGoroutine(), files(), goroutines, fds)
		}
		time.Sleep(time.Millisecond)
	}
}
