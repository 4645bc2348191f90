// Package reports turns what a run recorded and what the checker found into
// what people and programs read: a text with a sequence diagram, a JSON object
// a run, and a table of many runs.
package reports

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
)

// Schema is the version of the JSON form of a Run. Within one version fields
// are only added.
const Schema = "lockcheck/v1"

// Status is how a run came out.
type Status string

const (
	Pass         Status = "pass"         // something was tested and nothing is violated
	Violation    Status = "violation"    // at least one property is violated
	Inconclusive Status = "inconclusive" // nothing is violated, and not enough was tested or decided
	Error        Status = "error"        // the run could not be carried out, or the checkers disagree
)

// severity orders statuses: a violation outranks everything else.
func (s Status) severity() int {
	return slices.Index([]Status{Pass, Inconclusive, Error, Violation}, s)
}

// Run is everything that is told about one run. Whoever carries it out fills
// in what was run and the status; SetReport fills in what the checker found.
// In JSON durations are in milliseconds.
type Run struct {
	Schema   string        `json:"schema"` // always Schema
	Scenario string        `json:"scenario"`
	Backend  string        `json:"backend"`
	Resource string        `json:"resource"`
	Runtime  string        `json:"runtime,omitempty"` // "local", "docker"
	TTL      time.Duration `json:"-"`                 // "ttl_ms"
	Seed     int64         `json:"seed"`
	Repeat   int           `json:"repeat"` // which of several equal runs
	// Violates is the property whose violation the scenario asserts, or empty.
	Violates string `json:"violates,omitempty"`

	Status      Status                       `json:"status"`
	Reasons     []string                     `json:"reasons,omitempty"` // why inconclusive or error
	Remarks     []string                     `json:"remarks,omitempty"` // of the harness: what a reader should know
	Excused     []string                     `json:"excused,omitempty"` // properties whose violation does not count here
	Known       []string                     `json:"known,omitempty"`   // properties whose violation is known, and does not count either
	Properties  map[string]*checker.Property `json:"properties"`        // by name
	Figures     []Figure                     `json:"figures,omitempty"` // what was measured beside the verdicts
	Findings    []checker.Finding            `json:"findings,omitempty"`
	Assumptions []checker.Finding            `json:"assumptions,omitempty"`
	Operations  int                          `json:"operations"`
	Grants      int                          `json:"grants"`
	Faults      int                          `json:"faults"` // that took effect
	// GrantsUnderFault are the grants that were confirmed while a fault was in effect.
	GrantsUnderFault int `json:"grants_under_fault"`

	Versions map[string]string `json:"versions"`         // software to version
	Dir      string            `json:"dir"`              // folder of the run
	Duration time.Duration     `json:"-"`                // "duration_ms"
	Replay   string            `json:"replay,omitempty"` // the command that runs it again
}

// plainRun is a Run without its methods.
type plainRun Run

// wireRun is the JSON form of a Run.
type wireRun struct {
	*plainRun
	TTL      millis `json:"ttl_ms"`
	Duration millis `json:"duration_ms"`
}

// millis is a duration that is written in JSON as a number of milliseconds,
// with microseconds behind the point.
type millis time.Duration

func (m millis) MarshalJSON() ([]byte, error) {
	us := time.Duration(m).Round(time.Microsecond).Microseconds()
	return strconv.AppendFloat(nil, float64(us)/1e3, 'f', -1, 64), nil
}

func (m *millis) UnmarshalJSON(b []byte) error {
	var ms float64
	if err := json.Unmarshal(b, &ms); err != nil {
		return err
	}
	*m = millis(time.Duration(ms * float64(time.Millisecond)).Round(time.Microsecond))
	return nil
}

// MarshalJSON implements json.Marshaler.
func (r Run) MarshalJSON() ([]byte, error) {
	r.Schema = Schema
	// Programs rely on these being objects.
	if r.Properties == nil {
		r.Properties = map[string]*checker.Property{}
	}
	if r.Versions == nil {
		r.Versions = map[string]string{}
	}
	return json.Marshal(wireRun{(*plainRun)(&r), millis(r.TTL), millis(r.Duration)})
}

// UnmarshalJSON implements json.Unmarshaler. A run of another schema is an
// error.
func (r *Run) UnmarshalJSON(b []byte) error {
	w := wireRun{plainRun: (*plainRun)(r)}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	if r.Schema != Schema {
		return fmt.Errorf("the schema is %q: this version reads %q", r.Schema, Schema)
	}
	r.TTL, r.Duration = time.Duration(w.TTL), time.Duration(w.Duration)
	return nil
}

// SetReport fills in what the checker found. It leaves the status alone, which
// also depends on what became of the run.
func (r *Run) SetReport(rep *checker.Report) {
	r.Properties = make(map[string]*checker.Property, len(rep.Properties))
	for i := range rep.Properties {
		p := rep.Properties[i]
		r.Properties[p.Name] = &p
	}
	r.Findings, r.Assumptions = rep.Findings, rep.Assumptions
	r.Operations, r.Grants = rep.Operations, rep.Grants
}

// NotChecked is the verdict on a property that a report does not have.
const NotChecked checker.Verdict = "not checked"

// Verdict returns the verdict on the property.
func (r *Run) Verdict(property string) checker.Verdict {
	if p := r.Properties[property]; p != nil {
		return p.Verdict
	}
	return NotChecked
}

// Outline is the run's outcome in a few words: what is violated or unknown, or
// else what held.
func (r *Run) Outline() string {
	var parts []string
	for _, verdict := range []checker.Verdict{checker.Violated, checker.Unknown, checker.Held} {
		var names []string
		for _, p := range r.properties() {
			if p.Verdict == verdict {
				names = append(names, p.Name)
			}
		}
		if len(names) > 0 && (verdict != checker.Held || len(parts) == 0) {
			parts = append(parts, strings.Join(names, ", ")+" "+string(verdict))
		}
	}
	if len(parts) == 0 {
		return "nothing judged"
	}
	return strings.Join(parts, "; ")
}

// properties returns the run's properties in the checker's order.
func (r *Run) properties() []*checker.Property {
	var all []*checker.Property
	for _, p := range r.Properties {
		all = append(all, p)
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := rank(all[i].Name), rank(all[j].Name)
		return a < b || a == b && all[i].Name < all[j].Name
	})
	return all
}

// rank is the place of a property in reports.
func rank(property string) int {
	known := []string{checker.Mutex, checker.Lease, checker.Token, checker.Fence, checker.State, checker.Release, checker.Liveness}
	if at := slices.Index(known, property); at >= 0 {
		return at
	}
	return len(known)
}

// JSON writes the run as one object on one line.
func JSON(w io.Writer, r *Run) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
