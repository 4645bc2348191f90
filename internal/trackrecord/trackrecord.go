// Package trackrecord runs public reports of locks that failed, each as a scenario
// with the software that it is about or a client that has its flaw, and a control beside
// it, and writes what came of them: docs/track-record.md. Nothing in it is written by
// hand but what the reports say.
package trackrecord

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/deploy"
	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// Report is one public report, and how it is repeated.
type Report struct {
	Public   string // as it is cited: "go-redsync/redsync#126"
	URL      string
	Kind     string // of failure, "K11"; docs/mutants.md names them
	Wrong    string // what goes wrong, in our own words
	Scenario string
	Subject  Trial // what fails as the report says
	Control  Trial // what does not
}

// Trial is one lock in one scenario. Its zero fields have the defaults of a run.
type Trial struct {
	What     string // in words: a library and how it is used, or a fix
	Scenario string // "" is the report's
	Backend  string
	Resource string
	// Client is the client program: "mutant NAME", or a program of clients/ by its
	// path there with its arguments. Nil is the backend's own client.
	Client []string
	// Lock is what an adapter states that it tests; a mutant states its name.
	Lock string
	Bin  map[string]string // server binaries by software
}

// lock is the name by which the expectations of a scenario know it.
func (t Trial) lock() string {
	switch {
	case len(t.Client) == 0:
		return t.Backend
	case t.Client[0] == "mutant":
		return t.Client[1]
	}
	return t.Lock
}

// Result is what came of one report.
type Result struct {
	Report   string  `json:"report"`
	URL      string  `json:"url"`
	Kind     string  `json:"kind"`
	Wrong    string  `json:"wrong"`
	Scenario string  `json:"scenario"`
	Subject  Outcome `json:"subject"`
	Control  Outcome `json:"control"`
	Date     string  `json:"date"` // of the runs, as 2006-01-02
}

// Outcome is what came of one trial.
type Outcome struct {
	What     string            `json:"what"`
	Scenario string            `json:"scenario"`
	Backend  string            `json:"backend"`
	Resource string            `json:"resource"`
	Client   string            `json:"client,omitempty"` // as for --client
	Versions map[string]string `json:"versions"`
	TTL      int64             `json:"ttl_ms"`
	Expected []string          `json:"expected"` // what each run was to show
	// Figures are what was measured in each run, in the unit of the figure: of those
	// about which something is expected.
	Figures map[string][]float64 `json:"figures,omitempty"`
	Runs    int                  `json:"runs"`
	AsTold  int                  `json:"as_expected"` // runs that came out so
	Unlike  []string             `json:"unlike,omitempty"`
}

// Options say how reports are run.
type Options struct {
	Runs    int // of each trial
	Clients Clients
	Cache   *deploy.Cache
	Out     string // folder for the folders of runs
	Now     func() time.Time
	// Progress is told each run that has ended; nil is nobody.
	Progress func(Report, Trial, int, []string)
}

// Run repeats a report. An error says that it could not be run; what a run came out to
// be is in the result.
func Run(ctx context.Context, r Report, o Options) (Result, error) {
	res := Result{Report: r.Public, URL: r.URL, Kind: r.Kind, Wrong: r.Wrong, Scenario: r.Scenario, Date: o.Now().Format(time.DateOnly)}
	var err error
	if res.Subject, err = runTrial(ctx, r, r.Subject, o); err == nil {
		res.Control, err = runTrial(ctx, r, r.Control, o)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", r.Scenario, err)
	}
	return res, err
}

func runTrial(ctx context.Context, r Report, t Trial, o Options) (Outcome, error) {
	sc, err := t.load(r)
	if err != nil {
		return Outcome{}, err
	}
	b, err := backends.Find(t.Backend)
	if err != nil {
		return Outcome{}, err
	}
	command, err := o.Clients.command(ctx, t)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{What: t.What, Scenario: sc.Name, Backend: t.Backend, Resource: t.Resource, Client: t.client(), Runs: o.Runs}
	for n := range o.Runs {
		run, err := harness.Run(ctx, sc, harness.Options{
			Backend: b, Resource: t.resource(sc), Client: command, Bin: t.Bin, Seed: int64(n + 1), Repeat: n + 1, Cache: o.Cache, Out: o.Out,
		})
		if err != nil {
			return out, err
		}
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		out.Resource, out.Versions, out.TTL = run.Resource, run.Versions, run.TTL.Milliseconds()
		out.measure(sc, run)
		unlike, err := t.compare(sc, run)
		if err != nil {
			return out, err
		}
		if len(unlike) == 0 {
			out.AsTold++
		} else {
			out.Unlike = append(out.Unlike, fmt.Sprintf("run %d: %s", n+1, strings.Join(unlike, ", ")))
		}
		if o.Progress != nil {
			o.Progress(r, t, n+1, unlike)
		}
		out.Expected = Evidence(sc, harness.SubjectOf(run))
	}
	return out, nil
}

