package manual

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/scenarios"
)

// needs says of each power what it takes.
var needs = map[string]string{
	nemesis.Links:      "connections through lockcheck's proxies, which a run with such a fault sets up",
	nemesis.Clock:      "targets started with a clock of their own: Linux on amd64",
	nemesis.Disk:       "servers started with a disk of their own: Linux on amd64",
	nemesis.Namespaces: "network namespaces: `--network netns`, as root or where user namespaces are allowed",
	nemesis.Containers: "containers: `--runtime docker`",
}

// faults is the page of the kinds of faults.
func faults() []byte {
	d := newDocument("Faults",
		"Every kind of fault, with its parameters. `lockcheck list faults` says which are available on your machine. "+
			"[Faults](../faults.md) has the proofs, and what was measured.")
	for _, name := range nemesis.Names() {
		k, err := nemesis.Find(name)
		if err != nil {
			continue // it was just listed
		}
		d.heading(2, name)
		d.paragraph(sentence(k.Summary))
		for _, n := range k.Needs {
			d.paragraph("Needs " + cmp.Or(needs[n], n) + ".")
		}
		if len(k.Params) == 0 {
			d.paragraph("No parameters.")
			continue
		}
		var rows [][]string
		for _, p := range slices.Sorted(maps.Keys(k.Params)) {
			rows = append(rows, []string{code(p), k.Params[p]})
		}
		d.table([]string{"parameter", "meaning"}, rows)
	}
	return d.Bytes()
}

// lockSystems is the page of backends, and of what a lock can protect.
func lockSystems() ([]byte, error) {
	d := newDocument("Backends and resources",
		"`lockcheck list backends` says which are available on your machine.")
	var proper, apart [][]string
	for _, name := range backends.Names() {
		b, err := backends.Find(name)
		if err != nil {
			return nil, err
		}
		row := []string{code(name), b.Summary, servers(b), choices(b.Nodes), yes(b.Leased), yes(b.Tokens), least(b)}
		if b.Apart != "" {
			apart = append(apart, append(row, b.Apart))
		} else {
			proper = append(proper, row)
		}
	}
	heads := []string{"backend", "what it is", "servers", "`--nodes`", "grants end by themselves", "fencing tokens", "least TTL"}
	d.heading(2, "Backends")
	d.table(heads, proper)
	d.heading(2, "Backends that stand apart")
	d.paragraph("`--backend all` leaves these out.")
	d.table(append(heads, "why"), apart)
	d.heading(2, "Resources")
	d.paragraph("What the lock protects, chosen with `--resource`.")
	var rows [][]string
	for _, name := range resource.Names() {
		k, err := resource.Find(name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, []string{code(name), k.Summary})
	}
	d.table([]string{"resource", "what it is"}, rows)
	return d.Bytes(), nil
}

// servers counts the servers of a backend by software.
func servers(b backends.Backend) string {
	if b.Servers == nil {
		return "none"
	}
	count := map[string]int{}
	for _, s := range b.Servers(backends.Options{}) {
		count[s.Software]++
	}
	var all []string
	for _, s := range slices.Sorted(maps.Keys(count)) {
		if count[s] > 1 {
			s = fmt.Sprintf("%d × %s", count[s], s)
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ")
}

func choices(nodes []int) string {
	var all []string
	for _, n := range nodes {
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, ", ")
}

func least(b backends.Backend) string {
	if b.MinTTL == nil {
		return ""
	}
	return b.MinTTL(backends.Options{}).String()
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// verdicts is the page of all words of a report.
func verdicts() []byte {
	d := newDocument("Verdicts", "The words of reports, `--json` and `run.json`. [Verdicts](../verdicts.md) defines them and says how they are decided.")
	for _, part := range []struct {
		title string
		all   []checker.Info
	}{{"Verdicts", checker.Verdicts()}, {"Properties", checker.Properties()}, {"Codes of findings", checker.Codes()}} {
		d.heading(2, part.title)
		d.info(part.all)
	}
	d.heading(2, "Models")
	d.paragraph("What `lockcheck check --model` holds a history against.")
	d.info(checker.Models())
	return d.Bytes()
}

func (d *document) info(all []checker.Info) {
	var rows [][]string
	for _, i := range all {
		rows = append(rows, []string{code(i.Name), i.Description})
	}
	d.table([]string{"word", "meaning"}, rows)
}

// figures is the page of what runs can measure.
func figures() []byte {
	d := newDocument("Figures", "What a scenario can have measured with `figures`, and expect; see [Writing a scenario](../writing-a-scenario.md#figures).")
	var rows [][]string
	for _, f := range scenarios.Figures() {
		rows = append(rows, []string{code(f.Name), f.Unit, f.Doc})
	}
	d.table([]string{"figure", "unit", "what is measured"}, rows)
	return d.Bytes()
}

// sentence makes a sentence of a line.
func sentence(line string) string {
	if line == "" {
		return ""
	}
	return strings.ToUpper(line[:1]) + line[1:] + "."
}
