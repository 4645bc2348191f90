package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lines is a server that answers every line, and remembers what it got.
type lines struct {
	ln   net.Listener
	mu   sync.Mutex
	got  []string
	news chan struct{}
}

func newLines(t testing.TB) *lines {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &lines{ln: ln, news: make(chan struct{}, 1)}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.add("<open>")
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						s.add(map[bool]string{true: "<end>", false: "<reset>"}[errors.Is(err, io.EOF)])
						return
					}
					s.add(strings.TrimSpace(line))
					io.WriteString(c, "re "+line)
				}
			}()
		}
	}()
	return s
}

func (s *lines) add(what string) {
	s.mu.Lock()
	s.got = append(s.got, what)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// await waits until the server got exactly want.
func (s *lines) await(t testing.TB, want ...string) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		got := fmt.Sprint(s.got)
		s.mu.Unlock()
		if got == fmt.Sprint(want) {
			return
		}
		select {
		case <-s.news:
		case <-timeout:
			t.Fatalf("the server got %s, want %s", got, want)
		}
	}
}

func newTestMesh(t testing.TB) *Mesh {
	t.Helper()
	m, err := NewMesh()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

type client struct {
	net.Conn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return &client{c, bufio.NewReader(c)}
}

func (c *client) say(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (c *client) hear(t testing.TB, want string) {
	t.Helper()
	if got, err := c.in.ReadString('\n'); err != nil || got != want+"\n" {
		t.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

// eventually waits for a condition that has no event to wait for.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func stats(t testing.TB, m *Mesh, l Link) Stats {
	t.Helper()
	s, err := m.Stats(l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func cut(t testing.TB, m *Mesh, cuts ...Cut) *Trouble {
	t.Helper()
	o, err := m.Cut(cuts...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func heal(t testing.TB, o *Trouble) {
	t.Helper()
	for range 2 { // it is idempotent
		if err := o.Heal(); err != nil {
			t.Fatal(err)
		}
	}
}

func listen(t testing.TB, m *Mesh, source, target, addr string) string {
	t.Helper()
	a, err := m.Listen(source, target, addr)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var ab = Link{"A", "b"}

func setUp(t testing.TB) (*Mesh, *lines, *client, string) {
	t.Helper()
	s := newLines(t)
	m := newTestMesh(t)
	addr := listen(t, m, "A", "b", s.ln.Addr().String())
	c := dial(t, addr)
	c.say(t, "one")
	c.hear(t, "re one")
	return m, s, c, addr
}

func TestHoldKeepsBytesAndTheEndAndDeliversThemInOrder(t *testing.T) {
	m, s, c, _ := setUp(t)
	o := cut(t, m, Cut{Link: ab, Up: true, Mode: Hold})
	c.say(t, "two")
	eventually(t, "two is held", func() bool { return stats(t, m, ab).Up.Held == 4 })
	c.say(t, "three")
	c.Conn.(*net.TCPConn).CloseWrite()
	eventually(t, "three is held", func() bool { return stats(t, m, ab).Up.Held == 10 })
	s.await(t, "<open>", "one")
	heal(t, o)
	s.await(t, "<open>", "one", "two", "three", "<end>")
	c.hear(t, "re two")
	c.hear(t, "re three")
	if got := stats(t, m, ab); got.Up.Passed != 14 || got.Reset != 0 {
		t.Errorf("%+v", got)
	}
}

func TestHoldForgetsWhatAResetWouldHaveLost(t *testing.T) {
	m, s, c, _ := setUp(t)
	o := cut(t, m, Cut{Link: ab, Up: true, Mode: Hold})
	c.say(t, "two")
	eventually(t, "two is held", func() bool { return stats(t, m, ab).Up.Held == 4 })
	c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
	eventually(t, "two is forgotten", func() bool { return stats(t, m, ab).Up.Dropped == 4 })
	heal(t, o)
	s.await(t, "<open>", "one", "<reset>")
}

func TestHoldOfRepliesLetsRequestsThrough(t *testing.T) {
	m, s, c, _ := setUp(t)
	o := cut(t, m, Cut{Link: ab, Down: true, Mode: Hold, Established: true})
	c.say(t, "two")
	s.await(t, "<open>", "one", "two")
	eventually(t, "the reply is held", func() bool { return stats(t, m, ab).Down.Held == 7 })
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if b, err := c.in.ReadByte(); err == nil {
		t.Fatalf("got %q during the cut", b)
	}
	c.SetReadDeadline(time.Time{})
	heal(t, o)
	c.hear(t, "re two")
}

func TestConnectionsOpenedDuringACutWait(t *testing.T) {
	for _, dir := range []Cut{{Up: true}, {Down: true}} {
		t.Run(fmt.Sprintf("up=%v", dir.Up), func(t *testing.T) {
			m, s, _, addr := setUp(t)
			dir.Link, dir.Mode = ab, Hold
			o := cut(t, m, dir)
			stays, leaves := dial(t, addr), dial(t, addr)
			leaves.say(t, "from one who gave up")
			stays.say(t, "patient")
			eventually(t, "both wait", func() bool { return stats(t, m, ab).Waiting == 2 })
			leaves.Close()
			eventually(t, "one gives up", func() bool { s := stats(t, m, ab); return s.Waiting == 1 && s.Abandoned == 1 })
			s.await(t, "<open>", "one")
			heal(t, o)
			stays.hear(t, "re patient")
			s.await(t, "<open>", "one", "<open>", "patient")
		})
	}
}

func TestDropLosesBytesAndResetsTheirConnectionsOnHeal(t *testing.T) {
	m, s, c, addr := setUp(t)
	quiet := dial(t, addr)
	quiet.say(t, "quiet")
	quiet.hear(t, "re quiet")
	o := cut(t, m, Cut{Link: ab, Up: true, Down: true, Mode: Drop})
	c.say(t, "two")
	eventually(t, "two is dropped", func() bool { return stats(t, m, ab).Up.Dropped == 4 })
	heal(t, o)
	if _, err := c.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection with a gap: %v, want a reset", err)
	}
	quiet.say(t, "still here")
	quiet.hear(t, "re still here")
	s.await(t, "<open>", "one", "<open>", "quiet", "<reset>", "still here")
	if got := stats(t, m, ab); got.Reset != 1 {
		t.Errorf("%+v", got)
	}
}

func TestRefuseResetsConnectionsAndRefusesNewOnes(t *testing.T) {
	m, _, c, addr := setUp(t)
	o := cut(t, m, Cut{Link: ab, Mode: Refuse})
	if _, err := c.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("existing: %v, want a reset", err)
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("new: %v, want refused", err)
	}
	heal(t, o)
	again := dial(t, addr)
	again.say(t, "back")
	again.hear(t, "re back")
}

func TestResetEndsConnectionsOnce(t *testing.T) {
	m, _, c, addr := setUp(t)
	if n, err := m.Reset(ab); n != 1 || err != nil {
		t.Errorf("reset %d connections, %v", n, err)
	}
	if _, err := c.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("existing: %v, want a reset", err)
	}
	again := dial(t, addr)
	again.say(t, "back")
	again.hear(t, "re back")
}

func TestMatchConcernsAStreamFromWhereItMatches(t *testing.T) {
	m, s, c, addr := setUp(t)
	o := cut(t, m, Cut{Link: ab, Up: true, Mode: Hold, Match: Containing("PEXPIRE")})
	c.say(t, "SET k v")
	c.hear(t, "re SET k v")
	c.say(t, "pexpire k 100")
	eventually(t, "the renewal is held", func() bool { return stats(t, m, ab).Up.Held == 14 })
	c.say(t, "behind it")
	eventually(t, "so is what follows", func() bool { return stats(t, m, ab).Up.Held == 24 })
	other := dial(t, addr)
	other.say(t, "free")
	other.hear(t, "re free")
	s.await(t, "<open>", "one", "SET k v", "<open>", "free")
	heal(t, o)
	c.hear(t, "re pexpire k 100")
	c.hear(t, "re behind it")
}

func TestContainingSeesAcrossChunks(t *testing.T) {
	for _, tc := range []struct {
		chunks []string
		hit    int // index, -1 if none
	}{
		{[]string{"xxPEXPIRExx"}, 0},
		{[]string{"xxpexp", "ire"}, 1},
		{[]string{"p", "e", "x", "p", "i", "r", "e"}, 6},
		{[]string{"pexp", "xire", "pexpir"}, -1},
	} {
		hit, match := -1, Containing("PEXPIRE")()
		for i, c := range tc.chunks {
			if match([]byte(c)) {
				hit = i
				break
			}
		}
		if hit != tc.hit {
			t.Errorf("%q: matched at %d, want %d", tc.chunks, hit, tc.hit)
		}
	}
}

func TestCutsAddUp(t *testing.T) {
	m, s, c, _ := setUp(t)
	first := cut(t, m, Cut{Link: ab, Up: true, Mode: Hold})
	second := cut(t, m, Cut{Link: ab, Up: true, Down: true, Mode: Hold})
	c.say(t, "two")
	eventually(t, "two is held", func() bool { return stats(t, m, ab).Up.Held == 4 })
	heal(t, first)
	s.await(t, "<open>", "one")
	heal(t, second)
	c.hear(t, "re two")
	if got := stats(t, m, ab).Up.Held; got != 4 {
		t.Errorf("held %d bytes, want each to count once", got)
	}
}

func TestSlowdowns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, tc := range []struct {
		name    string
		slow    Slowdown
		payload int
		atLeast time.Duration
		pieces  int64
	}{
		{"delay both ways", Slowdown{Up: true, Down: true, Pace: Pace{Delay: 20 * time.Millisecond}}, 8, 40 * time.Millisecond, 1},
		{"rate", Slowdown{Up: true, Pace: Pace{Rate: 100_000}}, 10_000, 90 * time.Millisecond, 1},
		{"slices", Slowdown{Up: true, Pace: Pace{Slice: 64, Pause: time.Millisecond}}, 1000, 9 * time.Millisecond, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, _, _, _ := setUp(t)
			p, err := m.Probe(ctx, ab)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			try := func() time.Duration {
				t.Helper()
				if fate, err := p.Try(ctx, make([]byte, tc.payload)); err != nil || fate != Answered {
					t.Fatal(fate, err)
				}
				return p.Took()
			}
			try()
			tc.slow.Link = ab
			trouble, err := m.Slow(tc.slow)
			if err != nil {
				t.Fatal(err)
			}
			before, _ := p.Pieces()
			if took := try(); took < tc.atLeast {
				t.Errorf("took %v, want at least %v", took, tc.atLeast)
			}
			if after, _ := p.Pieces(); after-before < tc.pieces {
				t.Errorf("sent in %d pieces, want at least %d", after-before, tc.pieces)
			}
			fresh, err := m.Probe(ctx, ab)
			if err != nil {
				t.Fatal(err)
			}
			defer fresh.Close()
			if _, err := fresh.Try(ctx, make([]byte, tc.payload)); err != nil || fresh.Took() < tc.atLeast {
				t.Errorf("a new connection took %v, %v", fresh.Took(), err)
			}
			heal(t, trouble)
			fastest := time.Hour
			for range 5 {
				fastest = min(fastest, try())
			}
			if fastest > tc.atLeast/2 {
				t.Errorf("after the heal it took %v", fastest)
			}
		})
	}
}

func TestProbesShowTheFateOfTraffic(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, tc := range []struct {
		name     string
		cut      Cut
		old, new Fate
	}{
		{"hold both", Cut{Up: true, Down: true, Mode: Hold}, StoppedUp, Waiting},
		{"hold up", Cut{Up: true, Mode: Hold}, StoppedUp, Waiting},
		{"hold down", Cut{Down: true, Mode: Hold}, StoppedDown, Waiting},
		{"hold replies", Cut{Down: true, Mode: Hold, Established: true}, StoppedDown, StoppedDown},
		{"drop", Cut{Up: true, Mode: Drop}, StoppedUp, Waiting},
		{"refuse", Cut{Mode: Refuse}, CutOff, CutOff},
		{"nothing that the probe sends", Cut{Up: true, Mode: Hold, Match: Containing("xyz")}, Answered, Answered},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, s, _, _ := setUp(t)
			old, err := m.Probe(ctx, ab)
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			if fate, err := old.Try(ctx, nil); fate != Answered || err != nil {
				t.Fatalf("before: %v, %v", fate, err)
			}
			tc.cut.Link = ab
			o := cut(t, m, tc.cut)
			if fate, err := old.Try(ctx, nil); fate != tc.old || err != nil {
				t.Errorf("old connection: %v, %v; want %v", fate, err, tc.old)
			}
			fresh, err := m.Probe(ctx, ab)
			if tc.new == CutOff {
				if !IsCut(err) {
					t.Errorf("new connection: %v, want it refused", err)
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				defer fresh.Close()
				if fate, err := fresh.Try(ctx, nil); fate != tc.new || err != nil {
					t.Errorf("new connection: %v, %v; want %v", fate, err, tc.new)
				}
			}
			heal(t, o)
			if tc.cut.Mode == Hold {
				if err := errors.Join(old.Delivered(ctx), fresh.Delivered(ctx)); err != nil {
					t.Error(err)
				}
			} else if err := old.Ended(ctx); !IsCut(err) {
				t.Errorf("old connection after the heal: %v, want it cut", err)
			}
			if tc.cut.Mode == Refuse {
				s.await(t, "<open>", "one", "<reset>")
			} else {
				s.await(t, "<open>", "one")
			}
			if got := stats(t, m, ab); got.Opened != 1 || got.Up.Held != 0 || got.Waiting != 0 || got.Reset > 1 {
				t.Errorf("probes are counted as traffic: %+v", got)
			}
		})
	}
}

func TestHalfCloseGoesThrough(t *testing.T) {
	m := newTestMesh(t)
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c)
		c.Write(bytes.ToUpper(all))
	}()
	c := dial(t, listen(t, m, "A", "b", ln.Addr().String()))
	io.WriteString(c, "whole")
	c.Conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "WHOLE" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAResetOfTheTargetIsAReset(t *testing.T) {
	m := newTestMesh(t)
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}()
	c := dial(t, listen(t, m, "A", "b", ln.Addr().String()))
	io.WriteString(c, "x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestMoveFollowsARestartedTarget(t *testing.T) {
	m, s, _, addr := setUp(t)
	next := newLines(t)
	if err := m.Move("b", s.ln.Addr().String(), next.ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	c := dial(t, addr)
	c.say(t, "hello")
	next.await(t, "<open>", "hello")
	if listen(t, m, "A", "b", s.ln.Addr().String()) != addr {
		t.Error("the link has another address now")
	}
	if err := m.Move("c", "127.0.0.1:1", "127.0.0.1:2"); err == nil {
		t.Error("no error for a target without links")
	}
}

func TestPeersAreToldApart(t *testing.T) {
	m := newTestMesh(t)
	s := newLines(t)
	var mu sync.Mutex
	next := "A"
	addr, err := m.ListenPeers("b", s.ln.Addr().String(), []string{"A", "C"}, func(net.Conn) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if next == "" {
			return "", errors.New("nobody")
		}
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	as := func(name string) *client {
		t.Helper()
		mu.Lock()
		next = name
		mu.Unlock()
		before := stats(t, m, Link{"A", "b"}).Opened + stats(t, m, Link{"C", "b"}).Opened + m.Strangers()
		c := dial(t, addr)
		eventually(t, "the connection is identified", func() bool {
			return stats(t, m, Link{"A", "b"}).Opened+stats(t, m, Link{"C", "b"}).Opened+m.Strangers() > before
		})
		return c
	}
	a, c := as("A"), as("C")
	o := cut(t, m, Cut{Link: Link{"C", "b"}, Mode: Refuse})
	if _, err := c.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("C's connection: %v, want a reset", err)
	}
	a.say(t, "A goes on")
	a.hear(t, "re A goes on")
	heal(t, o)
	mu.Lock()
	next = ""
	mu.Unlock()
	stranger, err := net.Dial("tcp", addr)
	if err == nil {
		defer stranger.Close()
		_, err = stranger.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) || m.Strangers() != 1 {
		t.Errorf("a stranger: %v, want a reset; %d strangers, want one", err, m.Strangers())
	}
}

func TestIdentifyBySocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells whose a socket is")
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dial(t, ln.Addr().String())
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	here := Owners{func() map[string][]int { return map[string][]int{"here": {os.Getpid()}, "init": {1}} }}
	if os.Getpid() == 1 {
		t.Skip("this is process 1")
	}
	if got, err := here.Identify(c); got != "here" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	nowhere := Owners{func() map[string][]int { return nil }}
	if got, err := nowhere.Identify(c); err == nil {
		t.Errorf("got %q, want an error", got)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s := newLines(t)
	files := func() int {
		names, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(names)
	}
	dialed := dial(t, s.ln.Addr().String()) // wakes the poller, which has files of its own
	dialed.Close()
	eventually(t, "the server is idle", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.got) == 2 })
	goroutines, fds := runtime.NumGoroutine(), files()
	for _, mode := range []Mode{Pass, Hold, Drop, Refuse} {
		m, err := NewMesh()
		if err != nil {
			t.Fatal(err)
		}
		addr := listen(t, m, "A", "b", s.ln.Addr().String())
		var clients []net.Conn
		for range 5 {
			c := dial(t, addr)
			c.say(t, "x")
			c.hear(t, "re x")
			clients = append(clients, c)
		}
		if _, err := m.Slow(Slowdown{Link: ab, Up: true, Down: true, Pace: Pace{Delay: time.Minute, Rate: 1, Slice: 2, Pause: time.Second}}); err != nil {
			t.Fatal(err)
		}
		if mode != Pass {
			cut(t, m, Cut{Link: ab, Up: true, Down: true, Mode: mode})
		}
		for _, c := range clients {
			c.Write(make([]byte, 100_000))
		}
		if mode == Hold {
			c := dial(t, addr)
			c.say(t, "waits")
			clients = append(clients, c)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error("again:", err)
		}
		for _, c := range clients {
			c.Close()
		}
		if _, err := m.Cut(Cut{Link: ab, Up: true, Mode: Hold}); err == nil {
			t.Error("a closed mesh can be cut")
		}
	}
	eventually(t, "all goroutines and files are gone", func() bool {
		return runtime.NumGoroutine() <= goroutines && files() <= fds
	})
}

