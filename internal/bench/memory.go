package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// ownMemory is the memory of a process that no other shares, and its part of what
// they share (PSS), in bytes. Linux alone tells.
func ownMemory(pid int) (int64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var kb int64
		if n, _ := fmt.Sscanf(s.Text(), "Pss: %d kB", &kb); n == 1 {
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("process %d: no Pss", pid)
}
