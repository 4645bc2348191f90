package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/lockcheck/lockcheck/scenarios"
)

// scenario is the page of the fields of scenario files.
func scenario() ([]byte, error) {
	root := scenarios.Tree()
	d := newDocument("Scenario files",
		"Every field, from the schema that `lockcheck schema` prints. "+
			"[Writing a scenario](../writing-a-scenario.md) explains them with examples.")
	d.heading(2, "A scenario")
	if err := d.fields("", root.Else); err != nil {
		return nil, err
	}
	d.heading(2, "A suite")
	err := d.fields("", root.Then)
	return d.Bytes(), err
}

// fields writes the table of an object's fields, then those of the objects in them.
func (d *document) fields(path string, s *jsonschema.Schema) error {
	var rows [][]string
	for _, name := range s.PropertyOrder {
		f := s.Properties[name]
		if f == nil || f.Description == "" {
			return fmt.Errorf("field %s%s has no description", path, name)
		}
		needed := ""
		if slices.Contains(s.Required, name) {
			needed = "yes"
		}
		rows = append(rows, []string{code(name), kindOf(f), needed, f.Description})
	}
	d.table([]string{"field", "value", "required", "meaning"}, rows)
	for _, name := range s.PropertyOrder {
		inner := s.Properties[name]
		if inner.Items != nil {
			inner = inner.Items
		}
		if len(inner.Properties) == 0 {
			continue
		}
		d.heading(3, "Fields of "+path+name)
		if err := d.fields(path+name+".", inner); err != nil {
			return err
		}
	}
	return nil
}

// kindOf says what values a field takes.
func kindOf(s *jsonschema.Schema) string {
	switch {
	case len(s.Enum) > 0:
		return words(s.Enum)
	case len(s.Properties) > 0:
		return "object"
	case s.Items != nil && len(s.Items.Properties) > 0:
		return "list of objects"
	case s.Items != nil && len(s.Items.Enum) > 0:
		return "list of " + words(s.Items.Enum)
	case s.Items != nil:
		return "name, or list of names"
	case s.AdditionalProperties != nil && s.Type == "object":
		return pairs(s)
	case strings.Contains(s.Pattern, "ttl"):
		return "duration: `200ms`, `1.2 ttl`"
	case s.Type == "boolean":
		return "`true`, `false`"
	case s.Type == "integer":
		return "number"
	case s.Type == "string" || len(s.Types) > 0:
		return "text"
	}
	return s.Type
}

// pairs says what a map of names to values takes.
func pairs(s *jsonschema.Schema) string {
	name, value := "name", "value"
	if s.PropertyNames != nil && len(s.PropertyNames.Enum) > 0 {
		name = words(s.PropertyNames.Enum)
	}
	if len(s.AdditionalProperties.Enum) > 0 {
		value = words(s.AdditionalProperties.Enum)
	}
	return name + ": " + value
}

func words(enum []any) string {
	var all []string
	for _, e := range enum {
		all = append(all, code(fmt.Sprint(e)))
	}
	return strings.Join(all, ", ")
}

// builtIn is the page of the scenarios and suites that come with the program.
func builtIn() ([]byte, error) {
	d := newDocument("Scenarios that come with lockcheck",
		"`lockcheck list scenarios` prints them, and their files are in [scenarios/](../../scenarios).")
	all, err := scenarios.List()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{
			fmt.Sprintf("[%s](../../scenarios/%s.yaml)", s.Name, s.Name), s.Summary, code(s.Violates), strings.Join(s.Backends, ", "),
		})
	}
	d.table([]string{"scenario", "what happens", "violates", "backends"}, rows)
	suites, err := scenarios.ListSuites()
	if err != nil {
		return nil, err
	}
	d.heading(2, "Suites")
	rows = nil
	for _, s := range suites {
		rows = append(rows, []string{
			fmt.Sprintf("[%s](../../scenarios/%s.yaml)", s.Name, s.Name), s.Summary, fmt.Sprintf("%d scenarios", len(s.Scenarios)),
		})
	}
	d.table([]string{"suite", "what for", "holds"}, rows)
	return d.Bytes(), nil
}
