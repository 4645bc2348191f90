//go:build !linux

package starve

import (
	"errors"
	"os/exec"
	"time"
)

var errLinux = errors.New("only Linux lets one say on which processor a process runs")

// CanPin says that threads cannot be told which processors to run on.
func CanPin() error { return errLinux }

// Affinity returns the error of CanPin.
func Affinity(int) (CPUs, error) { return nil, errLinux }

// SetAffinity returns the error of CanPin.
func SetAffinity(int, CPUs) error { return errLinux }

// Threads returns the error of CanPin.
func Threads(int) ([]int, error) { return nil, errLinux }

// Yields returns the error of CanPin.
func Yields(int) error { return errLinux }

func newSession(*exec.Cmd) {}

func processorTime(int) (time.Duration, error) { return 0, errLinux }
