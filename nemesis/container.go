package nemesis

import "context"

// Contained is a Target that may be a container.
type Contained interface {
	// Container returns nil if the target is made of processes of this machine.
	Container() Container
}

// Container is what an engine can do to a container. What the methods return is
// what the engine says of it afterwards.
type Container interface {
	// Freeze freezes all its processes, Thaw lets them go on. One that does not run
	// any more needs no Thaw.
	Freeze(context.Context) (string, error)
	Thaw(context.Context) (string, error)
	// Kill ends it as SIGKILL does and returns when it is gone.
	Kill(context.Context) error
	// Leave takes it off a network of the run, "clients" or "peers"; Rejoin puts it
	// back on all that it left, at the same addresses.
	Leave(ctx context.Context, network string) (string, error)
	Rejoin(context.Context) (string, error)
}

// containerOf returns nil if a target is no container.
func containerOf(t Target) Container {
	if c, ok := t.(Contained); ok {
		return c.Container()
	}
	return nil
}
