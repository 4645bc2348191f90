package trackrecord

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// Schema is the version of the JSON form. Within one version fields are only added.
const Schema = "lockcheck-track-record/v1"

// record is the JSON form.
type record struct {
	Schema  string   `json:"schema"`
	Results []Result `json:"results"`
}

// Read reads results from a file; there are none if there is no file.
func Read(file string) ([]Result, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("%s: the schema is %q: this version reads %q", file, r.Schema, Schema)
	}
	return r.Results, nil
}

// Merge puts new results in the place of older ones, in the order of Reports and with
// their words. Results of what is no report any more are dropped.
func Merge(old, fresh []Result) []Result {
	var all []Result
	for _, r := range Reports() {
		results := slices.Concat(fresh, old)
		at := slices.IndexFunc(results, func(x Result) bool { return x.Scenario == r.Scenario })
		if at < 0 {
			continue
		}
		x := results[at]
		x.Report, x.URL, x.Kind, x.Wrong = r.Public, r.URL, r.Kind, r.Wrong
		x.Subject.What, x.Control.What = r.Subject.What, r.Control.What
		all = append(all, x)
	}
	return all
}

// JSON is the machine-readable form.
func JSON(results []Result) ([]byte, error) {
	b, err := json.MarshalIndent(record{Schema, results}, "", "  ")
	return append(b, '\n'), err
}

const preface = `<!-- Made by ` + "`make track-record`" + ` from runs: change the scenarios or internal/trackrecord instead. -->

# Track record

Public reports of locks that failed, each run here as a scenario named for it, on real servers: with the library or the
server that it is about where that can be installed, and else with a client that has the same flaw (a *mutant*, see
[mutants.md](mutants.md)). *k of n* are runs that came out as the scenario's file expects, which is checked property by property;
the control is the same story with what fixes it, or with what does not have the flaw. Some reports break no promise of a lock, which
ends after its lease in any case: then a figure or a finding is what shows them. The numbers are those of
[track-record.json](track-record.json), which also has the versions, and what was unlike in the runs that did not.

    make track-record                            # all of it again, ten runs of each
    make track-record REPORTS=bug-redsync-126    # one row again
    lockcheck run bug-redsync-126 --backend redis --client 'bin/clients/redsync -constant-value'

The last line is for a look at one of them; ` + "`lockcheck verify bugs --client 'your lock' --backend redis`" + ` runs them all with a lock of yours.

`

// Markdown is the page for people.
func Markdown(results []Result) []byte {
	var b strings.Builder
	b.WriteString(preface)
	b.WriteString("| public report | what goes wrong | kind | scenario | what was run | reproduced | control | clean | last run |\n|---|---|---|---|---|---|---|---|---|\n")
	reproduced, clean := 0, 0
	for _, r := range results {
		if r.Subject.AsTold == r.Subject.Runs {
			reproduced++
		}
		if r.Control.AsTold == r.Control.Runs {
			clean++
		}
		fmt.Fprintf(&b, "| [%s](%s) | %s | %s | [`%s`](../scenarios/%s.yaml) | %s | %s: %s | %s | %s: %s | %s |\n",
			r.Report, r.URL, r.Wrong, r.Kind, r.Scenario, r.Scenario,
			r.Subject.run(), r.Subject.count(), r.Subject.shown(),
			r.Control.run(), r.Control.count(), r.Control.shown(), r.Date)
	}
	fmt.Fprintf(&b, "\n%d reports: reproduced in every run %d, control clean in every run %d.\n", len(results), reproduced, clean)
	if unlike := unlike(results); unlike != "" {
		b.WriteString("\n## Runs that came out otherwise\n\n" + unlike)
	}
	return []byte(b.String())
}

// count is k of n, in bold if k is less.
func (o Outcome) count() string {
	s := fmt.Sprintf("%d of %d", o.AsTold, o.Runs)
	if o.AsTold < o.Runs {
		return "**" + s + "**"
	}
	return s
}

// run is what was run, with the versions of the software.
func (o Outcome) run() string {
	var of []string
	for _, name := range slices.Sorted(maps.Keys(o.Versions)) {
		if client, ok := strings.CutPrefix(name, "client "); ok {
			if strings.HasPrefix(o.Versions[name], "v") || strings.Contains(o.Versions[name], ".") {
				library, _, _ := strings.Cut(client, " ") // without its flags
				of = append(of, library+" "+o.Versions[name])
			}
			continue
		}
		of = append(of, name+" "+o.Versions[name])
	}
	return o.What + " (" + strings.Join(of, ", ") + ")"
}

// shown is what each run was to show, with the medians of what was measured.
func (o Outcome) shown() string {
	all := slices.Clone(o.Expected)
	for i, what := range all {
		name, between, _ := strings.Cut(what, " ")
		if measured := slices.Sorted(slices.Values(o.Figures[name])); len(measured) > 0 {
			all[i] = fmt.Sprintf("%s %.0f ms (median; expected %s, ttl being %d ms)", name, measured[len(measured)/2], between, o.TTL)
		}
	}
	return strings.Join(all, "; ")
}

func unlike(results []Result) string {
	var b strings.Builder
	for _, r := range results {
		for _, o := range []Outcome{r.Subject, r.Control} {
			for _, u := range o.Unlike {
				fmt.Fprintf(&b, "- `%s`, %s: %s\n", o.Scenario, o.What, u)
			}
		}
	}
	return b.String()
}
