package main

import (
	"path/filepath"
	"regexp"
	"testing"
)

// TestServersInContainersHaveClocksAndDisks has a server in a container whose clock
// jumps, and members whose disk is slow, which both take a look at the server's own
// process to prove.
func TestServersInContainersHaveClocksAndDisks(t *testing.T) {
	for _, tt := range []struct{ scenario, software, proof string }{
		{"r7-clock", "redis", `"proof":"redis: processes that have the clock: 1 of 1, probe shows wall \+10\.000s at rate 1\.000, it says that the time is \+(10\.0|9\.9)\d\ds from the true one"`},
		{"e4-slow-disk", "etcd", `"proof":"etcd-1: processes whose system calls are intercepted: 1 of 1, probe: write ok, sync ok after \d`},
	} {
		t.Run(tt.scenario, func(t *testing.T) {
			needContainers(t, tt.software)
			out := t.TempDir()
			cmd := lockcheck(t, "verify", tt.scenario, "--runtime", "docker", "--backend", tt.software, "--out", out)
			text, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != exitOK {
				t.Fatalf("exit status is %d, want %d:\n%s", got, exitOK, text)
			}
			history := only(t, filepath.Join(out, "*", "history.jsonl"))
			if !regexp.MustCompile(tt.proof).MatchString(history) {
				t.Errorf("there is no proof that the fault was in effect:\n%s", history)
			}
			noneLeft(t, out)
		})
	}
}
