package history

import (
	"hash/maphash"
	"slices"
	"strings"
)

// table gives equal texts equal small numbers. It takes bytes, so that a text
// is copied once however often it occurs, and costs a slot of eight bytes and
// a string header a text: half of what a map costs.
type table struct {
	seed  maphash.Seed
	slots []slot // a power of two, at most half full
	names []string
	last  int32 // the number given last; histories repeat themselves
	arena strings.Builder
}

type slot struct {
	hash uint32
	id   int32 // number + 1; 0 is an empty slot
}

const arenaSize = 1 << 14

func newTable(names ...string) *table {
	t := &table{seed: maphash.MakeSeed(), slots: make([]slot, 64)}
	for _, n := range names {
		t.id([]byte(n))
	}
	return t
}

// id returns the number of b, a new one if b has not been seen.
func (t *table) id(b []byte) int32 {
	if int(t.last) < len(t.names) && t.names[t.last] == string(b) {
		return t.last
	}
	h := uint32(maphash.Bytes(t.seed, b))
	mask := uint32(len(t.slots) - 1)
	i := h & mask
	for ; t.slots[i].id != 0; i = (i + 1) & mask {
		if s := t.slots[i]; s.hash == h && t.names[s.id-1] == string(b) {
			t.last = s.id - 1
			return t.last
		}
	}
	t.names = push(t.names, t.keep(b))
	t.last = int32(len(t.names) - 1)
	t.slots[i] = slot{h, t.last + 1}
	if 2*len(t.names) > len(t.slots) {
		t.grow()
	}
	return t.last
}

// push appends v and doubles s when it is full: append grows by a quarter, and
// leaves behind four times what it grows to.
func push[T any](s []T, v T) []T {
	if len(s) == cap(s) {
		s = slices.Grow(s, max(64, len(s)))
	}
	return append(s, v)
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	mask := uint32(len(t.slots) - 1)
	for _, s := range old {
		if s.id == 0 {
			continue
		}
		i := s.hash & mask
		for t.slots[i].id != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = s
	}
}

// keep copies b into a string; small ones share an allocation.
func (t *table) keep(b []byte) string {
	if len(b) > arenaSize/16 {
		return string(b)
	}
	if t.arena.Cap()-t.arena.Len() < len(b) {
		t.arena = strings.Builder{}
		t.arena.Grow(arenaSize)
	}
	from := t.arena.Len()
	t.arena.Write(b)
	return t.arena.String()[from:]
}