// measure keeps the figures about which something is expected.
func (o *Outcome) measure(sc *scenarios.Scenario, run *reports.Run) {
	for name := range sc.ExpectedFigures(harness.SubjectOf(run)) {
		if f := run.Figure(name); f.Missing == "" {
			if o.Figures == nil {
				o.Figures = map[string][]float64{}
			}
			o.Figures[name] = append(o.Figures[name], f.Value)
		}
	}
}

// compare returns what of a run is not as the scenario says. That the client is not
// the one that the expectations are about is an error.
func (t Trial) compare(sc *scenarios.Scenario, run *reports.Run) ([]string, error) {
	of := harness.SubjectOf(run)
	if len(of.Locks) > 0 && !slices.Contains(of.Locks, t.lock()) {
		return nil, fmt.Errorf("the client says that it tests %s, not %q", strings.Join(of.Locks, ", "), t.lock())
	}
	return harness.Unexpected(sc, run), nil
}

func (t Trial) load(r Report) (*scenarios.Scenario, error) {
	name := t.Scenario
	if name == "" {
		name = r.Scenario
	}
	return scenarios.Load(name)
}

// Subject is the trial's scenario, and what its expectations are about. The versions of
// servers are those of the binaries that it names; of others nothing is known.
func (t Trial) Subject(ctx context.Context, r Report) (*scenarios.Scenario, scenarios.Subject, error) {
	sc, err := t.load(r)
	if err != nil {
		return nil, scenarios.Subject{}, err
	}
	of := scenarios.Subject{Backend: t.Backend, Resource: t.resource(sc), Locks: []string{t.lock()}}
	for software, path := range t.Bin {
		bin, err := deploy.Find(ctx, software, path)
		if err != nil {
			return nil, of, err
		}
		if of.Versions == nil {
			of.Versions = map[string]string{}
		}
		of.Versions[software] = bin.Version
	}
	return sc, of, nil
}

func (t Trial) resource(sc *scenarios.Scenario) string {
	if t.Resource == "" && len(sc.Resources) > 0 {
		return sc.Resources[0]
	}
	return t.Resource
}

// client is the client program as users name it.
func (t Trial) client() string {
	if len(t.Client) > 0 && t.Client[0] == "mutant" {
		return "lockcheck mutant " + t.Client[1]
	}
	return strings.Join(t.Client, " ")
}

// Evidence is what each run is to show, in words.
func Evidence(sc *scenarios.Scenario, of scenarios.Subject) []string {
	var all []string
	if sc.ExpectedStatus(of) == string(reports.Pass) {
		all = append(all, "nothing violated")
	}
	byVerdict := map[string][]string{}
	for property, verdict := range sc.Expected(of) {
		byVerdict[verdict] = append(byVerdict[verdict], property)
	}
	for _, verdict := range []string{"violated", "held", "not applicable"} {
		if names := byVerdict[verdict]; len(names) > 0 {
			slices.SortFunc(names, byProperty)
			all = append(all, strings.Join(names, ", ")+" "+verdict)
		}
	}
	findings := sc.ExpectedFindings(of)
	for _, code := range slices.Sorted(maps.Keys(findings)) {
		if findings[code] == scenarios.Found {
			all = append(all, "finding "+code)
		} else {
			all = append(all, "no finding "+code)
		}
	}
	figures := sc.ExpectedFigures(of)
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		all = append(all, name+" "+figures[name].String())
	}
	return all
}

func byProperty(a, b string) int {
	return slices.Index(scenarios.Properties(), a) - slices.Index(scenarios.Properties(), b)
}

// ErrUnknown says that there is no report of a scenario's name.
var ErrUnknown = errors.New("no public report has this scenario")

// Choose returns the reports with these scenarios, or all.
func Choose(names []string) ([]Report, error) {
	if len(names) == 0 {
		return Reports(), nil
	}
	var chosen []Report
	for _, name := range names {
		at := slices.IndexFunc(Reports(), func(r Report) bool { return r.Scenario == name })
		if at < 0 {
			return nil, fmt.Errorf("%s: %w", name, ErrUnknown)
		}
		chosen = append(chosen, Reports()[at])
	}
	return chosen, nil
}
