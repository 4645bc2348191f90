package etcd

import (
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	const text = "# HELP a_total of\n# TYPE a_total counter\na_total_more 5\na_total 1.234567e+06\nb{x=\"y\"} 2\n"
	if n, err := find(strings.NewReader(text), "a_total"); n != 1234567 || err != nil {
		t.Errorf("a_total is %d, %v", n, err)
	}
	for _, name := range []string{"b", "none"} {
		if n, err := find(strings.NewReader(text), name); err == nil {
			t.Errorf("%s is %d", name, n)
		}
	}
}
