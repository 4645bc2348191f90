//go:build unix && !linux

package nemesis

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
)

// processState asks ps(1), where there is no /proc.
func processState(pid int) (state, error) {
	b, err := exec.Command("ps", "-o", "state=,lstart=", "-p", strconv.Itoa(pid)).Output()
	code, start, ok := bytes.Cut(bytes.TrimSpace(b), []byte(" "))
	if err != nil || !ok {
		return state{}, fmt.Errorf("process %d: ps does not know it", pid)
	}
	return state{code: code[0], start: string(bytes.TrimSpace(start))}, nil
}
