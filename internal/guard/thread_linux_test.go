package guard

import "syscall"

func threadID() int { return syscall.Gettid() }
