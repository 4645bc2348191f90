package trackrecord_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/lockcheck/lockcheck/backends/all"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/selfexec"
	"github.com/lockcheck/lockcheck/internal/trackrecord"
	"github.com/lockcheck/lockcheck/scenarios"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

// public is how many public reports there are.
const public = 28

// Each report has a scenario of its own, which says where it comes from, and all
// are in the suite.
func TestEachReportIsAScenario(t *testing.T) {
	all := trackrecord.Reports()
	if len(all) != public {
		t.Errorf("%d reports, want %d", len(all), public)
	}
	suite, err := scenarios.LoadSuite("bugs")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	kinds := map[string]bool{}
	for _, r := range all {
		names = append(names, r.Scenario)
		kinds[r.Kind] = true
		sc, err := scenarios.Load(r.Scenario)
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.HasPrefix(sc.Name, "bug-") || !slices.Contains(sc.Claims, r.Public) {
			t.Errorf("%s does not bear the name of %s: its claims are %v", sc.Name, r.Public, sc.Claims)
		}
		if !strings.Contains(string(sc.Source), r.URL) || !strings.Contains(string(sc.Source), "Kind "+r.Kind+",") {
			t.Errorf("%s does not say that it is %s, of kind %s", sc.Name, r.URL, r.Kind)
		}
		if r.Wrong == "" || r.Subject.What == "" || r.Control.What == "" {
			t.Errorf("%s: %+v does not say what goes wrong, or what was run", r.Scenario, r)
		}
	}
	if !slices.Equal(names, suite.Scenarios) {
		t.Errorf("the suite bugs has %v, want %v", suite.Scenarios, names)
	}
	for k := 1; k <= 17; k++ {
		if kind := fmt.Sprintf("K%d", k); !kinds[kind] {
			t.Errorf("no report is of kind %s", kind)
		}
	}
}

// A row that expected nothing would be reproduced by whatever came out.
func TestASubjectMustFailInAWayInWhichItsControlMustNot(t *testing.T) {
	for _, r := range trackrecord.Reports() {
		bad, good := expects(t, r, r.Subject), expects(t, r, r.Control)
		shown := false
		for what, value := range bad {
			counter, ok := good[what]
			if value == "violated" && good["status"] == "pass" {
				shown = true // nothing is to be violated there
			}
			if value != "held" && value != "not applicable" && value != scenarios.None && what != "status" && ok && counter != value {
				shown = true
			}
		}
		if !shown {
			t.Errorf("%s: nothing that is expected of the subject, %v, is expected otherwise of the control, %v", r.Scenario, bad, good)
		}
	}
}

// expects is all that is expected of a trial, by property, finding and figure.
func expects(t *testing.T, r trackrecord.Report, trial trackrecord.Trial) map[string]string {
	t.Helper()
	sc, of, err := trial.Subject(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if !sc.Supports(trial.Backend) {
		t.Errorf("%s is not for %s", sc.Name, trial.Backend)
	}
	all := map[string]string{"status": sc.ExpectedStatus(of)}
	for property, verdict := range sc.Expected(of) {
		all[property] = verdict
	}
	for code, found := range sc.ExpectedFindings(of) {
		all["finding "+code] = found
	}
	for name, figure := range sc.ExpectedFigures(of) {
		all["figure "+name] = figure.String()
	}
	return all
}

// What is published is what was run: a row for each report, ten runs of each, and the
// page is made from the numbers.
func TestThePageIsCurrent(t *testing.T) {
	results, err := trackrecord.Read("../../docs/track-record.json")
	if err != nil {
		t.Fatal(err)
	}
	if merged := trackrecord.Merge(results, nil); len(merged) != public {
		t.Errorf("docs/track-record.json has %d of %d reports: run make track-record", len(merged), public)
	}
	for _, r := range results {
		for _, o := range []trackrecord.Outcome{r.Subject, r.Control} {
			if o.Runs < 10 || o.AsTold+len(o.Unlike) != o.Runs {
				t.Errorf("%s: %d of %d runs of %s came out as expected, and %d are told to have not", r.Scenario, o.AsTold, o.Runs, o.What, len(o.Unlike))
			}
		}
	}
	for _, r := range trackrecord.Reports() {
		at := slices.IndexFunc(results, func(x trackrecord.Result) bool { return x.Scenario == r.Scenario })
		if at < 0 {
			continue
		}
		for _, x := range []struct {
			trial trackrecord.Trial
			told  trackrecord.Outcome
		}{{r.Subject, results[at].Subject}, {r.Control, results[at].Control}} {
			sc, of, err := x.trial.Subject(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			of.Versions = x.told.Versions
			if want := trackrecord.Evidence(sc, of); !slices.Equal(x.told.Expected, want) {
				t.Errorf("%s: %s was to show %q, and is to show %q now: run make track-record REPORTS=%s", r.Scenario, x.told.What, x.told.Expected, want, r.Scenario)
			}
		}
	}
	page, err := os.ReadFile("../../docs/track-record.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != string(trackrecord.Markdown(results)) {
		t.Error("docs/track-record.md is not what docs/track-record.json says: run make track-record")
	}
}

// Some reports for real; `make track-record` runs all, and each ten times.
func TestReportsAreReproduced(t *testing.T) {
	cache := deploy.NewCache()
	t.Cleanup(func() {
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
	})
	clients := trackrecord.Clients{Dir: "../../clients", Bin: t.TempDir()}
	built := clients.Build(t.Context())
	all, err := trackrecord.Choose([]string{"bug-shedlock-2583", "bug-redlock-py-6", "bug-mockforge-968", "bug-redsync-126"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		t.Run(r.Scenario, func(t *testing.T) {
			if built != nil && !strings.HasPrefix(r.Subject.What, "mutant") {
				t.Skip(built)
			}
			res, err := trackrecord.Run(t.Context(), r, trackrecord.Options{Runs: 1, Clients: clients, Cache: cache, Out: t.TempDir(), Now: time.Now})
			if errors.Is(err, exec.ErrNotFound) {
				t.Skipf("%v (lockcheck doctor says how to install it)", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []trackrecord.Outcome{res.Subject, res.Control} {
				if o.AsTold != 1 || len(o.Expected) == 0 || len(o.Versions) == 0 {
					t.Errorf("%s: %+v", o.What, o)
				}
			}
		})
	}
}

// A program that is not there, or a row that is none, is no result.
func TestWhatCannotBeRunIsAnError(t *testing.T) {
	all, err := trackrecord.Choose([]string{"bug-shedlock-2583"})
	if err != nil {
		t.Fatal(err)
	}
	r := all[0]
	r.Subject.Client, r.Subject.Lock = []string{"go/none"}, "none"
	_, err = trackrecord.Run(t.Context(), r, trackrecord.Options{Runs: 1, Clients: trackrecord.Clients{Bin: t.TempDir()}, Out: t.TempDir(), Now: time.Now})
	if err == nil || !strings.Contains(err.Error(), "bug-shedlock-2583") {
		t.Errorf("the error is %v", err)
	}
	if _, err := trackrecord.Choose([]string{"bug-none-1"}); !errors.Is(err, trackrecord.ErrUnknown) {
		t.Errorf("the error is %v", err)
	}
}
