package reports

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// Text writes the report of one run for people: the verdict in one sentence;
// who, when and why; the properties; the sequence diagram of events, which may
// be nil if there is no history; where the files are and how to run it again.
// Rep is what the checker said of events, as given to r.SetReport.
func Text(w io.Writer, r *Run, rep *checker.Report, events []history.Event, o Options) error {
	if o.Service == "" {
		o.Service = r.Backend
	}
	if o.Resource == "" {
		o.Resource = r.Resource
	}
	out := bufio.NewWriter(w)
	t := &textReport{w: out, r: r, o: o}
	t.verdict()
	t.run()
	t.explanation()
	t.properties()
	t.figures()
	t.findings()
	if len(events) > 0 {
		fmt.Fprintln(out)
		if err := Diagram(out, events, rep, o); err != nil {
			return err
		}
	}
	t.files()
	return out.Flush()
}

type textReport struct {
	w *bufio.Writer
	r *Run
	o Options
}

// paragraph writes text wrapped, with a head before its first line.
func (t *textReport) paragraph(head, text string) {
	const indent = 10
	for i, line := range wrap(t.sentence(text), t.o.width()-indent) {
		if i > 0 {
			head = ""
		}
		fmt.Fprintf(t.w, "%-*s%s\n", indent, head, line)
	}
}

