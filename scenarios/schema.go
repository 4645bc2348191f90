package scenarios

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema returns the JSON Schema (draft 2020-12) of scenario and suite files,
// indented, for editors. It is made from the fields that the parser accepts;
// what only the parser can say, such as that a client was never declared, is
// not in it.
func Schema() []byte {
	b, err := json.MarshalIndent(Tree(), "", "  ")
	if err != nil {
		// Only a schema that contradicts itself fails here, and a test
		// marshals this one.
		panic(err)
	}
	return b
}

// Tree returns what Schema writes, with the fields in their order.
func Tree() *jsonschema.Schema {
	scenario := objectSchema(scenarioFields(new(Scenario)))
	scenario.Properties["name"].Pattern = namePattern
	scenario.OneOf = []*jsonschema.Schema{
		{Required: []string{"clients", "steps"}, Not: &jsonschema.Schema{Required: []string{"workload"}}},
		{Required: []string{"workload"}},
	}
	scenario.Properties["clients"].MinItems = ptr(1)
	scenario.Properties["steps"].MinItems = ptr(1)

	step := scenario.Properties["steps"].Items
	for _, action := range []struct {
		name  string
		needs []string
	}{
		{"do", []string{"do", "client"}}, {"fault", []string{"fault", "on"}},
		{"heal", []string{"heal"}}, {"await", []string{"await"}},
	} {
		step.OneOf = append(step.OneOf, &jsonschema.Schema{Required: action.needs})
	}

	suite := objectSchema(suiteFields(new(Suite)))
	suite.Properties["name"].Pattern = namePattern
	suite.Properties["scenarios"].MinItems = ptr(1)

	return &jsonschema.Schema{
		Schema:      "https://json-schema.org/draft/2020-12/schema",
		Title:       "lockcheck scenario or suite",
		Description: "A file with the field scenarios is a suite, any other a scenario. See docs/writing-a-scenario.md.",
		Type:        "object",
		If:          &jsonschema.Schema{Required: []string{"scenarios"}},
		Then:        suite,
		Else:        scenario,
	}
}

func objectSchema(fields []field) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type:                 "object",
		Properties:           make(map[string]*jsonschema.Schema, len(fields)),
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}, // none
	}
	for _, f := range fields {
		v := f.schema()
		v.Description = f.doc
		s.Properties[f.name] = v
		s.PropertyOrder = append(s.PropertyOrder, f.name)
		if f.required {
			s.Required = append(s.Required, f.name)
		}
	}
	return s
}

func ptr(n int) *int { return &n }

func anys(words []string) []any {
	all := make([]any, len(words))
	for i, w := range words {
		all[i] = w
	}
	return all
}
