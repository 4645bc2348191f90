package nemesis

import "syscall"

func threadID() int { return syscall.Gettid() }
