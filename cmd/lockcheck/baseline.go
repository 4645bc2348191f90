package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
)

// baselineSchema is the version of the form of a baseline.
const baselineSchema = "lockcheck-baseline/v1"

// baseline is a file of violations that are known.
type baseline struct {
	Schema     string           `json:"schema"`
	Violations []knownViolation `json:"violations"`
}

// knownViolation is a property that a scenario is known to violate on a backend,
// with a resource.
type knownViolation struct {
	Scenario string `json:"scenario"`
	Backend  string `json:"backend"`
	Resource string `json:"resource"`
	Property string `json:"property"`
	Note     string `json:"note,omitempty"` // why it is put up with; it is kept
}

// readBaseline reads a file that is as documented.
func readBaseline(path string) (*baseline, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, inputError(fmt.Errorf("--baseline: %w", err))
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields() // a name that is not understood would let something pass, or not
	var k baseline
	err = d.Decode(&k)
	if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("there is something behind the object")
	}
	if err == nil && k.Schema != baselineSchema {
		err = fmt.Errorf("the schema is %q: this version reads %q", k.Schema, baselineSchema)
	}
	for i, v := range k.Violations {
		if err != nil {
			break
		}
		switch {
		case v.Scenario == "" || v.Backend == "" || v.Resource == "":
			err = fmt.Errorf("violation %d: scenario, backend and resource must all be there", i+1)
		case !slices.Contains(properties, v.Property):
			err = fmt.Errorf("violation %d: unknown property %q: there are %s", i+1, v.Property, strings.Join(properties, ", "))
		}
	}
	if err != nil {
		return nil, usagef("--baseline %s: not a baseline as --write-baseline makes it: %w", path, err)
	}
	return &k, nil
}

// of are the properties that are known to be violated there. Nil knows of none.
func (k *baseline) of(scenario, backend, resource string) (names []string) {
	if k == nil {
		return nil
	}
	for _, v := range k.Violations {
		if v.Scenario == scenario && v.Backend == backend && v.Resource == resource && !slices.Contains(names, v.Property) {
			names = append(names, v.Property)
		}
	}
	return names
}

// seen is what became of a known violation in runs.
type seen struct {
	violated, held, undecided int // runs
}

func (v knownViolation) in(runs []*reports.Run) (s seen) {
	for _, r := range runs {
		if r.Scenario != v.Scenario || r.Backend != v.Backend || r.Resource != v.Resource {
			continue
		}
		switch verdict := r.Verdict(v.Property); {
		case verdict == checker.Violated:
			s.violated++
		case verdict == checker.Held && r.Status != reports.Inconclusive && r.Status != reports.Error:
			s.held++
		default:
			s.undecided++
		}
	}
	return s
}

// vanished reports whether what was known did not come any more, where it was tried.
func (s seen) vanished() bool { return s.violated == 0 && s.held > 0 }

func (v knownViolation) String() string {
	return fmt.Sprintf("%s on %s, %s: %s", v.Scenario, v.Backend, v.Resource, v.Property)
}

// compare tells of the known violations that came again, and of those that did not.
// Those of runs that were not made are not told.
func (k *baseline) compare(runs []*reports.Run) (lines []string) {
	again := 0
	for _, v := range k.Violations {
		switch s := v.in(runs); {
		case s.violated > 0:
			again++
		case s.vanished():
			lines = append(lines, fmt.Sprintf("vanished: %s is known to be violated, and held in %s: take it from the baseline", v, counted(s.held, "run")))
		case s.undecided > 0:
			lines = append(lines, fmt.Sprintf("not decided: %s is known to be violated, and no run says whether it still is", v))
		}
	}
	if again > 0 {
		lines = append(lines, counted(again, "known violation")+" came again")
	}
	return lines
}

// after is the baseline after runs: with what they violate, and without what has
// vanished. gated are the properties that count; nil is all. Nil knows of nothing.
func (k *baseline) after(runs []*reports.Run, gated []string) *baseline {
	next := &baseline{Schema: baselineSchema, Violations: []knownViolation{}}
	if k != nil {
		for _, v := range k.Violations {
			if !v.in(runs).vanished() {
				next.Violations = append(next.Violations, v)
			}
		}
	}
	for _, r := range runs {
		for _, p := range properties {
			counts := !slices.Contains(r.Excused, p)
			if len(gated) > 0 {
				counts = slices.Contains(gated, p)
			}
			if counts && r.Verdict(p) == checker.Violated && !slices.Contains(next.of(r.Scenario, r.Backend, r.Resource), p) {
				next.Violations = append(next.Violations, knownViolation{Scenario: r.Scenario, Backend: r.Backend, Resource: r.Resource, Property: p})
			}
		}
	}
	slices.SortStableFunc(next.Violations, func(a, b knownViolation) int {
		return cmp.Or(cmp.Compare(a.Scenario, b.Scenario), cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Property, b.Property))
	})
	return next
}

// write writes the file whole, or not at all.
func (k *baseline) write(path string) error {
	b, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return environment(fmt.Errorf("--write-baseline: %w", err))
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return environment(errors.Join(fmt.Errorf("--write-baseline: %w", err), os.Remove(f.Name())))
	}
	return nil
}

// baselineFormat is the JSON Schema of a baseline.
func baselineFormat() []byte {
	violation := schemaOf[knownViolation](map[string]string{
		"scenario": "name of the scenario", "backend": "as --backend names it", "resource": "as --resource names it",
		"property": "that is violated", "note": "why it is put up with; kept when the file is written again",
	})
	violation.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}} // a misspelt name is refused
	for _, p := range properties {
		violation.Properties["property"].Enum = append(violation.Properties["property"].Enum, p)
	}
	s := schemaOf[baseline](nil)
	s.AdditionalProperties = violation.AdditionalProperties
	s.Title = "known violations of a lock"
	s.Description = "What `lockcheck run --baseline` reads and `--write-baseline` writes: violations that do not count."
	s.Properties["schema"].Const = jsonschema.Ptr[any](baselineSchema)
	s.Properties["violations"] = &jsonschema.Schema{Type: "array", Items: violation}
	return printed(s)
}
