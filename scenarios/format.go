package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Format writes a scenario with a workload as a file that reads as the same,
// under a comment. It sets File aside; the defaults that are filled in are
// written too.
func Format(s *Scenario, comment string) []byte {
	var b bytes.Buffer
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	for l := range strings.Lines(comment) {
		b.WriteString(strings.TrimRight("# "+strings.TrimRight(l, "\n"), " ") + "\n")
	}
	line("name", plain(s.Name))
	line("summary", plain(s.Summary))
	line("why", plain(s.Why))
	if len(s.Claims) > 0 {
		line("claims", list(s.Claims))
	}
	line("key", plain(s.Key))
	line("ttl", s.TTL.String())
	if len(s.Backends) > 0 {
		line("backends", list(s.Backends))
	}
	if len(s.Resources) > 0 {
		line("resources", list(s.Resources))
	}
	if len(s.As) > 0 {
		line("as", flow(s.As))
	}
	if len(s.Settings) > 0 {
		line("settings", flow(s.Settings))
	}
	line("violates", s.Violates)
	if s.Workload != nil {
		line("workload", s.Workload.String())
	}
	if len(s.Nemesis) > 0 {
		b.WriteString("nemesis:\n")
		for _, i := range s.Nemesis {
			fmt.Fprintf(&b, "  - %s\n", i)
		}
	}
	return b.Bytes()
}

// String is the workload in one line, as it may stand in a file.
func (w Workload) String() string {
	pairs := []string{
		fmt.Sprintf("clients: %d", w.Clients), fmt.Sprintf("keys: %d", w.Keys), "wait: " + w.Wait.String(),
	}
	for _, d := range []struct {
		name string
		Duration
	}{{"work", w.Work}, {"think", w.Think}, {"renew", w.Renew}} {
		if !d.IsZero() {
			pairs = append(pairs, d.name+": "+d.String())
		}
	}
	if w.Vary != defaultVary {
		pairs = append(pairs, fmt.Sprintf("vary: %d", w.Vary))
	}
	pairs = append(pairs, fmt.Sprintf("check: %v", w.Check), "body: "+w.Body)
	if !w.For.IsZero() {
		pairs = append(pairs, "for: "+w.For.String())
	}
	if w.Operations > 0 {
		pairs = append(pairs, fmt.Sprintf("operations: %d", w.Operations))
	}
	return join(pairs)
}

func join(pairs []string) string { return "{" + strings.Join(pairs, ", ") + "}" }

func list(names []string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = plain(n)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func flow(m map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, plain(k)+": "+plain(m[k]))
	}
	return join(pairs)
}

// unquoted is text that YAML takes for what it is, in a flow too.
var unquoted = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// plain writes text as YAML, quoted where it might be taken for something else:
// JSON's strings are YAML's.
func plain(s string) string {
	if s == "" || unquoted.MatchString(s) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(s)) {
		return s
	}
	q, _ := json.Marshal(s) // a string cannot fail
	return string(q)
}
