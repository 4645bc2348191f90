// Package netns cuts links between nodes at the level of packets, which a TCP
// proxy can't: connections stay half open, SYNs are lost, keepalives go
// unanswered, and the kernel's own timeouts decide.
//
// Every node is a network namespace, joined by a bridge in a namespace of its own;
// packets are dropped by the firewall of the node that should receive them. All
// of it belongs to one process, the hub, and has no name anywhere: when the
// hub ends, and it ends when the harness does, however that comes about,
// the kernel removes namespaces, links, addresses and rules. The machine's
// own network is never touched. Needs Linux, and root or user namespaces.
package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
)

// Flow is the packets from one node to another.
type Flow struct {
	From, To string
}

func (f Flow) String() string { return f.From + "->" + f.To }

// Node is a node's network namespace.
type Node struct {
	Name string
	Addr netip.Addr // its address in the run's network

	net  *Net
	path string // of its namespace, as long as the hub lives
}

// Credential is a user to run a command as.
type Credential struct {
	UID, GID uint32
}

// Command returns a command line that enters the node's namespace and then becomes
// argv, under the same process id. If as is not nil, argv runs as that user. Only
// root can ask for that, and must not do it by other means, such as
// SysProcAttr.Credential, since only root may enter.
func (n *Node) Command(as *Credential, argv ...string) []string {
	enter := []string{"nsenter", "--net=" + n.path}
	if n.net.user != "" {
		enter = append(enter, "--user="+n.net.user, "--preserve-credentials")
	}
	if as != nil {
		enter = append(enter, fmt.Sprintf("--setgid=%d", as.GID), fmt.Sprintf("--setuid=%d", as.UID))
	}
	return append(append(enter, "--"), argv...)
}

// tools are programs that must be installed, with Debian's packages of them.
var tools = []struct{ name, pkg string }{
	{"ip", "iproute2"},
	{"nsenter", "util-linux"},
}

// missingTools returns an error that names what has to be installed.
func missingTools() error {
	var errs []error
	for _, t := range tools {
		if _, err := exec.LookPath(t.name); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed: install %s", t.name, t.pkg))
		}
	}
	if _, err := findFirewall(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
