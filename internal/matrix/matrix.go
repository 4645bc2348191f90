// Package matrix is the table by which a lock is chosen: what each lock does under
// each kind of fault, as counted in runs, and the verdict that follows from that by
// a written rule. It says which runs a table needs, takes them in, judges the rows,
// and writes the table for people and programs.
//
// docs/matrix.md is the manual, and has the rule in words.
package matrix

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
)

// Schema is the version of the JSON form of a table. Within one version fields are
// only added.
const Schema = "lockcheck-matrix/v1"

// Table is a whole table.
type Table struct {
	Schema  string    `json:"schema"`
	Made    time.Time `json:"made"`
	Mode    string    `json:"mode"`   // Quick or Full
	Repeat  int       `json:"repeat"` // runs of each trial
	Seed    int64     `json:"seed"`   // of the first run of each trial
	Runtime string    `json:"runtime"`
	Rows    []*Row    `json:"rows"`
}

// Modes of a table.
const (
	Quick = "quick" // each trial a few times, and only those that decide
	Full  = "full"
)

// Row is one lock.
type Row struct {
	Name     string            `json:"name"`
	Backend  string            `json:"backend"`
	Resource string            `json:"resource"` // what protects the data as well as it can be with this lock
	Versions map[string]string `json:"versions,omitempty"`
	Cells    []Cell            `json:"cells"` // in the order of Columns
	Verdict  Verdict           `json:"verdict"`
	Words    string            `json:"words"`      // the verdict in words
	Because  []string          `json:"because"`    // what decides it, with counts
	Decided  []string          `json:"decided_by"` // the scenarios of that
}

// Cell is what was measured of one row for one column.
type Cell struct {
	Column string   `json:"column"`
	Trials []*Trial `json:"trials"` // none if no scenario of the column is meant for the lock
}

// Trial is a scenario that was run again and again on the same servers.
type Trial struct {
	Scenario string     `json:"scenario"`
	Backend  string     `json:"backend"`
	Resource string     `json:"resource"`
	Asks     []Question `json:"asks"`
	Runs     []Run      `json:"runs"`
}

// Run is one run of a trial.
type Run struct {
	Dir        string                     `json:"dir"` // relative to the table's file
	Seed       int64                      `json:"seed"`
	Status     reports.Status             `json:"status"`
	Reasons    []string                   `json:"reasons,omitempty"`
	Properties map[string]checker.Verdict `json:"properties"` // those that were held or violated
	// Stale is what became of writes of a client after another was granted the lock.
	Stale  Stale              `json:"stale,omitempty"`
	Values map[string]float64 `json:"values,omitempty"` // figures by name: milliseconds, or a second's sections
	Series []float64          `json:"series,omitempty"` // grants in each part of the run, of those that measure a rate
	Replay string             `json:"replay,omitempty"`
}

// Stale is what became of late writes.
type Stale string

const (
	Accepted  Stale = "accepted"  // at least one changed the resource after a write of a newer grant
	Rejected  Stale = "rejected"  // one was sent, and none changed anything
	NotSent   Stale = "not sent"  // another was granted the lock, and nothing was written late
	NoneOther Stale = "none else" // nobody else was granted the lock, so that nothing was late
)

// Conclusive reports whether the run proves anything.
func (r Run) Conclusive() bool { return r.Status == reports.Pass || r.Status == reports.Violation }

// violated reports whether the property is.
func (r Run) violated(property string) bool { return r.Properties[property] == checker.Violated }

// Conclusive returns the number of runs that prove something.
func (t *Trial) Conclusive() int {
	return t.count(func(Run) bool { return true })
}

// count counts the conclusive runs of which is is true.
func (t *Trial) count(is func(Run) bool) int {
	n := 0
	for _, r := range t.Runs {
		if r.Conclusive() && is(r) {
			n++
		}
	}
	return n
}

// Values returns a figure of all conclusive runs that have it, in their order.
func (t *Trial) Values(figure string) []float64 {
	var all []float64
	for _, r := range t.Runs {
		if v, ok := r.Values[figure]; ok && r.Conclusive() {
			all = append(all, v)
		}
	}
	return all
}

// Median returns the median of values, and the greatest; 0 for none.
func Median(values []float64) (median, worst float64) {
	if len(values) == 0 {
		return 0, 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2, s[len(s)-1]
}

// Row returns the row of that name, nil if there is none.
func (t *Table) Row(name string) *Row {
	i := slices.IndexFunc(t.Rows, func(r *Row) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return t.Rows[i]
}

// Cell returns the cell of the column.
func (r *Row) Cell(column string) Cell {
	i := slices.IndexFunc(r.Cells, func(c Cell) bool { return c.Column == column })
	if i < 0 {
		return Cell{Column: column}
	}
	return r.Cells[i]
}

// Judge judges all rows.
func (t *Table) Judge() {
	for _, r := range t.Rows {
		r.judge()
	}
}

// Undecided returns the names of the rows whose verdict is not shown.
func (t *Table) Undecided() []string {
	var all []string
	for _, r := range t.Rows {
		if r.Verdict == NotShown {
			all = append(all, r.Name)
		}
	}
	return all
}

// Failure returns why no run of the table could be carried out, "" if one could.
func (t *Table) Failure() string {
	why := ""
	for _, r := range t.Rows {
		for _, u := range r.Units() {
			if !u[0].failed() {
				return ""
			}
			for _, run := range u[0].Runs {
				why = cmp.Or(why, strings.Join(run.Reasons, "; "), string(run.Status))
			}
		}
	}
	return why
}

// Read reads a table that was written as JSON, and judges it by the rule of this
// version.
func Read(path string) (*Table, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var t Table
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("%s: not a table of lockcheck matrix: %w", path, err)
	}
	if t.Schema != Schema {
		return nil, fmt.Errorf("%s: the schema is %q: this version reads %q", path, t.Schema, Schema)
	}
	t.Judge()
	return &t, nil
}
