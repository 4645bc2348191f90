package mutants_test

import (
	"os"
	"slices"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	_ "github.com/lockcheck/lockcheck/backends/all"
	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/internal/mutants"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

func suite(t *testing.T) []*scenarios.Scenario {
	t.Helper()
	all, err := scenarios.LoadAll("ci")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The set is whole: every kind of failure has a mutant, and each says what is to
// show it, and where.
func TestEveryKindHasMutants(t *testing.T) {
	kinds := map[string]int{}
	names := map[string]bool{}
	var inSuite []string
	for _, sc := range suite(t) {
		inSuite = append(inSuite, sc.Name)
	}
	for _, m := range mutants.All() {
		kinds[m.Kind]++
		if names[m.Name] {
			t.Errorf("%s is there twice", m.Name)
		}
		names[m.Name] = true
		if twin, err := mutants.Find(m.Twin); err != nil || twin.Backend() != m.Backend() {
			t.Errorf("%s has no correct twin on its servers", m.Name)
		}
		if !slices.Contains(scenarios.Properties(), m.Property) || !slices.Contains(inSuite, m.Scenario) || m.Flaw == "" {
			t.Errorf("%s does not say what shows it: %q in %q", m.Name, m.Property, m.Scenario)
		}
	}
	for _, k := range []string{"K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K10", "K11", "K12", "K13", "K14", "K15", "K16", "K17"} {
		if kinds[k] == 0 {
			t.Errorf("no mutant is of kind %s", k)
		}
	}
	if len(names) < 30 {
		t.Errorf("%d mutants, wanted 30 at least", len(names))
	}
}

// Mutants of one report say which, and the scenario of that knows them.
func TestMutantsOfOneReport(t *testing.T) {
	for _, m := range mutants.Published() {
		if twin, err := mutants.Find(m.Twin); err != nil || twin.Backend() != m.Backend() {
			t.Errorf("%s has no correct twin on its servers", m.Name)
		}
		sc, err := scenarios.Load(m.Scenario)
		if err != nil {
			t.Error(err)
			continue
		}
		of := scenarios.Subject{Backend: m.Backend(), Resource: slices.Concat(sc.Resources, []string{""})[0], Locks: []string{m.Name}}
		if len(m.Reports) != 1 || m.Flaw == "" || !slices.Contains(sc.Claims, m.Reports[0]) {
			t.Errorf("%s is not of one report: %v", m.Name, m.Reports)
		}
		if m.Property != "" && sc.Expected(of)[m.Property] != "violated" || m.Property == "" && len(sc.ExpectedFigures(of)) == 0 {
			t.Errorf("%s does not expect %s to break %q", sc.Name, m.Name, m.Property)
		}
	}
}

// Some mutants and their twins, for real; `make mutants` runs all.
func TestMutantsAreCaughtAndTheirTwinsAreNot(t *testing.T) {
	cache := deploy.NewCache()
	t.Cleanup(func() { cache.Close() })
	for _, name := range []string{
		"release-without-owner-check", "release-get-then-delete", "loss-only-logged", "setnx-then-expire",
		"token-from-local-counter", "elapsed-time-not-counted", "renew-without-owner-check", "unlock-on-another-connection",
	} {
		m, err := mutants.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			if r := run(t, m, m.Scenario, cache); r.Status != reports.Violation || r.Verdict(m.Property) != checker.Violated {
				t.Errorf("%s: %s, %s is %s: %v", m.Scenario, r.Status, m.Property, r.Verdict(m.Property), r.Reasons)
			}
			twin, err := mutants.Find(m.Twin)
			if err != nil {
				t.Fatal(err)
			}
			if r := run(t, twin, m.Scenario, cache); r.Status != reports.Pass {
				t.Errorf("%s with %s: %s: %v", m.Scenario, twin.Name, r.Status, r.Reasons)
			}
		})
	}
}

func run(t *testing.T, m mutants.Mutant, scenario string, cache *deploy.Cache) *reports.Run {
	t.Helper()
	b, err := backends.Find(m.Backend())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range b.Servers(backends.Options{}) {
		if _, err := deploy.Find(t.Context(), s.Software, ""); err != nil {
			t.Skipf("%s is not installed here: %v", s.Software, err)
		}
	}
	command, err := m.Command()
	if err != nil {
		t.Fatal(err)
	}
	scs, err := scenarios.LoadAll(scenario)
	if err != nil {
		t.Fatal(err)
	}
	r, err := harness.Run(t.Context(), scs[0], harness.Options{
		Backend: b, Resource: slices.Concat(scs[0].Resources, []string{""})[0], Client: command, Seed: 1, Repeat: 1, Cache: cache, Out: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
