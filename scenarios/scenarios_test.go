package scenarios_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/scenarios"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (run with -update to make it)", err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (run with -update and look at the difference)\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// Each file in testdata/errors is wrong in several ways; the messages for all
// of them are in the golden file next to it.
func TestErrorsNameEveryFaultWithItsLine(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = scenarios.Parse(filepath.Base(file), text)
			if err == nil {
				t.Fatal("accepted")
			}
			if _, ok := errors.AsType[scenarios.Errors](err); !ok {
				t.Errorf("error is a %T, not scenarios.Errors", err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", []byte(err.Error()+"\n"))
		})
	}
}

func TestGCPauseIsReadInFull(t *testing.T) {
	s, err := scenarios.Load("gc-pause")
	if err != nil {
		t.Fatal(err)
	}
	if s.File != "gc-pause.yaml" || s.Key != "k" || s.TTL.Of(0) != time.Second || s.Violates != "mutex" || len(s.Source) == 0 {
		t.Errorf("file %q key %q ttl %v violates %q", s.File, s.Key, s.TTL, s.Violates)
	}
	if len(s.Steps) != 11 {
		t.Fatalf("%d steps, want 11", len(s.Steps))
	}
	ten := scenarios.Duration{Time: 10 * time.Second}
	thirty := scenarios.Duration{Time: 30 * time.Second}
	for i, want := range map[int]scenarios.Step{
		0: {Client: "A", Do: "acquire", Within: ten},
		3: {Fault: "pause", On: []string{"A"}, Within: ten},
		4: {Client: "A", Do: "write", Value: "late-of-A", Queue: true, MayFail: true, Within: ten},
		5: {Client: "B", Do: "acquire", Within: thirty},
		7: {Heal: "pause", Within: ten},
		8: {Await: "A", Within: ten},
	} {
		got := s.Steps[i]
		if got.Line == 0 {
			t.Errorf("step %d has no line", i)
		}
		got.Line = 0
		if !reflect.DeepEqual(got, want) {
			t.Errorf("step %d: %+v, want %+v", i, got, want)
		}
	}
}

func TestWhatGCPauseExpects(t *testing.T) {
	s, err := scenarios.Load("gc-pause")
	if err != nil {
		t.Fatal(err)
	}
	const violated, held, na = "violated", "held", "not applicable"
	for _, want := range []struct{ backend, resource, mutex, lease, token, fence string }{
		{"redis", "unfenced", violated, held, na, violated},
		{"redis", "fenced", violated, held, na, violated}, // no token: the resource cannot judge
		{"redis", "postgres", violated, held, na, violated},
		{"etcd", "unfenced", violated, held, held, violated},
		{"etcd", "fenced", violated, held, held, held},
		{"etcd", "postgres", violated, held, held, held},
		{"memory", "unfenced", violated, held, held, violated},
		{"memory", "fenced", violated, held, held, held},
		{"postgres-session", "unfenced", violated, na, na, violated},
		{"postgres-session", "fenced", violated, na, na, violated},
		{"postgres-xact", "unfenced", violated, na, na, violated},
		{"postgres-xact", "postgres", violated, na, na, held},
	} {
		got := s.Expected(scenarios.Subject{Backend: want.backend, Resource: want.resource})
		all := map[string]string{"mutex": want.mutex, "lease": want.lease, "token": want.token, "fence": want.fence}
		if !maps.Equal(got, all) {
			t.Errorf("%s, %s: expects %v, want %v", want.backend, want.resource, got, all)
		}
		if status := s.ExpectedStatus(scenarios.Subject{Backend: want.backend, Resource: want.resource}); status != "violation" {
			t.Errorf("%s, %s: expects status %q", want.backend, want.resource, status)
		}
	}
}

func TestTheControlExpectsNoViolation(t *testing.T) {
	s, err := scenarios.Load("no-fault")
	if err != nil {
		t.Fatal(err)
	}
	if s.Violates != "" {
		t.Errorf("the control violates %q", s.Violates)
	}
	for _, backend := range []string{"redis", "etcd", "memory", "postgres-session", "postgres-xact"} {
		want := s.Expected(scenarios.Subject{Backend: backend, Resource: "unfenced"})
		if len(want) != 4 {
			t.Errorf("%s: expects %v, want a verdict on four properties", backend, want)
		}
		for property, verdict := range want {
			if verdict == "violated" {
				t.Errorf("%s: expects %s violated", backend, property)
			}
		}
	}
}

