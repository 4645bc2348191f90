package scenarios_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/scenarios"
)

func TestRange(t *testing.T) {
	const ttl = 2 * time.Second
	for _, c := range []struct {
		text    string
		in, out []float64
	}{
		{"3", []float64{3}, []float64{2.9, 3.1}},
		{"0.9..1.1", []float64{0.9, 1, 1.1}, []float64{0.88, 1.12}},
		{"50..", []float64{50, 1e9}, []float64{49}},
		{"..1.5 ttl", []float64{0, 3000}, []float64{3001}},
		{"900ms..1.5 ttl", []float64{900, 3000}, []float64{899, 3001}},
	} {
		r, err := scenarios.ParseRange(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		for _, v := range c.in {
			if !r.Contains(v, ttl) {
				t.Errorf("%v is not in %s", v, r)
			}
		}
		for _, v := range c.out {
			if r.Contains(v, ttl) {
				t.Errorf("%v is in %s", v, r)
			}
		}
	}
	for _, text := range []string{"", "..", "x", "1..2s", "1...2", "-1s..", "NaN..", "1..2..3"} {
		if r, err := scenarios.ParseRange(text); err == nil {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"3", "0.9..1.1", "..1.5 ttl", "900ms..", ".."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := scenarios.ParseRange(s); err == nil && r.String() != s {
			t.Errorf("%q became %q", s, r)
		}
	})
}

// What is measured on a backend is what the scenario asks for and what it expects
// there; later entries override earlier ones.
func TestMeasures(t *testing.T) {
	s, err := scenarios.Parse("x.yaml", []byte(`
name: x
clients: [A]
figures: waiters
steps: [{client: A, do: acquire}]
expect:
  - figures: {acquire: ..1s}
  - {backends: etcd, figures: {acquire: ..2s, freed-after: 1 ttl..}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for backend, want := range map[string][]string{
		"redis": {"acquire", "waiters"},
		"etcd":  {"freed-after", "acquire", "waiters"},
	} {
		if got := s.Measures(backend, "unfenced"); !slices.Equal(got, want) {
			t.Errorf("on %s %v are measured, want %v", backend, got, want)
		}
	}
	got := map[string]string{}
	for name, r := range s.ExpectedFigures(scenarios.Subject{Backend: "etcd", Resource: "unfenced"}) {
		got[name] = r.String()
	}
	if want := map[string]string{"acquire": "..2s", "freed-after": "1 ttl.."}; !maps.Equal(got, want) {
		t.Errorf("expected %v, want %v", got, want)
	}
}
