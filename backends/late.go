package backends

import (
	"fmt"
	"time"
)

// TooLate returns an error if a lease of ttl that was asked for at some time may
// be over, since the answer took that long: who hears of it now must not rely on
// it. The error is a certain failure; whoever returns it has given the lock back.
func TooLate(asked time.Time, ttl time.Duration) error {
	if took := time.Since(asked); took >= ttl {
		return Failed(fmt.Errorf("the answer took %v, of a lease of %v: too late to rely on it", took.Round(time.Millisecond), ttl))
	}
	return nil
}
