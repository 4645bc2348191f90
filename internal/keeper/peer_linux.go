package keeper

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peer returns the process at the other end, as it is numbered here.
func peer(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, optErr); err != nil {
		return 0, fmt.Errorf("find the process of the keeper: %w", err)
	}
	return int(cred.Pid), nil
}
