package netns

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockcheck/lockcheck/internal/selfexec"
)

const hubRole = "netns-hub"

func init() { selfexec.Register(hubRole, hubMain) }

// request is what the harness asks of the hub, one at a time. Each is one packet
// on a socket, and so is the answer.
type request struct {
	Op    string        `json:"op"` // node, run, dial, listen, ping
	Node  string        `json:"node,omitempty"`
	Peer  string        `json:"peer,omitempty"`
	Addr  string        `json:"addr,omitempty"`
	Argv  []string      `json:"argv,omitempty"`
	Stdin string        `json:"stdin,omitempty"`
	Wait  time.Duration `json:"wait,omitempty"`
}

type answer struct {
	Error   string `json:"error,omitempty"`
	Output  string `json:"output,omitempty"`
	FD      int    `json:"fd,omitempty"` // of a node's namespace, in the hub
	Arrived bool   `json:"arrived,omitempty"`
}

const (
	maxMessage  = 1 << 16
	controlFD   = 3
	runTimeout  = 10 * time.Second
	maxNodes    = 200
	hubAddr     = "10.77.0.1"
	firstNode   = 10 // 10.77.0.10
	prefixBits  = "/24"
	dialTimeout = 5 * time.Second
)

func nodeAddr(index int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, 0, byte(firstNode + index)})
}

// hub is the process that owns the namespaces. It runs in the namespace that has
// the bridge.
type hub struct {
	nodes map[string]*hubNode
}

type hubNode struct {
	addr netip.Addr
	fd   int
	do   chan func() // runs on a thread that is in the namespace
	udp  *net.UDPConn

	mu   sync.Mutex
	seen uint64        // number of the last ping that arrived
	news chan struct{} // of capacity 1
}

