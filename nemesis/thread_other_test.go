//go:build !linux

package nemesis

func threadID() int { return 0 }
