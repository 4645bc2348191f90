package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockcheck/lockcheck/internal/harness"
)

// TestPublishedSchemas compares those in docs with what the program prints.
func TestPublishedSchemas(t *testing.T) {
	for name, file := range map[string]string{
		"run": "run.schema.json", "baseline": "baseline.schema.json", "faults": "faults.schema.json", "mutants": "mutants.schema.json",
	} {
		path := filepath.Join("..", "..", "docs", file)
		got := schemas[name]()
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what `lockcheck schema %s` prints (%v): run with -update", file, name, err)
		}
	}
}

// What became of faults is as its schema says.
func TestFaultsConformToTheirSchema(t *testing.T) {
	s := resolve(t, "faults")
	for _, c := range []harness.FaultCheck{
		{Fault: "pause", Backend: "redis", Targets: []string{"A"}, Effective: true, Inject: 1, Heal: 2, Granted: 3, Proof: "state T", Healed: "state S"},
		{Fault: "disk", With: map[string]string{"fsync": "slow 50ms"}, Backend: "etcd", Targets: []string{"etcd-1"}, Error: "it was not"},
		{Fault: "evict", Backend: "etcd", Targets: []string{"etcd-1"}, Unavailable: "no Redis server"},
	} {
		var b bytes.Buffer
		if err := writeJSONLines(&b, []harness.FaultCheck{c}); err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(b.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v", b.String(), err)
		}
		delete(v, "backend")
		if s.Validate(v) == nil {
			t.Errorf("one without a backend is valid: %s", b.String())
		}
	}
}

func resolve(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(schemas[name](), &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// A baseline is as its schema says, which refuses what readBaseline refuses.
func TestBaselinesConformToTheirSchema(t *testing.T) {
	s := resolve(t, "baseline")
	for text, valid := range map[string]bool{
		`{"schema":"lockcheck-baseline/v1","violations":[]}`:                                                                                                true,
		`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","resource":"c","property":"mutex","note":"x"}]}`:                     true,
		`{"schema":"lockcheck-baseline/v2","violations":[]}`:                                                                                                false,
		`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","property":"mutex"}]}`:                                               false,
		`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","resource":"c","property":"luck"}]}`:                                 false,
		`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","resource":"c","property":"mutex","nota":"x"}],"violation":[]}`:      false,
		`{"schema":"lockcheck-baseline/v1","violations":[{"scenario":"a","backend":"b","resource":"c","property":"mutex","properties":["mutex","lease"]}]}`: false,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); (err == nil) != valid {
			t.Errorf("%s: %v, want valid %v", text, err, valid)
		}
	}
}

// conforms is the command `conforms NAME FILE LINES` of scripts: the file has so many
// lines, each of which is as the schema of that name says.
func conforms(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: conforms NAME FILE LINES")
	}
	format := schemas[args[0]]
	if format == nil {
		ts.Fatalf("no schema %s", args[0])
	}
	var s jsonschema.Schema
	ts.Check(json.Unmarshal(format(), &s))
	resolved, err := s.Resolve(nil)
	ts.Check(err)
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile(args[1]), "\n"), "\n")
	if got := strconv.Itoa(len(lines)); got != args[2] {
		ts.Fatalf("%s lines, want %s", got, args[2])
	}
	for i, line := range lines {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			ts.Fatalf("line %d: %v: %s", i+1, err, line)
		}
		if err := resolved.Validate(v); err != nil {
			ts.Fatalf("line %d: %v: %s", i+1, err, line)
		}
	}
}
