package harness

import (
	"strings"
	"testing"
	"time"
)

func TestStalls(t *testing.T) {
	const ms = time.Millisecond
	type tick struct{ mono, wall time.Duration }
	for _, tt := range []struct {
		name  string
		ticks []tick
		want  string // part of the doubt; "" for none
	}{
		{"all is well", []tick{{10 * ms, 10 * ms}, {21 * ms, 21 * ms}, {30 * ms, 30 * ms}}, ""},
		{"late, but less than a lease", []tick{{10 * ms, 10 * ms}, {100 * ms, 100 * ms}, {110 * ms, 110 * ms}}, ""},
		{"often late, never for a lease", []tick{{90 * ms, 90 * ms}, {180 * ms, 180 * ms}, {270 * ms, 270 * ms}}, ""},
		{"stopped for a lease", []tick{{10 * ms, 10 * ms}, {140 * ms, 140 * ms}}, "did not run for 120ms"},
		{"clock set back", []tick{{10 * ms, -990 * ms}, {20 * ms, -980 * ms}}, "-1.000 s"},
		{"suspended", []tick{{10 * ms, 60010 * ms}}, "+60.000 s"},
		{"clock slewed", []tick{{20 * ms, 20*ms + 10*time.Microsecond}, {40 * ms, 40*ms + 20*time.Microsecond}}, ""},
		{"clock set there and back", []tick{{10 * ms, 1010 * ms}, {20 * ms, 20 * ms}}, "+1.000 s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stalls{every: 10 * ms}
			for _, k := range tt.ticks {
				s.tick(k.mono, k.wall)
			}
			got := s.doubt(100 * ms)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("the doubt is %q, want %q", got, tt.want)
			}
		})
	}
}
