package main

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/lockcheck/lockcheck/internal/harness"
)

// faultsFormat is the JSON Schema of a line of `faults --verify --json`.
func faultsFormat() []byte {
	s := schemaOf[harness.FaultCheck](map[string]string{
		"fault": "kind", "with": "its parameters", "backend": "as --backend names it", "targets": "names of clients and servers",
		"effective":   "injected and healed, both proven, and a lock was granted again",
		"unavailable": "why it cannot be injected there", "error": "why it is not effective",
		"inject_ns": "how long it took, with the proof", "heal_ns": "how long healing took, with the proof",
		"granted_ns": "from healing until a lock was granted again", "proof": "that it took effect", "healed": "proof that it did no more",
	})
	s.Title = "a fault that was tried"
	s.Description = "A line of `lockcheck faults --verify --json`. Fields that are not named here are allowed."
	return printed(s)
}

// mutantsFormat is the JSON Schema of a line of `mutants --json`.
func mutantsFormat() []byte {
	client := schemaOf[mutantResult](map[string]string{
		"mutant": "name of the client", "kind": "kind of its flaw", "backend": "as --backend names it", "flaw": "in words",
		"reports": "public reports of such a flaw", "property": "whose violation was to show it", "scenario": "where that was to come",
		"correct": "it has no flaw", "ok": "caught by that property; or correct, and no alarm",
		"found": "properties that were violated, as scenario: property", "problems": "runs that proved nothing", "runs": "their folders",
		"duration_ms": "how long its runs took",
	})
	score := schemaOf[mutantScore](map[string]string{
		"mutants": "how many were run", "caught": "of these", "correct": "correct clients that were run", "alarms": "how many of these raised one",
		"duration_ms": "how long all took",
	})
	client.Title, score.Title = "what became of a client", "the score, the last line"
	return printed(&jsonschema.Schema{
		Title:       "clients with and without a flaw",
		Description: "A line of `lockcheck mutants --json`. Fields that are not named here are allowed.",
		AnyOf:       []*jsonschema.Schema{client, score},
	})
}

// schemaOf is the schema of a type, whose objects may have more fields, with what its
// fields are.
func schemaOf[T any](fields map[string]string) *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // of a type that cannot be in a schema: a test makes it
	}
	s.AdditionalProperties = nil
	for name, doc := range fields {
		s.Properties[name].Description = doc
	}
	return s
}

func printed(s *jsonschema.Schema) []byte {
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // as above
	}
	return append(b, '\n')
}
