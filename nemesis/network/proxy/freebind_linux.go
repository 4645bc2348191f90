package proxy

import "golang.org/x/sys/unix"

// freeBind lets a socket be bound to an address that is not there yet, such as that
// of a bridge which is made later.
func freeBind(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1) }
