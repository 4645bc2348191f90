package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// Net is the network of one run. Its methods may be called concurrently.
type Net struct {
	cmd      *exec.Cmd
	ended    chan struct{} // closed when the hub has ended
	stderr   *strings.Builder
	user     string // path of the hub's user namespace, "" if it has none of its own
	firewall firewall

	mu      sync.Mutex // one request at a time; guards all below
	control *net.UnixConn
	nodes   map[string]*Node
	drops   map[Flow]bool
	closed  bool
}

// Available returns nil if networks can be made here, else why not.
func Available() error {
	if err := missingTools(); err != nil {
		return fmt.Errorf("unavailable: %w", err)
	}
	n, err := NewNet()
	if err != nil {
		return fmt.Errorf("unavailable: %w", err)
	}
	defer n.Close()
	if _, err := n.Node("probe"); err != nil {
		return fmt.Errorf("unavailable: %w", err)
	}
	return nil
}

// NewNet makes a network without nodes. The caller must Close it.
func NewNet() (*Net, error) {
	fw, err := findFirewall()
	if err != nil {
		return nil, err
	}
	argv, err := selfexec.Command(hubRole)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket for the hub: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "hub"), os.NewFile(uintptr(fds[1]), "harness")
	defer ours.Close()
	defer theirs.Close()
	control, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("make a socket for the hub: %w", err)
	}

	n := &Net{
		cmd:      exec.Command(argv[0], argv[1:]...),
		ended:    make(chan struct{}),
		stderr:   &strings.Builder{},
		firewall: fw,
		control:  control.(*net.UnixConn),
		nodes:    map[string]*Node{},
		drops:    map[Flow]bool{},
	}
	n.cmd.Stderr = n.stderr
	n.cmd.ExtraFiles = []*os.File{theirs}
	// A group of its own, so that an interrupt from the keyboard leaves the network
	// in place until the harness has put everything away.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Setpgid: true}
	unprivileged := os.Geteuid() != 0
	if unprivileged {
		attr := n.cmd.SysProcAttr
		attr.Cloneflags |= unix.CLONE_NEWUSER
		// The user stays who he is: some servers refuse to run as root.
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW}
	}
	if err := n.cmd.Start(); err != nil {
		control.Close()
		return nil, fmt.Errorf("start a process in a network namespace (as %s): %w", who(unprivileged), err)
	}
	go func() {
		n.cmd.Wait()
		close(n.ended)
	}()
	theirs.Close()
	if unprivileged {
		n.user = fmt.Sprintf("/proc/%d/ns/user", n.cmd.Process.Pid)
	}
	if _, _, err := n.receive(); err != nil {
		n.Close()
		return nil, fmt.Errorf("set up the network's bridge (as %s): %w", who(unprivileged), err)
	}
	return n, nil
}

func who(unprivileged bool) string {
	if unprivileged {
		return "an ordinary user, with a user namespace; the kernel may forbid them: see user.max_user_namespaces and kernel.unprivileged_userns_clone"
	}
	return "root"
}

// ask sends a request to the hub and waits for its answer, with the file it
// sends, if any. It needs n.mu.
func (n *Net) ask(q request) (answer, *os.File, error) {
	if n.closed {
		return answer{}, nil, errors.New("the network is closed")
	}
	message, err := json.Marshal(q)
	if err != nil {
		return answer{}, nil, err
	}
	if len(message) > maxMessage {
		return answer{}, nil, errors.New("the request is too long for the hub")
	}
	if _, err := n.control.Write(message); err != nil {
		return answer{}, nil, fmt.Errorf("the network's hub does not listen: %w", err)
	}
	return n.receive()
}

func (n *Net) receive() (answer, *os.File, error) {
	n.control.SetReadDeadline(time.Now().Add(3 * runTimeout))
	buf, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	size, nr, _, _, err := n.control.ReadMsgUnix(buf, rights)
	if err != nil || size == 0 {
		return answer{}, nil, fmt.Errorf("the network's hub gave no answer (%v)%s", err, n.lastWords())
	}
	var file *os.File
	if nr > 0 {
		if messages, err := unix.ParseSocketControlMessage(rights[:nr]); err == nil && len(messages) == 1 {
			if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
				unix.CloseOnExec(fds[0])
				file = os.NewFile(uintptr(fds[0]), "connection")
			}
		}
	}
	var a answer
	if err := json.Unmarshal(buf[:size], &a); err != nil {
		return a, file, fmt.Errorf("the network's hub gave a wrong answer: %w", err)
	}
	if a.Error != "" {
		return a, file, errors.New(a.Error)
	}
	return a, file, nil
}

// lastWords returns what the hub said before it ended.
func (n *Net) lastWords() string {
	select {
	case <-n.ended:
		return strings.TrimRight(": "+strings.TrimSpace(n.stderr.String()), ": ")
	case <-time.After(time.Second):
		return ""
	}
}

