package backends

import (
	"errors"
	"net"
)

// NotDialed reports whether err says that no connection could be made: so
// nothing was sent, and an operation that met it certainly had no effect.
func NotDialed(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
