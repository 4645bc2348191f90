package proxy

import (
	"fmt"
	"strings"
	"testing"
)

// asking is one node and its connections to three servers.
func asking(t *testing.T) (*Mesh, []*client, []*lines) {
	m := newTestMesh(t)
	var clients []*client
	var servers []*lines
	for i := range 3 {
		s := newLines(t)
		servers = append(servers, s)
		clients = append(clients, dial(t, listen(t, m, "A", fmt.Sprint("s", i), s.ln.Addr().String())))
	}
	return m, clients, servers
}

func tally(t *testing.T, m *Mesh, want int) *Tally {
	t.Helper()
	c, err := m.Tally("A", []string{"s0", "s1", "s2"}, want)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.End() })
	return c
}

func reached(c *Tally) bool {
	select {
	case <-c.Reached():
		return true
	default:
		return false
	}
}

func TestATallyHoldsTheLastAnswerThatWasWanted(t *testing.T) {
	m, clients, servers := asking(t)
	c := tally(t, m, 2)
	say := func(i int, line string) {
		t.Helper()
		clients[i].say(t, line)
		clients[i].hear(t, "re "+line)
	}
	say(0, "set k before the start")
	c.Start("k")
	say(0, "hello")
	say(1, "set key other")
	if c.Answered() != 0 || reached(c) {
		t.Fatalf("%d answers before any request about k", c.Answered())
	}
	say(0, "set k 1")
	say(0, "set k again")
	if c.Answered() != 1 || reached(c) {
		t.Fatalf("%d answers, want 1", c.Answered())
	}
	for i := 1; i < 3; i++ {
		clients[i].say(t, "set k last")
		<-c.Reached()
		link := Link{"A", fmt.Sprint("s", i)}
		eventually(t, "the answer is held", func() bool { return stats(t, m, link).Down.Held > 0 })
	}
	servers[2].await(t, "<open>", "set k last") // the request was served
	say(0, "the one that has answered may go on")
	if c.Answered() != 2 {
		t.Errorf("%d answers, want 2", c.Answered())
	}
	for range 2 {
		if err := c.End(); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i < 3; i++ {
		clients[i].hear(t, "re set k last")
		say(i, "set k more")
	}
}

// A new connection is under the tally too, and what it says first does not count.
func TestATallyCountsOnNewConnections(t *testing.T) {
	m, _, servers := asking(t)
	c := tally(t, m, 1)
	c.Start("k")
	addr := listen(t, m, "A", "s0", servers[0].ln.Addr().String())
	fresh := dial(t, addr)
	fresh.say(t, "hello")
	fresh.hear(t, "re hello")
	if reached(c) {
		t.Fatal("a greeting was counted")
	}
	fresh.say(t, "set k")
	<-c.Reached()
}

// A cut that drops something resets the connection when it heals, tally or not.
func TestATallyDoesNotKeepABrokenConnection(t *testing.T) {
	m, clients, _ := asking(t)
	tally(t, m, 1)
	link := Link{"A", "s0"}
	o := cut(t, m, Cut{Link: link, Up: true, Down: true, Mode: Drop})
	clients[0].say(t, "lost")
	eventually(t, "it is lost", func() bool { return stats(t, m, link).Up.Dropped > 0 })
	heal(t, o)
	if _, err := clients[0].in.ReadString('\n'); err == nil {
		t.Error("a connection with a gap goes on")
	}
}

func TestTalliesThatCannotBe(t *testing.T) {
	m, _, _ := asking(t)
	for _, c := range []struct {
		targets []string
		want    int
		err     string
	}{
		{[]string{"s0", "s1"}, 3, "it asks 2 servers"},
		{[]string{"s0"}, 0, "0 answers"},
		{[]string{"s0", "nobody"}, 1, "no link A->nobody"},
	} {
		y, err := m.Tally("A", c.targets, c.want)
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%d of %v: %v, want %q", c.want, c.targets, err, c.err)
		}
		if err := y.End(); err != nil {
			t.Error(err)
		}
	}
}

func TestContainsWord(t *testing.T) {
	for _, c := range []struct {
		text, word string
		want       bool
	}{
		{"$3\r\nset\r\n$1\r\nk\r\n", "k", true},
		{"k", "k", true},
		{"lock:k", "k", true},
		{"key", "k", false},
		{"k1 k", "k", true},
		{"2k", "k", false},
		{"k12 and k1", "k1", true},
		{"\xffk\x00", "k", true},
		{"", "k", false},
		{"anything", "", false},
	} {
		if got := containsWord([]byte(c.text), []byte(c.word)); got != c.want {
			t.Errorf("%q has the word %q: %v, want %v", c.text, c.word, got, c.want)
		}
	}
}
