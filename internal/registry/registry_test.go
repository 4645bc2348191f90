package registry

import (
	"slices"
	"testing"
)

func TestRegistry(t *testing.T) {
	r := New[int]("number")
	r.Register("two", 2)
	r.Register("one", 1)
	if got := r.Names(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("Names() = %v", got)
	}
	if got, err := r.Find("two"); got != 2 || err != nil {
		t.Errorf("Find(two) = %v, %v", got, err)
	}
	if _, err := r.Find("three"); err == nil || err.Error() != `unknown number "three": there are one, two` {
		t.Errorf("Find(three) = %v", err)
	}
	defer func() {
		if got := recover(); got != "number one is registered twice" {
			t.Errorf("registering a name again: %v", got)
		}
	}()
	r.Register("one", 3)
}