func hubMain([]string) int {
	f := os.NewFile(controlFD, "control")
	c, err := net.FileConn(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, "this command is started by lockcheck itself:", err)
		return 2
	}
	f.Close()
	control, ok := c.(*net.UnixConn)
	if !ok {
		fmt.Fprintln(os.Stderr, "this command is started by lockcheck itself")
		return 2
	}
	h := &hub{nodes: map[string]*hubNode{}}
	reply(control, answer{Error: text(h.setUp())}, nil)
	buf := make([]byte, maxMessage)
	for {
		n, err := control.Read(buf)
		if err != nil || n == 0 {
			return 0 // the harness is gone, and with this process goes all it made
		}
		var q request
		if err := json.Unmarshal(buf[:n], &q); err != nil {
			reply(control, answer{Error: err.Error()}, nil)
			continue
		}
		a, file, err := h.serve(q)
		a.Error = text(err)
		reply(control, a, file)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// reply sends an answer, and a file if there is one. Should it fail the harness is
// gone, which the next read tells.
func reply(control *net.UnixConn, a answer, file *os.File) {
	message, err := json.Marshal(a)
	if err != nil || len(message) > maxMessage {
		message = []byte(`{"error":"the hub's answer can't be sent"}`)
	}
	var rights []byte
	if file != nil {
		defer file.Close()
		rights = unix.UnixRights(int(file.Fd()))
	}
	control.WriteMsgUnix(message, rights, nil)
}

func (h *hub) setUp() error {
	return run("ip", "link set lo up",
		"link add bridge0 type bridge",
		"addr add "+hubAddr+prefixBits+" dev bridge0",
		"link set bridge0 up")
}

// run runs a program once for each line of arguments.
func run(program string, lines ...string) error {
	for _, line := range lines {
		if _, err := runOne(append([]string{program}, strings.Fields(line)...), ""); err != nil {
			return err
		}
	}
	return nil
}

func runOne(argv []string, stdin string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}

func (h *hub) serve(q request) (answer, *os.File, error) {
	if q.Op == "dial" {
		file, err := dialFile(q.Addr)
		return answer{}, file, err
	}
	if q.Op == "node" {
		a, err := h.addNode(q.Node)
		return a, nil, err
	}
	if q.Op == "run" && q.Node == "" {
		out, err := runOne(q.Argv, q.Stdin)
		return answer{Output: out}, nil, err
	}
	n, ok := h.nodes[q.Node]
	if !ok {
		return answer{}, nil, fmt.Errorf("there is no node %s", q.Node)
	}
	switch q.Op {
	case "run":
		var a answer
		err := n.run(func() (err error) {
			a.Output, err = runOne(q.Argv, q.Stdin)
			return err
		})
		return a, nil, err
	case "listen":
		var file *os.File
		err := n.run(func() (err error) {
			file, err = listenFile(n.addr)
			return err
		})
		return answer{}, file, err
	case "ping":
		peer, ok := h.nodes[q.Peer]
		if !ok {
			return answer{}, nil, fmt.Errorf("there is no node %s", q.Peer)
		}
		arrived, err := n.ping(peer, q.Wait)
		return answer{Arrived: arrived}, nil, err
	}
	return answer{}, nil, fmt.Errorf("unknown request %q", q.Op)
}

// dialFile connects from the bridge's namespace. The socket stays there, whoever
// uses it.
func dialFile(addr string) (*os.File, error) {
	c, err := net.DialTimeout("tcp4", addr, dialTimeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*net.TCPConn).File()
}

// listenFile listens on a free port of an address of the present namespace.
func listenFile(addr netip.Addr) (*os.File, error) {
	l, err := net.Listen("tcp4", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

// addNode makes a namespace that is joined to the bridge.
func (h *hub) addNode(name string) (answer, error) {
	index := len(h.nodes)
	if index >= maxNodes {
		return answer{}, fmt.Errorf("there are %d nodes already", index)
	}
	n := &hubNode{addr: nodeAddr(index), do: make(chan func()), news: make(chan struct{}, 1)}
	started := make(chan error)
	go func() {
		// The thread is in the namespace for good, and never serves another goroutine.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		started <- err
		if err != nil {
			return
		}
		for f := range n.do {
			f()
		}
	}()
	if err := <-started; err != nil {
		return answer{}, fmt.Errorf("make a network namespace for %s: %w", name, err)
	}
	outer := fmt.Sprint("node", index)
	err := run("ip",
		"link add "+outer+" type veth peer name eth0 netns "+fdPath(os.Getpid(), n.fd),
		"link set "+outer+" master bridge0",
		"link set "+outer+" up")
	if err != nil {
		return answer{}, err
	}
	err = n.run(func() error {
		err := run("ip", "link set lo up", "addr add "+n.addr.String()+prefixBits+" dev eth0", "link set eth0 up")
		if err != nil {
			return err
		}
		n.udp, err = net.ListenUDP("udp4", &net.UDPAddr{IP: n.addr.AsSlice()})
		return err
	})
	if err != nil {
		return answer{}, err
	}
	if err := joined(outer); err != nil {
		return answer{}, err
	}
	go n.listen()
	h.nodes[name] = n
	return answer{FD: n.fd}, nil
}

// joined waits until the bridge forwards for a port, which is some milliseconds
// after the port was set up. A request for an address that is lost before that
// is only repeated a second later.
func joined(port string) error {
	for deadline := time.Now().Add(runTimeout); ; time.Sleep(time.Millisecond) {
		state, err := runOne([]string{"ip", "-d", "-o", "link", "show", "dev", port}, "")
		if err != nil {
			return err
		}
		if strings.Contains(state, " state UP ") && strings.Contains(state, "state forwarding") {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the bridge does not forward for %s: %s", port, state)
		}
	}
}

func fdPath(pid, fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", pid, fd) }

// run runs f on the node's thread.
func (n *hubNode) run(f func() error) error {
	done := make(chan error)
	n.do <- func() { done <- f() }
	return <-done
}

// listen notes pings as they arrive.
func (n *hubNode) listen() {
	var b [8]byte
	for {
		if _, _, err := n.udp.ReadFromUDP(b[:]); err != nil {
			return
		}
		n.mu.Lock()
		n.seen = binary.BigEndian.Uint64(b[:])
		n.mu.Unlock()
		select {
		case n.news <- struct{}{}:
		default:
		}
	}
}

// ping sends one packet to a peer, and tells whether it arrives in time.
func (n *hubNode) ping(peer *hubNode, wait time.Duration) (bool, error) {
	var b [8]byte
	number := uint64(time.Now().UnixNano())
	binary.BigEndian.PutUint64(b[:], number)
	to, ok := peer.udp.LocalAddr().(*net.UDPAddr)
	if !ok {
		return false, errors.New("the peer does not listen")
	}
	if _, err := n.udp.WriteToUDP(b[:], to); err != nil {
		return false, err
	}
	timeout := time.After(wait)
	for {
		peer.mu.Lock()
		arrived := peer.seen == number
		peer.mu.Unlock()
		if arrived {
			return true, nil
		}
		select {
		case <-peer.news:
		case <-timeout:
			return false, nil
		}
	}
}