// sentence makes one line of text: several errors may have been joined by line
// breaks.
func (t *textReport) sentence(text string) string {
	return t.o.clean(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}

func (t *textReport) verdict() {
	words, st := strings.ToUpper(string(t.r.Status)), statusStyles[t.r.Status]
	lines := wrap(words+": "+t.sentence(t.r.Headline()), t.o.width())
	if rest, ok := strings.CutPrefix(lines[0], words+":"); ok {
		lines[0] = t.o.paint(st, words+":") + rest
	}
	for _, line := range lines {
		fmt.Fprintln(t.w, line)
	}
	if t.r.Status == Inconclusive || t.r.Status == Error {
		for _, reason := range t.r.Reasons[min(1, len(t.r.Reasons)):] {
			t.paragraph("  also", reason)
		}
	}
}

func (t *textReport) run() {
	r := t.r
	what := r.Scenario + " on " + r.Backend
	if r.Scenario == "" {
		what = "a history"
		if r.Backend != "" {
			what += " of " + r.Backend
		}
	}
	if r.Resource != "" {
		what += ", resource " + r.Resource
	}
	if r.TTL > 0 {
		what += ", TTL " + r.TTL.String()
	}
	if r.Scenario != "" {
		what += fmt.Sprintf(", seed %d", r.Seed)
	}
	if r.Repeat > 1 {
		what += fmt.Sprintf(", repeat %d", r.Repeat)
	}
	if r.Duration > 0 {
		what += fmt.Sprintf(", took %s ms", milliseconds(int64(r.Duration)))
	}
	fmt.Fprintln(t.w)
	t.paragraph("Run", what)
	var versions []string
	for _, name := range sortedKeys(r.Versions) {
		versions = append(versions, strings.TrimSpace(name+" "+r.Versions[name]))
	}
	if len(versions) > 0 {
		t.paragraph("With", strings.Join(versions, ", "))
	}
	for _, remark := range r.Remarks {
		t.paragraph("Note", remark)
	}
}

// explanation says who held, when, and why that is a violation.
func (t *textReport) explanation() {
	p := t.r.Primary()
	if p == nil {
		return
	}
	if p.Witness != nil {
		for i, h := range p.Witness.Holds {
			head := "Who"
			if i > 0 {
				head = ""
			}
			t.paragraph(head, hold(h))
		}
	}
	if p.First > 0 || p.Overlap > 0 {
		when := "from " + milliseconds(p.First) + " ms on"
		if p.Overlap > 0 {
			when += ", for " + milliseconds(int64(p.Overlap)) + " ms"
		}
		if p.Count > 1 {
			when += fmt.Sprintf(", %d times in all", p.Count)
		}
		t.paragraph("When", when)
	}
	if why := t.cause(p); why != "" {
		t.paragraph("Why", why)
	}
}

// cause says why the property is violated, where its own sentence does not.
func (t *textReport) cause(p *checker.Property) string {
	lease := t.r.Properties[checker.Lease]
	switch {
	case t.r.Properties[p.FollowsFrom] != nil:
		return "It follows from " + p.FollowsFrom + ": " + t.r.Properties[p.FollowsFrom].Why
	case p.Witness != nil && p.Witness.Why != p.Why:
		return p.Witness.Why
	case p.Name != checker.Mutex || lease == nil || strings.Contains(p.Why, "lease"):
	case lease.Verdict == checker.Held:
		return "The service did what it promised: a client outlived its lease."
	case lease.Verdict == checker.Violated:
		return "The service broke its promise: it granted the lock while a lease stood."
	}
	return ""
}

// hold tells of one claim.
func hold(h checker.Hold) string {
	s := h.Process
	if h.Token != nil {
		s += fmt.Sprintf(", token %d,", *h.Token)
	}
	s += " was granted the lock at " + milliseconds(h.From) + " ms"
	switch {
	case h.To >= history.Never:
		s += " and never gave it up"
	case h.End != "":
		s += ", and believed that it held until " + milliseconds(h.To) + " ms (" + h.End + ")"
	default:
		s += ", and believed that it held until " + milliseconds(h.To) + " ms"
	}
	if h.Expiry > 0 {
		s += "; its lease ended at " + milliseconds(h.Expiry) + " ms at the earliest"
	}
	return s
}

func (t *textReport) properties() {
	all := t.r.properties()
	if len(all) == 0 {
		return
	}
	name, verdict := len("property"), len("verdict")
	for _, p := range all {
		name = max(name, textWidth(t.o.clean(p.Name)))
		verdict = max(verdict, textWidth(verdictWord(p)))
	}
	indent := name + verdict + 4
	fmt.Fprintf(t.w, "\n%-*s  %-*s  %s\n", name, "property", verdict, "verdict", "why")
	for _, p := range all {
		st := map[checker.Verdict]style{checker.Held: good, checker.Violated: bad, checker.Unknown: cold, checker.NotApplicable: faint}[p.Verdict]
		why := p.Why
		if p.Second != nil && p.Second.Outcome != checker.Agrees {
			why += " Second opinion: " + p.Second.Outcome
			if p.Second.Detail != "" {
				why += ": " + p.Second.Detail
			}
			why += "."
		}
		lines := wrap(t.sentence(why), max(t.o.width()-indent, 20))
		fmt.Fprintf(t.w, "%-*s  %s%*s  %s\n", name, t.o.clean(p.Name),
			t.o.paint(st, verdictWord(p)), verdict-len(verdictWord(p)), "", lines[0])
		for _, line := range lines[1:] {
			fmt.Fprintf(t.w, "%*s%s\n", indent, "", line)
		}
	}
}

func verdictWord(p *checker.Property) string {
	if p.Verdict == checker.Violated {
		return "VIOLATED"
	}
	return string(p.Verdict)
}

func (t *textReport) findings() {
	if len(t.r.Findings)+len(t.r.Assumptions) == 0 {
		return
	}
	fmt.Fprintln(t.w)
	for _, f := range t.r.Findings {
		t.paragraph("Found", finding(f))
	}
	for _, f := range t.r.Assumptions {
		t.paragraph("Assumed", "the history breaks an assumption of the checkers: "+finding(f))
	}
}

func finding(f checker.Finding) string {
	s := f.Code + ": " + f.Why
	if f.Count > 1 {
		s += fmt.Sprintf(" (%d in all)", f.Count)
	}
	return s
}

// files ends the report with what one copies: so these lines are not wrapped.
func (t *textReport) files() {
	if t.r.Dir == "" && t.r.Replay == "" {
		return
	}
	fmt.Fprintln(t.w)
	if t.r.Dir != "" {
		fmt.Fprintf(t.w, "%-10s%s\n", "Files", t.o.clean(t.r.Dir))
	}
	if t.r.Replay != "" {
		fmt.Fprintf(t.w, "%-10s%s\n", "Again", t.o.clean(t.r.Replay))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
