package scenarios

import "testing"

// FuzzParseDuration: what is read is written so that it reads as the same.
func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"0", "200ms", "1.2 ttl", "1m30s", "-1s", "ttl", "1e9 ttl", "NaN ttl"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			return
		}
		again, err := ParseDuration(d.String())
		if err != nil || again.String() != d.String() {
			t.Errorf("%q is read as %v, and that as %v, %v", s, d, again, err)
		}
	})
}
