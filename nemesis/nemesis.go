// Package nemesis injects faults: one file a fault. A fault proves that it
// took effect; a run whose fault did not is inconclusive, never a pass.
package nemesis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockcheck/lockcheck/internal/registry"
)

// Target is something that a fault can act on: a client or a server. What can
// be done to it it shows by implementing further interfaces, such as Processes.
type Target interface {
	Name() string // as in the history: "A", "etcd-1"
}

// Processes is a Target made of operating system processes.
type Processes interface {
	// PIDs returns the processes that are running now, children included.
	PIDs() ([]int, error)
}

// Fault is a fault of one kind, in effect on its targets between Inject and
// Heal. Its methods are not called concurrently.
type Fault interface {
	// Inject brings the fault into effect on the targets and returns once it
	// is in effect, with the proof. An error says that it is not (fully); Heal
	// must then be called all the same.
	Inject(ctx context.Context, targets []Target) (Proof, error)
	// Heal ends the fault on all targets and returns once it has ended. It
	// may be called at any time, also repeatedly and without Inject.
	Heal(ctx context.Context) (Proof, error)
}

// Proof is what was observed that shows that a fault is in effect, or over.
type Proof string

// Kind is a kind of fault as registered under the name that users type.
type Kind struct {
	Name    string // "pause"
	Summary string // one line
	// Available returns nil if the fault can be injected on this machine,
	// else an error that says what is missing. Nil means always.
	Available func() error
	// New makes a fault, and does nothing yet; see Make. Params are among
	// Params; values that it cannot do it refuses, with what it wants.
	New func(params map[string]string) (Fault, error)
	// Params names the parameters with a line of explanation each.
	Params map[string]string
	// Needs are the powers that targets must have been given when they were
	// started, of those below: whoever starts them saves what no fault of
	// a run needs.
	Needs []string
}

// Powers over targets, the values of Kind.Needs.
const (
	Links = "links" // their connections pass proxies, see package network
	Clock = "clock" // they were started with a clock of their own, see package clock
	Disk  = "disk"  // they were started with a disk of their own, see package disk
	// They are in network namespaces of their own, see package netns.
	Namespaces = "namespaces"
	// They are containers, see Contained.
	Containers = "containers"
)

// Make makes a fault with the parameters, whose names it checks. It can be called
// without injecting the fault, to find out whether the parameters are right.
func (k Kind) Make(params map[string]string) (Fault, error) {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if _, ok := k.Params[name]; ok {
			continue
		}
		if len(k.Params) == 0 {
			return nil, fmt.Errorf("fault %s has no parameter %q, nor any other", k.Name, name)
		}
		return nil, fmt.Errorf("fault %s has no parameter %q: it has %s", k.Name, name, strings.Join(slices.Sorted(maps.Keys(k.Params)), ", "))
	}
	return k.New(params)
}

var kinds = registry.New[Kind]("fault")

// Register adds a kind of fault. It is called from init functions.
func Register(k Kind) { kinds.Register(k.Name, k) }

// Names returns the names of all kinds of faults, sorted.
func Names() []string { return kinds.Names() }

// Find returns the kind of fault registered under name.
func Find(name string) (Kind, error) { return kinds.Find(name) }
