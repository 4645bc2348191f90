package harness

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The pauses of a sweep are those of a Pareto distribution, and the same for the
// same seed.
func TestPausesOfASweep(t *testing.T) {
	s := Sweep{Pauses: 10_000, Least: 20 * time.Millisecond, Most: 5 * time.Second, Tail: 1}
	all := s.Draw(1)
	if !slices.Equal(all, s.Draw(1)) || slices.Equal(all, s.Draw(2)) {
		t.Error("the pauses are no function of the seed")
	}
	if slices.Min(all) < s.Least || slices.Max(all) != s.Most {
		t.Errorf("pauses from %v to %v", slices.Min(all), slices.Max(all))
	}
	for _, longer := range []time.Duration{40 * time.Millisecond, 200 * time.Millisecond, 2 * time.Second} {
		n := 0
		for _, d := range all {
			if d > longer {
				n++
			}
		}
		got, want := float64(n)/float64(len(all)), float64(s.Least)/float64(longer)
		if sigma := math.Sqrt(want / float64(len(all))); math.Abs(got-want) > 4*sigma {
			t.Errorf("%.4f of the pauses are longer than %v, want %.4f", got, longer, want)
		}
	}
}

func TestWhatASweepCannotMeasure(t *testing.T) {
	good := Sweep{TTLs: []time.Duration{time.Second}, Pauses: 1, Least: time.Millisecond, Most: time.Second, Tail: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Sweep){
		"needs leases":            func(s *Sweep) { s.TTLs = nil },
		"lease 0s":                func(s *Sweep) { s.TTLs = append(s.TTLs, 0) },
		"0 pauses":                func(s *Sweep) { s.Pauses = 0 },
		"-1 deaths":               func(s *Sweep) { s.Deaths = -1 },
		"pauses from 2s to 1s":    func(s *Sweep) { s.Least = 2 * time.Second },
		"tail NaN":                func(s *Sweep) { s.Tail = math.NaN() },
		"tail 0: must be above 0": func(s *Sweep) { s.Tail = 0 },
	} {
		s := good
		s.TTLs = slices.Clone(good.TTLs)
		change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A pause counts as a violation if another client is granted the lock in it, and
// a death's recovery lasts until the next grant.
func TestFiguresOfASweep(t *testing.T) {
	dir := t.TempDir()
	lines := `{"index":0,"time":1000000,"process":"c1","type":"invoke","f":"acquire","key":"k"}
{"index":1,"time":2000000,"process":"c1","type":"ok","f":"acquire","key":"k"}
{"index":2,"time":3000000,"process":"nemesis","type":"ok","f":"pause","value":{"on":["c1"]}}
{"index":3,"time":3000001,"process":"c2","type":"invoke","f":"acquire","key":"k"}
{"index":4,"time":4000000,"process":"nemesis","type":"info","f":"heal","value":{"fault":"pause","on":["c1"]}}
{"index":5,"time":5000000,"process":"nemesis","type":"ok","f":"pause","value":{"on":["c1"]}}
{"index":6,"time":6000000,"process":"c2","type":"ok","f":"acquire","key":"k"}
{"index":7,"time":7000000,"process":"nemesis","type":"info","f":"heal","value":{"fault":"pause","on":["c1"]}}
{"index":8,"time":8000000,"process":"nemesis","type":"ok","f":"kill","value":{"on":["c2"]}}
{"index":9,"time":8000001,"process":"c3","type":"invoke","f":"acquire","key":"k"}
{"index":10,"time":11000000,"process":"c3","type":"ok","f":"acquire","key":"k"}
`
	if err := os.WriteFile(filepath.Join(dir, HistoryFile), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	if p.Pauses != 2 || p.Violations != 1 || p.Rate() != 0.5 || !slices.Equal(p.Recoveries, []time.Duration{3 * time.Millisecond}) {
		t.Errorf("%+v", p)
	}
}
