package nemesis

import (
	"bytes"
	"fmt"
	"os"
)

// processState reads /proc/PID/stat, see proc(5): the name in parentheses may
// hold anything, so fields are counted from the last parenthesis on.
func processState(pid int) (state, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return state{}, fmt.Errorf("process %d: %w", pid, err)
	}
	i := bytes.LastIndexByte(b, ')')
	fields := bytes.Fields(b[i+1:])
	const startField = 22 - 3 // field 22 of proc(5), where field 3 is the first here
	if i < 0 || len(fields) <= startField {
		return state{}, fmt.Errorf("process %d: cannot read its state from %q", pid, b)
	}
	return state{code: fields[0][0], start: string(fields[startField])}, nil
}
