package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// probeRole is a process that writes to a file, syncs it, and says what happened.
const probeRole = "disk-probe"

func init() { selfexec.Register(probeRole, probeMain) }

// observed is what the probe saw.
type observed struct {
	Write syscall.Errno `json:"write"`
	Sync  syscall.Errno `json:"sync"`
	Took  time.Duration `json:"took"` // by the sync
}

func probeMain(args []string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, probeRole+":", err)
		return 1
	}
	if len(args) != 0 {
		return fail(errors.New("want no arguments"))
	}
	// In memory, so that nothing is left behind: it is the calls that are
	// intercepted, whatever the file.
	f, err := memoryFile()
	if err != nil {
		return fail(err)
	}
	var o observed
	if _, err := f.Write([]byte("probe\n")); err != nil && !errors.As(err, &o.Write) {
		return fail(err)
	}
	start := time.Now()
	if err := f.Sync(); err != nil && !errors.As(err, &o.Sync) {
		return fail(err)
	}
	o.Took = time.Since(start)
	if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
		return fail(err)
	}
	return 0
}

// healthySync bounds how long a healthy disk takes to sync a few bytes, beyond
// what a busy machine does.
const healthySync = 10 * time.Second

// probe runs a process with the control's disk and returns an error unless it
// sees what b says. So it proves the whole way from the control to a program.
func (c *Control) probe(ctx context.Context, b Behaviour) (string, error) {
	o, err := c.observe(ctx)
	if err != nil {
		return "", fmt.Errorf("probe of the disk: %w", err)
	}
	var full syscall.Errno
	if b.Full {
		full = syscall.ENOSPC
	}
	switch {
	case o.Write != full:
		return "", fmt.Errorf("probe of the disk: a write ended with %s, want %s", outcome(o.Write), outcome(full))
	case o.Sync != b.Fail:
		return "", fmt.Errorf("probe of the disk: a sync ended with %s, want %s", outcome(o.Sync), outcome(b.Fail))
	case o.Took < b.Delay || o.Took > b.Delay+healthySync:
		return "", fmt.Errorf("probe of the disk: a sync took %v, want at least %v", o.Took, b.Delay)
	}
	return fmt.Sprintf("write %s, sync %s after %v", outcome(o.Write), outcome(o.Sync), o.Took.Round(10*time.Microsecond)), nil
}

func outcome(e syscall.Errno) string {
	if e == 0 {
		return "ok"
	}
	return e.Error()
}

func (c *Control) observe(ctx context.Context) (o observed, err error) {
	argv, err := selfexec.Command(probeRole)
	if err != nil {
		return o, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return o, err
	}
	if err := guard.StartBy(cmd, func() error { return execstop.Start(cmd, execstop.Options{}, c) }); err != nil {
		return o, err
	}
	defer guard.Forget(cmd)
	err = json.NewDecoder(out).Decode(&o)
	return o, errors.Join(err, cmd.Wait())
}
