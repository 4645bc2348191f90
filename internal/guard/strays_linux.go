package guard

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// strayRounds bounds how often EndStrays looks: a process that forks meanwhile may
// have its child overlooked once, not so often.
const strayRounds = 20

// EndStrays kills the processes that have the variable, "NAME=value", in the environment
// that they were started with. The variable must be unique to those that are to be
// ended: so what a process has started is found even if it has left its group and
// its session, and its parent is gone.
func EndStrays(variable string) {
	for range strayRounds {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		found := false
		for _, file := range files {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err == nil && marked(file, variable) && end(pid, file, variable) {
				found = true
			}
		}
		if !found {
			return
		}
	}
}

// marked reports whether a process that has not ended has the variable.
func marked(file, variable string) bool {
	env, err := os.ReadFile(file)
	return err == nil && bytes.Contains(append([]byte{0}, env...), append([]byte{0}, variable+"\x00"...))
}

// end kills a process, and no other that has got its number in the meantime.
func end(pid int, file, variable string) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return marked(file, variable) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
