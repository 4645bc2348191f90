package reports

import (
	"encoding/json"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/lockcheck/lockcheck/checker"
)

// RunSchema returns the JSON Schema (draft 2020-12) of a Run, which is a line of
// `lockcheck run --json` and the file run.json in a run's folder. Fields that it
// does not name are allowed: later versions may add some.
func RunSchema() []byte {
	number := &jsonschema.Schema{Type: "number"}
	s, err := jsonschema.For[wireRun](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[millis](): number,
	}})
	if err != nil {
		panic(err) // of a type that cannot be in a schema: a test makes it
	}
	open(s)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "one run of lockcheck"
	s.Description = "A line of `lockcheck run --json`, and run.json in a run's folder. Fields that are not named here are allowed."
	const name = Schema
	s.Properties["schema"].Const = jsonschema.Ptr[any](name)
	s.Properties["status"].Enum = []any{string(Pass), string(Violation), string(Inconclusive), string(Error)}
	for field, doc := range map[string]string{
		"schema": "version of this form", "runtime": "how servers were run", "ttl_ms": "lease that was asked for, in milliseconds",
		"seed": "of everything random", "repeat": "which of several equal runs, from 1",
		"violates": "the property whose violation the scenario asserts", "reasons": "why it is inconclusive or an error",
		"excused": "properties whose violation does not count", "known": "properties whose violation is in the baseline, and does not count",
		"faults": "that took effect", "grants_under_fault": "grants that were confirmed while a fault was in effect",
		"properties": "by name", "operations": "in the history", "grants": "in the history", "versions": "software to version",
		"dir": "folder of the run", "duration_ms": "how long it took, in milliseconds", "replay": "command that runs it again",
		"figures":  "what was measured beside the verdicts",
		"findings": "what is odd and no violation", "assumptions": "of the checkers, that the history breaks",
	} {
		s.Properties[field].Description = doc
	}
	property := s.Properties["properties"].AdditionalProperties
	property.Properties["verdict"].Enum = []any{
		string(checker.Held), string(checker.Violated), string(checker.NotApplicable), string(checker.Unknown),
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // as above
	}
	return append(b, '\n')
}

// open allows objects to have fields that are not named.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if len(s.Properties) > 0 {
		s.AdditionalProperties = nil
	}
	open(s.AdditionalProperties)
	open(s.Items)
	for _, p := range s.Properties {
		open(p)
	}
}