func TestErrorsNameTheLink(t *testing.T) {
	m, _, _, _ := setUp(t)
	for _, cuts := range [][]Cut{
		{{Link: Link{"A", "nobody"}, Up: true, Mode: Hold}},
		{{Link: ab, Mode: Hold}},
		{{Link: ab, Up: true, Mode: Hold}, {Link: ab, Down: true, Mode: Hold}},
	} {
		if _, err := m.Cut(cuts...); err == nil || !strings.Contains(err.Error(), "A->") {
			t.Errorf("%v: %v", cuts, err)
		}
	}
	if _, err := m.Slow(Slowdown{Link: Link{"A", "nobody"}}); err == nil {
		t.Error("no error for an unknown link")
	}
	if _, err := m.Listen("", "b", "x"); err == nil {
		t.Error("no error for a link from nobody")
	}
}

// TestRulesUnderLoad cuts and heals while traffic flows: nothing is lost, doubled
// or reordered by holds and slowdowns.
func TestRulesUnderLoad(t *testing.T) {
	m, _, _, addr := setUp(t)
	var talking sync.WaitGroup
	for i := range 4 {
		c := dial(t, addr)
		talking.Go(func() {
			for n := range 200 {
				line := fmt.Sprintf("%d-%d", i, n)
				if _, err := io.WriteString(c, line+"\n"); err != nil {
					t.Error(err)
					return
				}
				if got, err := c.in.ReadString('\n'); err != nil || got != "re "+line+"\n" {
					t.Errorf("said %s, heard %q, %v", line, got, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { talking.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return
		default:
		}
		heal(t, cut(t, m, Cut{Link: ab, Up: true, Mode: Hold}))
		heal(t, cut(t, m, Cut{Link: ab, Down: true, Mode: Hold}))
		trouble, err := m.Slow(Slowdown{Link: ab, Up: true, Down: true, Pace: Pace{Delay: time.Millisecond, Slice: 2, Pause: time.Microsecond}})
		if err != nil {
			t.Fatal(err)
		}
		heal(t, trouble)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	s := newLines(b)
	m := newTestMesh(b)
	proxied := listen(b, m, "A", "b", s.ln.Addr().String())
	for _, way := range []struct{ name, addr string }{{"direct", s.ln.Addr().String()}, {"mesh", proxied}} {
		b.Run(way.name, func(b *testing.B) {
			c := dial(b, way.addr)
			for b.Loop() {
				c.say(b, "x")
				c.hear(b, "re x")
			}
		})
	}
}
