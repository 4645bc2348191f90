package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// derive returns the arguments, in SQL, of an advisory lock with a name.
type derive func(name string) string

func twoIntegers(name string) string {
	a, b := keys(name)
	return fmt.Sprintf("%d, %d", a, b)
}

// bigint has as many bits, in the space of keys that is more in use.
func bigint(name string) string {
	h := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%d", int64(binary.BigEndian.Uint64(h[:8])))
}

// hashtext is what many applications do: the 32 bits of the server's own hash,
// so that one pair among tens of thousands of names shares a lock. Its values
// may differ from one major version to the next.
func hashtext(name string) string {
	return "hashtext('" + strings.ReplaceAll(name, "'", "''") + "')"
}

// keys derives the two integers of an advisory lock from its name: the first
// and the second four bytes of the name's SHA-256, big-endian. Taken together
// they make collisions of different names improbable (one in 2⁶⁴ for a pair),
// which a single CRC32 or hashtext does not: with those, tens of thousands of
// names suffice. It is the same in every process and version.
func keys(name string) (int32, int32) {
	h := sha256.Sum256([]byte(name))
	return int32(binary.BigEndian.Uint32(h[:4])), int32(binary.BigEndian.Uint32(h[4:8]))
}
