package main

import (
	"errors"
	"fmt"

	"github.com/lockcheck/lockcheck/reports"
)

// Exit statuses. A violation outranks everything else; docs/exit-status.md says
// what each command means by them.
const (
	exitOK           = 0
	exitViolation    = 1   // run, check: violation; reproduce: not reproduced; verify: not as expected
	exitUsage        = 2   // wrong flags, arguments or input files
	exitInconclusive = 3   // nothing was proved
	exitEnvironment  = 4   // servers, clients or files failed
	exitInterrupted  = 130 // Ctrl-C; what was recorded is kept
)

// exitError is an error that ends the program with a status.
type exitError struct {
	status int
	err    error
}

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

// usage marks an error as the user's: wrong flags, arguments or input files.
func usage(err error) error { return exitError{exitUsage, err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// environment marks an error as one of the machine.
func environment(err error) error { return exitError{exitEnvironment, err} }

// silent ends the program with a status when all has been said.
type silent int

func (s silent) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// exitStatus returns the status for an error of a command. What cobra itself
// reports is wrong usage.
func exitStatus(err error) int {
	var s silent
	var e exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &s):
		return int(s)
	case errors.As(err, &e):
		return e.status
	default:
		return exitUsage
	}
}

// rank orders exit statuses by gravity.
func rank(status int) int {
	switch status {
	case exitInconclusive:
		return 1
	case exitEnvironment:
		return 2
	case exitViolation:
		return 3
	}
	return 0
}

// finally ends a command whose runs came to a status, and which could not do all
// that it had to if err is one. The graver of the two is the status; of an interrupt
// only a violation is.
func finally(status int, err error) error {
	if err == nil {
		return ended(status)
	}
	was := exitStatus(err)
	if status == exitViolation || was != exitInterrupted && rank(status) > rank(was) {
		return exitError{status, err}
	}
	return err
}

// statusOf returns the exit status for the runs of a gate: the gravest.
func statusOf(runs []*reports.Run) int {
	worst := exitOK
	for _, r := range runs {
		s := exitOK
		switch r.Status {
		case reports.Violation:
			s = exitViolation
		case reports.Error:
			s = exitEnvironment
		case reports.Inconclusive:
			s = exitInconclusive
		}
		if rank(s) > rank(worst) {
			worst = s
		}
	}
	return worst
}
