//go:build !linux

package proxy

import (
	"errors"
	"net"
)

var errNoDiag = errors.New("unavailable: only Linux tells whose a socket is")

func socketInode(_, _ *net.TCPAddr) (uint32, error) { return 0, errNoDiag }

func holdsSocket(int, uint32) bool { return false }