func TestLaterExpectationsOverrideEarlierOnes(t *testing.T) {
	s := scenarios.Scenario{Expect: []scenarios.Expectation{
		{Properties: map[string]string{"mutex": "violated", "fence": "violated"}, Status: "violation"},
		{Backends: []string{"etcd"}, Properties: map[string]string{"fence": "held"}},
		{Backends: []string{"etcd"}, Resources: []string{"odd"}, Properties: map[string]string{"fence": "any"}, Status: "pass"},
	}}
	for _, c := range []struct {
		backend, resource, status string
		want                      map[string]string
	}{
		{"redis", "fenced", "violation", map[string]string{"mutex": "violated", "fence": "violated"}},
		{"etcd", "fenced", "violation", map[string]string{"mutex": "violated", "fence": "held"}},
		{"etcd", "odd", "pass", map[string]string{"mutex": "violated"}},
	} {
		if got := s.Expected(scenarios.Subject{Backend: c.backend, Resource: c.resource}); !maps.Equal(got, c.want) {
			t.Errorf("%s, %s: %v, want %v", c.backend, c.resource, got, c.want)
		}
		if got := s.ExpectedStatus(scenarios.Subject{Backend: c.backend, Resource: c.resource}); got != c.status {
			t.Errorf("%s, %s: status %q, want %q", c.backend, c.resource, got, c.status)
		}
	}
}