// Node returns the node of that name, and makes it if there is none.
func (n *Net) Node(name string) (*Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node, ok := n.nodes[name]; ok {
		return node, nil
	}
	a, _, err := n.ask(request{Op: "node", Node: name})
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	node := &Node{Name: name, Addr: nodeAddr(len(n.nodes)), net: n, path: fdPath(n.cmd.Process.Pid, a.FD)}
	n.nodes[name] = node
	return node, nil
}

// Nodes returns the names of all nodes, sorted.
func (n *Net) Nodes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.nodes))
}

// Dial connects to a TCP port of a node from the bridge: so the harness, which is in
// no namespace of the network, can reach every node, and no cut stops it.
func (n *Net) Dial(addr netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	_, file, err := n.ask(request{Op: "dial", Addr: addr.String()})
	n.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if file == nil {
		return nil, fmt.Errorf("dial %s: the hub sent no connection", addr)
	}
	defer file.Close()
	return net.FileConn(file)
}

// Listen listens on a free TCP port of a node, for the harness: what is in no
// namespace of the network itself can so be part of it. The caller closes the
// listener.
func (n *Net) Listen(node string) (net.Listener, error) {
	n.mu.Lock()
	_, file, err := n.ask(request{Op: "listen", Node: node})
	n.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if file == nil {
		return nil, fmt.Errorf("listen on %s: the hub sent no socket", node)
	}
	defer file.Close()
	return net.FileListener(file)
}

// Drop drops the packets of flows from now on, without a word to their senders.
// What is dropped already stays so.
func (n *Net) Drop(flows ...Flow) error {
	return n.change(flows, func(f Flow) { n.drops[f] = true })
}

// Heal lets the packets of flows pass again, all if none are named. Flows that are
// not dropped are no error.
func (n *Net) Heal(flows ...Flow) error {
	if len(flows) == 0 {
		n.mu.Lock()
		flows = slices.Collect(maps.Keys(n.drops))
		n.mu.Unlock()
	}
	return n.change(flows, func(f Flow) { delete(n.drops, f) })
}

func (n *Net) change(flows []Flow, do func(Flow)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	receivers := map[string]bool{}
	for _, f := range flows {
		for _, name := range []string{f.From, f.To} {
			if n.nodes[name] == nil {
				return fmt.Errorf("%s: there is no node %s", f, name)
			}
		}
		if f.From == f.To {
			return fmt.Errorf("%s: a node can't be cut off from itself", f)
		}
		receivers[f.To] = true
	}
	for _, f := range flows {
		do(f)
	}
	for to := range receivers {
		var from []netip.Addr
		for f := range n.drops {
			if f.To == to {
				from = append(from, n.nodes[f.From].Addr)
			}
		}
		slices.SortFunc(from, netip.Addr.Compare)
		argv, stdin := n.firewall.set(from)
		if _, _, err := n.ask(request{Op: "run", Node: to, Argv: argv, Stdin: stdin}); err != nil {
			return fmt.Errorf("set the firewall of %s: %w", to, err)
		}
	}
	return nil
}

// dropped returns the flows that are dropped now.
func (n *Net) dropped() []Flow {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.drops))
}

// Dropped returns how many packets of a flow were dropped since the rules of its
// receiver last changed. It is an error if the flow is not dropped.
func (n *Net) Dropped(f Flow) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.drops[f] {
		return 0, fmt.Errorf("%s is not dropped", f)
	}
	a, _, err := n.ask(request{Op: "run", Node: f.To, Argv: n.firewall.list})
	if err != nil {
		return 0, fmt.Errorf("read the firewall of %s: %w", f.To, err)
	}
	count, ok := n.firewall.count(a.Output)[n.nodes[f.From].Addr]
	if !ok {
		return 0, fmt.Errorf("the firewall of %s has no rule for %s: %s", f.To, f, a.Output)
	}
	return count, nil
}

// pingWait is how long a packet may take that arrives, which takes microseconds.
const pingWait = 2 * time.Second

// Ping sends one UDP packet, and tells whether it arrives within wait; 0 is
// long enough for one that does.
func (n *Net) Ping(f Flow, wait time.Duration) (arrived bool, err error) {
	if wait == 0 {
		wait = pingWait
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	a, _, err := n.ask(request{Op: "ping", Node: f.From, Peer: f.To, Wait: wait})
	if err != nil {
		return false, fmt.Errorf("ping %s: %w", f, err)
	}
	return a.Arrived, nil
}

// Netem returns nil if the kernel can delay, lose and reorder packets (netem),
// else what it said.
func (n *Net) Netem() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, _, err := n.ask(request{Op: "run", Argv: []string{"tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"}}); err != nil {
		return fmt.Errorf("netem is unavailable: %w", err)
	}
	_, _, err := n.ask(request{Op: "run", Argv: []string{"tc", "qdisc", "del", "dev", "lo", "root"}})
	return err
}

// Close ends the network. Namespaces last as long as processes in them, which the
// caller ends first. It may be called repeatedly.
func (n *Net) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	n.control.Close() // which ends the hub
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	select {
	case <-n.ended:
		return nil
	case <-ctx.Done():
		n.cmd.Process.Kill()
		<-n.ended
		return errors.New("the network's hub had to be killed")
	}
}
