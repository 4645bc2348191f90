package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/checker"
)

// columns of the table that are properties.
var tableProperties = [...]string{checker.Mutex, checker.Lease, checker.Token, checker.Fence}

var statusStyles = map[Status]style{Pass: good, Violation: bad, Inconclusive: cold, Error: bad}

// Table writes a line for each group of equal runs (scenario, backend and
// resource), in the order in which the groups first occur: the most severe
// status, in how many of how many runs it came out so, the verdict on each
// property, and the median time.
func Table(w io.Writer, runs []*Run, o Options) error {
	lines := [][]string{{"scenario", "backend", "resource", "status", "k/n"}}
	lines[0] = append(lines[0], tableProperties[:]...)
	lines[0] = append(lines[0], "median ms")
	styles := [][]style{make([]style, len(lines[0]))}
	for _, group := range Groups(runs) {
		worst := group[0].Status
		for _, r := range group {
			if r.Status.severity() > worst.severity() {
				worst = r.Status
			}
		}
		k := 0
		for _, r := range group {
			if r.Status == worst {
				k++
			}
		}
		line := []string{group[0].Scenario, group[0].Backend, group[0].Resource, string(worst), fmt.Sprintf("%d/%d", k, len(group))}
		cells := make([]style, len(line), len(lines[0]))
		cells[3] = statusStyles[worst]
		for _, p := range tableProperties {
			word, st := together(group, p)
			line, cells = append(line, word), append(cells, st)
		}
		line, cells = append(line, milliseconds(int64(Median(group)))), append(cells, plain)
		lines, styles = append(lines, line), append(styles, cells)
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i := range line {
			line[i] = o.clean(line[i])
			widths[i] = max(widths[i], textWidth(line[i]))
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-textWidth(cell))
			last := i == len(line)-1
			switch {
			case last: // a number
				b.WriteString(pad + cell + "\n")
			default:
				b.WriteString(o.paint(styles[n][i], cell) + pad + "  ")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Groups puts the runs of the same scenario, backend and resource together, in the
// order in which these first occur.
func Groups(runs []*Run) [][]*Run {
	type id struct{ scenario, backend, resource string }
	at := map[id]int{}
	var all [][]*Run
	for _, r := range runs {
		k := id{r.Scenario, r.Backend, r.Resource}
		i, ok := at[k]
		if !ok {
			i = len(all)
			at[k] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], r)
	}
	return all
}

// together is the verdict on a property in several runs: the word that all
// share, or how many are violated, or held.
func together(group []*Run, property string) (string, style) {
	counts := map[checker.Verdict]int{}
	for _, r := range group {
		if p := r.Properties[property]; p != nil {
			counts[p.Verdict]++
		}
	}
	for _, v := range []struct {
		verdict checker.Verdict
		word    string
		style   style
	}{
		{checker.Violated, "VIOLATED", bad}, {checker.Unknown, "unknown", cold}, {checker.Held, "held", good}, {checker.NotApplicable, "n/a", faint},
	} {
		switch n := counts[v.verdict]; n {
		case 0:
		case len(group):
			return v.word, v.style
		default:
			return fmt.Sprintf("%s %d/%d", v.word, n, len(group)), v.style
		}
	}
	return "-", faint
}

// Median is the median duration of the runs, 0 for none.
func Median(runs []*Run) time.Duration {
	if len(runs) == 0 {
		return 0
	}
	all := make([]time.Duration, len(runs))
	for i, r := range runs {
		all[i] = r.Duration
	}
	slices.Sort(all)
	mid := len(all) / 2
	if len(all)%2 == 1 {
		return all[mid]
	}
	return (all[mid-1] + all[mid]) / 2
}

// Summary is one sentence about equal runs. With a property that they were to
// violate it says in how many it was: "50 of 50 reproduced: ...".
func Summary(runs []*Run, violates string) string {
	if len(runs) == 0 {
		return "No run."
	}
	tail := fmt.Sprintf("; median %s ms.", milliseconds(int64(Median(runs))))
	if violates != "" {
		k := 0
		for _, r := range runs {
			if r.Verdict(violates) == checker.Violated {
				k++
			}
		}
		return fmt.Sprintf("%d of %d reproduced: %s violated%s%s", k, len(runs), violates, others(runs, Violation), tail)
	}
	k := 0
	for _, r := range runs {
		if r.Status == Pass {
			k++
		}
	}
	return fmt.Sprintf("%d of %d passed%s%s", k, len(runs), others(runs, Pass), tail)
}

// others counts the runs that came out otherwise, by status.
func others(runs []*Run, usual Status) string {
	s := ""
	for _, status := range []Status{Violation, Error, Inconclusive, Pass} {
		n := 0
		for _, r := range runs {
			if r.Status == status {
				n++
			}
		}
		if n > 0 && status != usual {
			s += fmt.Sprintf(", %d %s", n, status)
		}
	}
	return s
}
