package proxy

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Layout of the kernel's inet_diag messages, see linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	nlmsgHeader      = 16
	diagRequest      = 56
	diagInode        = nlmsgHeader + 4 + 48 + 16 // in an answer
)

// socketInode returns the inode of the IPv4 TCP socket with these addresses. It
// asks for exactly one (sock_diag), which takes some 30 µs however many there
// are, and needs no privilege.
func socketInode(local, remote *net.TCPAddr) (uint32, error) {
	src, dst := local.IP.To4(), remote.IP.To4()
	if src == nil || dst == nil {
		return 0, errors.New("only IPv4 is supported")
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(time.Second.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return 0, err
	}

	msg := make([]byte, nlmsgHeader+diagRequest)
	native := binary.NativeEndian
	native.PutUint32(msg[0:], uint32(len(msg)))
	native.PutUint16(msg[4:], sockDiagByFamily)
	native.PutUint16(msg[6:], unix.NLM_F_REQUEST)
	q := msg[nlmsgHeader:]
	q[0], q[1] = unix.AF_INET, unix.IPPROTO_TCP
	native.PutUint32(q[4:], ^uint32(0)) // any state
	binary.BigEndian.PutUint16(q[8:], uint16(local.Port))
	binary.BigEndian.PutUint16(q[10:], uint16(remote.Port))
	copy(q[12:], src)
	copy(q[28:], dst)
	native.PutUint32(q[48:], ^uint32(0)) // no cookie
	native.PutUint32(q[52:], ^uint32(0))
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}
	if n >= nlmsgHeader+4 && native.Uint16(answer[4:]) == unix.NLMSG_ERROR {
		return 0, unix.Errno(-int32(native.Uint32(answer[nlmsgHeader:])))
	}
	if n < diagInode+4 {
		return 0, errors.New("the kernel's answer is too short")
	}
	inode := native.Uint32(answer[diagInode:])
	if inode == 0 {
		return 0, errors.New("the socket is closed already")
	}
	return inode, nil
}

// holdsSocket tells whether a process has a socket open.
func holdsSocket(pid int, inode uint32) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	d, err := os.Open(dir)
	if err != nil {
		return false // it has ended, which answers the question
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	want := "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]"
	for _, name := range names {
		if to, err := os.Readlink(dir + "/" + name); err == nil && to == want {
			return true
		}
	}
	return false
}
