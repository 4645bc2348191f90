package nemesis

import (
	"errors"
	"fmt"
	"slices"
)

// EachProcess checks every process of a target, and returns how many there are.
// The first that fails its check ends it, unless the process has ended meanwhile.
// A target without a process is an error.
func EachProcess(p Processes, check func(pid int) error) (int, error) {
	pids, err := p.PIDs()
	if err != nil {
		return 0, fmt.Errorf("list its processes: %w", err)
	}
	n := 0
	for _, pid := range pids {
		err := check(pid)
		if err == nil {
			n++
			continue
		}
		left, listErr := p.PIDs()
		if listErr != nil {
			return 0, fmt.Errorf("list its processes: %w", listErr)
		}
		if slices.Contains(left, pid) {
			return 0, err
		}
	}
	if n == 0 {
		return 0, errors.New("it has no process")
	}
	return n, nil
}