func TestListNamesEachFileOnce(t *testing.T) {
	all, err := scenarios.List()
	if err != nil {
		t.Fatal(err)
	}
	suites, err := scenarios.ListSuites()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	check := func(name, file string, source []byte) {
		if name+".yaml" != file {
			t.Errorf("%s is named %q: the name and the file's must be the same", file, name)
		}
		if other, dup := names[name]; dup {
			t.Errorf("%s and %s have the same name", file, other)
		}
		names[name] = file
		if source != nil && !strings.HasPrefix(string(source), "# yaml-language-server: $schema=./scenario.schema.json\n#\n# ") {
			t.Errorf("%s does not open with the schema line and a comment that says why it exists", file)
		}
	}
	for _, s := range all {
		check(s.Name, s.File, s.Source)
		if s.Summary == "" || s.Why == "" || len(s.Expect) == 0 {
			t.Errorf("%s lacks a summary, a why or an expectation", s.File)
		}
	}
	for _, s := range suites {
		check(s.Name, s.File, nil)
		if _, err := scenarios.LoadAll(s.Name); err != nil {
			t.Errorf("suite %s: %v", s.Name, err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	mine := write("mine.yaml", "name: mine\nclients: A\nsteps: [{client: A, do: acquire}]\n")
	suite := write("suite.yaml", "name: mine\nscenarios: [gc-pause, mine.yaml, gc-pauze, none.yaml]\n")
	good := write("good.yaml", "name: good\nscenarios: [gc-pause, mine.yaml]\n")
	huge := write("huge.yaml", strings.Repeat("# nothing\n", 1<<17))

	if s, err := scenarios.Load(mine); err != nil || s.Name != "mine" || s.File != mine || s.Embedded {
		t.Errorf("Load(%s) = %+v, %v", mine, s, err)
	}
	if s, err := scenarios.Load("gc-pause"); err != nil || !s.Embedded {
		t.Errorf("Load(gc-pause) = %+v, %v", s, err)
	}
	for name, want := range map[string]string{
		"gc-puase":                  `scenario or suite "gc-puase" not found: did you mean "gc-pause"?`,
		"x":                         `scenario or suite "x" not found: there are ` + strings.Join(scenarios.Names(), ", "),
		filepath.Join(dir, "x.yml"): "scenario file " + filepath.Join(dir, "x.yml") + " not found",
		"claims":                    "claims.yaml: is a suite, a list of scenarios: name a scenario",
		huge:                        huge + ": file is larger than 1048576 bytes: is it a scenario?",
	} {
		if _, err := scenarios.Load(name); err == nil || err.Error() != want {
			t.Errorf("Load(%q): %v\nwant %s", name, err, want)
		}
	}
	all, err := scenarios.LoadAll(good, "no-fault", mine, good)
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	if err != nil || !slices.Equal(names, []string{"gc-pause", "mine", "no-fault"}) {
		t.Errorf("LoadAll: %v, %v", names, err)
	}
	_, err = scenarios.LoadAll(suite)
	want := suite + `:2: scenario or suite "gc-pauze" not found: did you mean "gc-pause"?` + "\n" +
		suite + ":2: scenario file " + filepath.Join(dir, "none.yaml") + " not found"
	if err == nil || err.Error() != want {
		t.Errorf("LoadAll(%s): %v\nwant %s", suite, err, want)
	}
}

// A file in the current folder is not taken for the embedded one of its name.
func TestAFileIsNotTheEmbeddedOneOfItsName(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("gc-pause.yaml", []byte("name: gc-pause\nclients: Z\nsteps: [{client: Z, do: acquire}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := scenarios.LoadAll("gc-pause", "gc-pause.yaml")
	if err != nil || len(all) != 2 || !all[0].Embedded || all[1].Embedded || all[1].Clients[0] != "Z" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestCheckFindsUnknownNames(t *testing.T) {
	s, err := scenarios.Parse("f.yaml", []byte(`name: f
clients: A
backends: [redus]
steps:
  - {client: A, do: acquire}
  - {fault: pauze, on: A, with: {depth: "3"}}
  - {fault: kill, on: A, with: {depth: "3"}}
expect:
  - {backends: etdc, resources: fence, status: pass}
`))
	if err != nil {
		t.Fatal(err)
	}
	params := func(fault string, with map[string]string) error {
		return fmt.Errorf("%s has no depth, least of all %s", fault, with["depth"])
	}
	known := scenarios.Known{Backends: []string{"redis", "etcd"}, Resources: []string{"fenced"}, Faults: []string{"pause", "kill"}, Params: params}
	want := `f.yaml:3: unknown backend "redus": did you mean "redis"?
f.yaml:6: unknown fault "pauze": did you mean "pause"?
f.yaml:7: kill has no depth, least of all 3
f.yaml:9: unknown backend "etdc": did you mean "etcd"?
f.yaml:9: unknown resource "fence": did you mean "fenced"?`
	if err := s.Check(known); err == nil || err.Error() != want {
		t.Errorf("Check: %v\nwant %s", err, want)
	}
	known = scenarios.Known{Backends: []string{"redus", "etdc"}, Resources: []string{"fence"}, Faults: []string{"pauze", "kill"}}
	if err := s.Check(known); err != nil {
		t.Errorf("Check with all names known: %v", err)
	}
}

func TestDurations(t *testing.T) {
	const ttl = 200 * time.Millisecond
	for text, want := range map[string]time.Duration{
		"200ms": ttl, "1m30s": 90 * time.Second, "0s": 0, "0": 0, "1.2 ttl": 240 * time.Millisecond, "2ttl": 2 * ttl, " 0.5  ttl": ttl / 2,
	} {
		d, err := scenarios.ParseDuration(text)
		if err != nil || d.Of(ttl) != want {
			t.Errorf("%q is %v, %v; want %v", text, d.Of(ttl), err, want)
		}
		if again, err := scenarios.ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("%q is written %q, which reads as %v, %v", text, d, again, err)
		}
	}
	for _, text := range []string{"", "200", "-1s", "ttl", "-1 ttl", "NaN ttl", "Inf ttl", "1e9 ttl", "25h", "1.2 TTLs"} {
		if d, err := scenarios.ParseDuration(text); err == nil {
			t.Errorf("%q is accepted as %v", text, d)
		}
	}
}

func TestSchemaFileIsCurrent(t *testing.T) {
	golden(t, "scenario.schema.json", append(scenarios.Schema(), '\n'))
}

func TestSchemaAgreesWithTheParser(t *testing.T) {
	schema := new(jsonschema.Schema)
	if err := schema.UnmarshalJSON(scenarios.Schema()); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return resolved.Validate(v)
	}
	good, err := filepath.Glob("*.yaml")
	if err != nil || len(good) == 0 {
		t.Fatalf("no scenario files: %v", err)
	}
	for _, file := range good {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	const head = "name: x\nclients: A\n"
	for _, text := range []string{
		head + "steps: [{client: A, do: acquire}]\nsumary: x\n",
		head + "steps: [{client: A, do: aquire}]\n",
		head + "steps: [{client: A}]\n",
		head + "steps: [{client: A, do: acquire, heal: pause}]\n",
		head + "steps: [{fault: pause}]\n",
		head + "steps: [{client: A, do: acquire, within: soon}]\n",
		head + "steps: [{client: A, do: acquire, queue: perhaps}]\n",
		head + "steps: [{client: A, do: acquire}]\nexpect: [{properties: {mutx: held}}]\n",
		head + "steps: [{client: A, do: acquire}]\nexpect: [{properties: {mutex: hold}}]\n",
		head + "steps: []\n",
		head,
		"name: GC\nclients: A\nsteps: [{client: A, do: acquire}]\n",
		"name: x\nscenarios: []\n",
	} {
		if validate(text) == nil {
			t.Errorf("the schema accepts\n%s", text)
		}
		if _, err := scenarios.Parse("f", []byte(text)); err == nil {
			t.Errorf("the parser accepts\n%s", text)
		}
	}
}

func TestTheManualsExamplesAreValid(t *testing.T) {
	manual, err := os.ReadFile("../docs/writing-a-scenario.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(manual), "```yaml\n")[1:]
	if len(blocks) != 4 {
		t.Fatalf("%d examples, want a script, a workload, steps with a nemesis, and a suite", len(blocks))
	}
	example := func(i int) []byte { return []byte(strings.Split(blocks[i], "```")[0]) }
	for i := range 3 {
		if _, err := scenarios.Parse("manual", example(i)); err != nil {
			t.Error(err)
		}
	}
	if _, err := scenarios.ParseSuite("manual", example(3)); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"*.yaml", "testdata/errors/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte("name: &a [*a]\nclients: *a\nsteps: [{<<: *a}]\n"))
	f.Add([]byte("name: x\nclients: [A]\nsteps: [&s {client: A, do: acquire}, *s]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if suite, err := scenarios.ParseSuite("f.yaml", text); err == nil {
			if err := suite.Validate(); err != nil {
				t.Fatalf("accepted suite is not valid: %v", err)
			}
		}
		s, err := scenarios.Parse("f.yaml", text)
		if err != nil {
			if errs, ok := errors.AsType[scenarios.Errors](err); !ok || len(errs) == 0 {
				t.Fatalf("error %v is a %T", err, err)
			}
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("accepted scenario is not valid: %v", err)
		}
		again, err := scenarios.Parse("f.yaml", s.Source)
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("read twice, it differs: %v", err)
		}
	})
}

// Entries may be about some versions only, and software that does not run is of
// none.
func TestExpectationsOfVersions(t *testing.T) {
	s, err := scenarios.Parse("x.yaml", []byte(`
name: x
clients: [A]
steps: [{client: A, do: acquire}]
expect:
  - {status: pass}
  - {before: {etcd: "3.5"}, properties: {liveness: violated}, status: violation}
  - {since: {etcd: "3.5"}, properties: {liveness: held}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ version, status, liveness string }{
		{"3.4.23", "violation", "violated"},
		{"3.4.100", "violation", "violated"},
		{"3.5", "pass", "held"},
		{"3.5.0-rc.1", "pass", "held"},
		{"3.10.1", "pass", "held"},
		{"3.7.3 (embedded)", "pass", "held"},
		{"", "pass", ""},
	} {
		of := scenarios.Subject{Backend: "b", Resource: "r", Versions: map[string]string{}}
		if c.version != "" {
			of.Versions["etcd"] = c.version
		}
		if got := s.ExpectedStatus(of); got != c.status {
			t.Errorf("of %q %s is expected, want %s", c.version, got, c.status)
		}
		if got := s.Expected(of)["liveness"]; got != c.liveness {
			t.Errorf("of %q liveness is expected %s, want %s", c.version, got, c.liveness)
		}
	}
}

// Entries may be about what client programs say that they test, and about findings.
func TestExpectationsOfLocks(t *testing.T) {
	s, err := scenarios.Parse("x.yaml", []byte(`
name: x
clients: [A]
steps: [{client: A, do: acquire}]
expect:
  - {properties: {mutex: held}, findings: {ghost: none}}
  - {locks: [mine -fast, yours], properties: {mutex: violated}, findings: {ghost: found}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		locks        []string
		mutex, ghost string
	}{
		{nil, "held", scenarios.None},
		{[]string{"mine"}, "held", scenarios.None},
		{[]string{"mine -fast"}, "violated", scenarios.Found},
		{[]string{"redis", "yours"}, "violated", scenarios.Found},
	} {
		of := scenarios.Subject{Backend: "b", Resource: "r", Locks: c.locks}
		if got := s.Expected(of)["mutex"]; got != c.mutex {
			t.Errorf("of %v mutex is expected %s, want %s", c.locks, got, c.mutex)
		}
		if got := s.ExpectedFindings(of)["ghost"]; got != c.ghost {
			t.Errorf("of %v a ghost is expected %s, want %s", c.locks, got, c.ghost)
		}
	}
	for _, wrong := range []string{"{findings: {gost: found}}", "{findings: {ghost: perhaps}}", "{locks: x}"} {
		if _, err := scenarios.Parse("x.yaml", []byte("name: x\nclients: [A]\nsteps: [{client: A, do: acquire}]\nexpect: ["+wrong+"]\n")); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// The codes that can be expected are those that the checker has.
func TestFindingsAreTheCheckers(t *testing.T) {
	for _, code := range []string{
		checker.Late, checker.Ghost, checker.Stuck, checker.False, checker.Lost, checker.Again, checker.Rejected, checker.Workload,
	} {
		if !slices.Contains(scenarios.Findings(), code) {
			t.Errorf("%q cannot be expected", code)
		}
	}
}
