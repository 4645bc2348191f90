package checker

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestVisualize(t *testing.T) {
	h := read(t, `
		A acquire 0-2 ok ttl=1000
		B acquire 400-402 ok ttl=1000
		A release 500-501 ok`)
	for _, property := range []string{Mutex, Lease} {
		var page bytes.Buffer
		if err := Visualize(h, Options{}, property, &page); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), "granted to A") {
			t.Errorf("%s: the page does not show the grants", property)
		}
	}
	if err := Visualize(h, Options{}, Token, &bytes.Buffer{}); !errors.Is(err, ErrNothingToShow) {
		t.Errorf("a property that is not violated: %v", err)
	}
}
