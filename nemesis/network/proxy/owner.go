package proxy

import (
	"fmt"
	"net"
)

// Owners tells by their sockets which node opened a connection, for peers that
// all dial the same address.
type Owners struct {
	// PIDs returns the processes of every node, by its name, at the moment.
	PIDs func() map[string][]int
}

// Identify is an Identify. It asks the kernel for the socket at the other end
// of a connection, and looks for it among the open files of the known
// processes only. Linux only.
func (o Owners) Identify(accepted net.Conn) (string, error) {
	local, ok1 := accepted.LocalAddr().(*net.TCPAddr)
	remote, ok2 := accepted.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("%s is not a TCP connection", accepted.RemoteAddr())
	}
	inode, err := socketInode(remote, local)
	if err != nil {
		return "", fmt.Errorf("find the socket that %s was dialed from: %w", remote, err)
	}
	for node, pids := range o.PIDs() {
		for _, pid := range pids {
			if holdsSocket(pid, inode) {
				return node, nil
			}
		}
	}
	return "", fmt.Errorf("the connection from %s belongs to no process of any node", remote)
}
