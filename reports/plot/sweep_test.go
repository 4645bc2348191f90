package plot_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/lockcheck/lockcheck/reports/plot"
)

func TestLeases(t *testing.T) {
	all := []plot.Lease{
		{TTL: 100, Rate: 0.25, Recovery: 101.5}, {TTL: 1600, Rate: 0, Recovery: 1602},
		{TTL: 400, Rate: 0.05, Recovery: 402}, // in any order
	}
	var b bytes.Buffer
	if drawn, err := plot.DrawLeases(&b, all, plot.Options{}); err != nil || !drawn {
		t.Fatalf("drawn %v, %v", drawn, err)
	}
	wellFormed(t, b.String())
	const path = "testdata/leases.svg"
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the picture differs from %s: look at it, and run go test with -update", path)
	}
}

func TestACurveNeedsTwoLeases(t *testing.T) {
	var b bytes.Buffer
	for _, all := range [][]plot.Lease{nil, {{TTL: 100, Rate: 1}}, {{TTL: 100}, {TTL: 100}}} {
		if drawn, err := plot.DrawLeases(&b, all, plot.Options{}); err != nil || drawn || b.Len() > 0 {
			t.Errorf("%v: drawn %v, %v, %d bytes", all, drawn, err, b.Len())
		}
	}
}
