package postgres

import "testing"

// The integers are part of what users can rely on: all versions must lock the
// same keys.
func TestKeysAreStable(t *testing.T) {
	a, b := keys("job-7")
	if a != -1015295576 || b != 1177385686 {
		t.Errorf("keys %d, %d", a, b)
	}
}

// Pairs of names that share a lock where it is derived by hashtext or CRC32
// (symfony/symfony#58838).
func TestNamesThatCollideElsewhere(t *testing.T) {
	for _, pair := range [][2]string{
		{"job-5108", "job-23316"},
		{"job-43787", "job-72999"},
		{"job-42049", "job-89041"},
		{"job-034b2ea36746f7a2", "job-e7bdbc14a48ef2cc"},
	} {
		a1, b1 := keys(pair[0])
		a2, b2 := keys(pair[1])
		if a1 == a2 && b1 == b2 {
			t.Errorf("%s and %s share a lock", pair[0], pair[1])
		}
	}
}
