package postgres

import (
	"crypto/sha256"
	"encoding/binary"
)

// keys derives the two integers of an advisory lock from its name: the first
// and the second four bytes of the name's SHA-256, big-endian. Taken together
// they make collisions of different names improbable (one in 2⁶⁴ for a pair),
// which a single CRC32 or hashtext does not: with those, tens of thousands of
// names suffice. It is the same in every process and version.
func keys(name string) (int32, int32) {
	h := sha256.Sum256([]byte(name))
	return int32(binary.BigEndian.Uint32(h[:4])), int32(binary.BigEndian.Uint32(h[4:8]))
}
