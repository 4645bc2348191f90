// Package page writes a run as one HTML file that needs nothing else: a lane per
// client on a real time axis, what each believed over what the service had
// granted, faults, writes at the resource, and the verdict. It opens offline,
// and may be attached to a post-mortem.
//
// Nothing from a history becomes markup or script: names and values reach the page
// through html/template, or inside a block of base64 from which its script makes
// text nodes. A content security policy allows the page's own script and style,
// by their hashes, and no request at all.
package page

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/plot"
)

//go:embed page.html
var source string

//go:embed page.css
var style string

//go:embed page.js
var script string

// The page before and after the packed history, which is too large to go through
// a template.
var head, tail = func() (head, tail *template.Template) {
	before, after, _ := strings.Cut(source, "@@history@@")
	parse := func(name, text string) *template.Template {
		return template.Must(template.New(name).Funcs(template.FuncMap{"upper": strings.ToUpper}).Parse(text))
	}
	return parse("head", before), parse("tail", after)
}()

// Policy is the content security policy of every page: also what a server has to
// send with it.
func Policy() string {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + hash(script) + "; style-src " + hash(style) + "; base-uri 'none'; form-action 'none'"
}

// Write writes the page of a run. H is its whole history; events, which may be
// nil, are those that its sequence diagram tells, see reports.Diagram.
func Write(w io.Writer, r *reports.Run, h *history.History, events []history.Event) error {
	v, err := newView(r, h, events)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<16)
	if err := head.Execute(out, v); err != nil {
		return err
	}
	if _, err := io.WriteString(out, `<script type="application/octet-stream" id="history">`); err != nil {
		return err
	}
	if err := v.pack(out); err != nil {
		return err
	}
	if _, err := io.WriteString(out, "</script>"); err != nil {
		return err
	}
	if err := tail.Execute(out, v); err != nil {
		return err
	}
	return out.Flush()
}

// view is what the template shows.
type view struct {
	Policy   string
	Style    template.CSS
	Script   template.JS
	Run      *reports.Run
	Headline string
	Answers  []answer
	Props    []*checker.Property
	Sequence template.HTML
	Plots    []template.HTML
	Holds    []holdRow
	Writes   []writeRow
	Faults   []faultRow
	Clients  int
	Span     string
	More     string // what the tables leave out
	Versions []string

	h        *history.History
	holds    []hold
	overlaps []overlap
	stale    []int32
	faults   []fault
}

// answer is one of the questions that everybody asks, answered.
type answer struct {
	Question, Short string
	Bad, Good       bool
	Lines           []string
}

func newView(r *reports.Run, h *history.History, events []history.Event) (*view, error) {
	v := &view{
		Policy: Policy(), Style: template.CSS(style), Script: template.JS(script), //nolint:gosec // our own files
		Run: r, Headline: r.Headline(), Props: r.Ordered(), h: h, faults: faultsOf(h),
	}
	v.holds = holdsOf(h, r.Verdict(checker.Mutex) != checker.NotApplicable)
	if r.Verdict(checker.Mutex) == checker.Violated {
		v.overlaps = overlapsOf(v.holds)
	}
	if r.Verdict(checker.Fence) == checker.Violated {
		v.stale = staleWrites(h, v.holds)
	}
	seen := map[int32]bool{}
	for i := range h.Ops {
		seen[h.Ops[i].Process] = true
	}
	v.Clients = len(seen)
	v.Span = milliseconds(lastTime(h)) + " ms"
	for _, name := range sortedNames(r.Versions) {
		v.Versions = append(v.Versions, strings.TrimSpace(name+" "+r.Versions[name]))
	}
	v.answer()
	v.tables()
	if len(events) > 0 {
		var b strings.Builder
		if err := reports.SVG(&b, events, r.Report(), reports.Options{Service: r.Backend, Resource: r.Resource, Embedded: true}); err != nil {
			return nil, err
		}
		v.Sequence = template.HTML(b.String()) //nolint:gosec // made by our own writer, which escapes
	}
	for _, kind := range plot.Kinds {
		var b strings.Builder
		drawn, err := plot.Draw(&b, kind, h, plot.Options{Embedded: true})
		if err != nil {
			return nil, err
		}
		if drawn {
			v.Plots = append(v.Plots, template.HTML(b.String())) //nolint:gosec // as above
		}
	}
	return v, nil
}

// answer says who held when, when the lease ended, and whether the resource was
// harmed.
func (v *view) answer() {
	mutex, lease, fence := v.Run.Properties[checker.Mutex], v.Run.Properties[checker.Lease], v.Run.Properties[checker.Fence]
	held := answer{Question: "Did two clients hold at once?", Short: "not judged"}
	ends := answer{Question: "Did the lock service keep its lease?", Short: "not judged"}
	harm := answer{Question: "Was the resource harmed?", Short: "not judged"}
	if mutex != nil {
		held.Short = short(mutex, "No", "Yes")
		if mutex.Verdict == checker.Violated {
			held.Bad = true
			if mutex.Overlap > 0 {
				held.Short = "Yes, for " + milliseconds(int64(mutex.Overlap)) + " ms"
			}
			if mutex.Count > 1 {
				held.Short += fmt.Sprintf(", %d times", mutex.Count)
			}
			if mutex.Witness != nil {
				for _, h := range mutex.Witness.Holds {
					held.Lines = append(held.Lines, believes(h))
				}
			}
		} else {
			held.Good = mutex.Verdict == checker.Held
			held.Lines = []string{mutex.Why}
		}
	}
	if lease != nil {
		ends.Short = short(lease, "Yes", "No")
		ends.Bad, ends.Good = lease.Verdict == checker.Violated, lease.Verdict == checker.Held
		if mutex != nil && mutex.Witness != nil {
			for _, h := range mutex.Witness.Holds {
				if h.Expiry > 0 && h.Expiry < h.To {
					ends.Lines = append(ends.Lines, fmt.Sprintf("%s's lease ended at %s ms, but it believed for %s ms longer.", h.Process, milliseconds(h.Expiry), milliseconds(min(h.To, lastTime(v.h))-h.Expiry)))
				}
			}
		}
		if len(ends.Lines) == 0 {
			ends.Lines = []string{lease.Why}
		}
	}
	if fence != nil {
		accepted, rejected := 0, 0
		for i := range v.h.Applied {
			switch a := &v.h.Applied[i]; {
			case a.Kind != history.KindWrite:
			case a.Accepted:
				accepted++
			default:
				rejected++
			}
		}
		harm.Short = short(fence, "No", "Yes")
		harm.Bad, harm.Good = fence.Verdict == checker.Violated, fence.Verdict == checker.Held
		if harm.Good && rejected > 0 {
			harm.Short = "No, it rejected " + count(rejected, "write")
		}
		harm.Lines = []string{fence.Why}
		if accepted+rejected > 0 {
			harm.Lines = append(harm.Lines, fmt.Sprintf("%s accepted, %d rejected.", count(accepted, "write"), rejected))
		}
	}
	if state := v.Run.Properties[checker.State]; state != nil && state.Verdict == checker.Violated {
		// Whatever was fenced off, what is there now is not what it should be.
		harm.Short, harm.Bad, harm.Good = "Yes", true, false
		harm.Lines = append([]string{state.Why}, harm.Lines...)
	}
	v.Answers = []answer{held, ends, harm}
}

func short(p *checker.Property, held, violated string) string {
	switch p.Verdict {
	case checker.Held:
		return held
	case checker.Violated:
		return violated
	case checker.Unknown:
		return "Unknown"
	}
	return "Not applicable"
}

func believes(h checker.Hold) string {
	who := h.Process
	if h.Token != nil {
		who += fmt.Sprintf(" (token %d)", *h.Token)
	}
	if h.To >= history.Never {
		return who + " from " + milliseconds(h.From) + " ms to the end"
	}
	return who + " from " + milliseconds(h.From) + " to " + milliseconds(h.To) + " ms"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Rows of the tables, which say in text what the lanes draw.
type (
	holdRow struct {
		Client, Key, Token, Confirmed, Expiry, Believed, End string
		Overlap                                              string
	}
	writeRow struct{ Time, Client, Key, Value, Token, Verdict string }
	faultRow struct{ Kind, On, From, To, Proof string }
)

// mostRows is how many rows a table has.
const mostRows = 200

func (v *view) tables() {
	first := int64(0)
	for _, p := range v.Props {
		if p.Verdict == checker.Violated && (first == 0 || p.First < first) {
			first = p.First
		}
	}
	// Of many rows those around the first violation are shown.
	window := func(n int, at func(int) int64) (int, int) {
		if n <= mostRows {
			return 0, n
		}
		i := sort.Search(n, func(i int) bool { return at(i) >= first })
		from := max(0, min(i-mostRows/2, n-mostRows))
		return from, from + mostRows
	}
	over := map[int32]string{}
	for _, o := range v.overlaps {
		over[o.b] = milliseconds(o.to-o.from) + " ms with " + cut(v.h.Processes[v.holds[o.a].process])
	}
	from, to := window(len(v.holds), func(i int) int64 { return v.holds[i].confirmed })
	for i := from; i < to; i++ {
		g := &v.holds[i]
		row := holdRow{
			Client: cut(v.h.Processes[g.process]), Key: cut(v.h.Keys[g.key]), Confirmed: milliseconds(g.confirmed),
			Believed: milliseconds(g.believed), End: endings[g.end], Overlap: over[int32(i)],
		}
		if g.hasToken {
			row.Token = fmt.Sprint(g.token)
		}
		if g.expiry > 0 {
			row.Expiry = milliseconds(g.expiry)
		}
		v.Holds = append(v.Holds, row)
	}
	wfrom, wto := window(len(v.h.Applied), func(i int) int64 { return v.h.Applied[i].Time })
	for i := wfrom; i < wto; i++ {
		a := &v.h.Applied[i]
		row := writeRow{
			Time: milliseconds(a.Time), Client: cut(v.h.Processes[a.Client]), Key: cut(v.h.Keys[a.Key]), Verdict: "REJECTED",
		}
		if a.Value >= 0 {
			row.Value = cut(v.h.Values[a.Value])
		}
		if a.HasToken {
			row.Token = fmt.Sprint(a.Token)
		}
		if a.Accepted {
			row.Verdict = "ACCEPTED"
			if _, found := slices.BinarySearch(v.stale, int32(i)); found {
				row.Verdict = "ACCEPTED (stale)"
			}
		}
		v.Writes = append(v.Writes, row)
	}
	for _, f := range v.faults[:min(len(v.faults), mostRows)] {
		row := faultRow{f.Kind, cut(strings.Join(f.On, ", ")), milliseconds(f.From), milliseconds(f.To), f.Proof}
		switch {
		case f.Failed != "":
			row.To, row.Proof = "", "did not come into effect: "+f.Failed
		case f.Open:
			row.To += " (not healed)"
		}
		v.Faults = append(v.Faults, row)
	}
	if len(v.holds) > len(v.Holds) || len(v.h.Applied) > len(v.Writes) || len(v.faults) > len(v.Faults) {
		v.More = fmt.Sprintf("Of %d grants, %d requests at the resource and %d faults, those around the first violation are listed.",
			len(v.holds), len(v.h.Applied), len(v.faults))
	}
}

// pack writes the history for the page's script.
func (v *view) pack(w io.Writer) error {
	h := v.h
	var c columns
	tokens := tokensOf(h)
	n := len(h.Ops)
	c.deltas("op.call", n, func(i int) int64 { return h.Ops[i].Call })
	c.plain("op.took", n, func(i int) int64 { // 0: the outcome is unknown
		if h.Ops[i].Ret >= history.Never {
			return 0
		}
		return h.Ops[i].Ret - h.Ops[i].Call
	})
	c.plain("op.process", n, func(i int) int64 { return int64(h.Ops[i].Process) })
	c.plain("op.key", n, func(i int) int64 { return int64(h.Ops[i].Key) })
	c.plain("op.what", n, func(i int) int64 {
		return int64(h.Ops[i].Kind) | int64(h.Ops[i].Outcome)<<4 | bit(h.Ops[i].HasToken)<<6
	})
	c.deltas("op.index", n, func(i int) int64 { return int64(h.Ops[i].Index) })
	token := int64(0)
	c.deltas("op.token", n, func(i int) int64 {
		if h.Ops[i].HasToken {
			token = tokens.at(h.Ops[i].Token)
		}
		return token
	})
	values := dictionary{limit: 1 << 18}
	c.plain("op.value", n, func(i int) int64 { return values.at(h.Values, h.Ops[i].Value) })
	c.plain("op.error", n, func(i int) int64 { return int64(h.Ops[i].Error) })

	n = len(v.holds)
	c.deltas("hold.asked", n, func(i int) int64 { return v.holds[i].asked })
	c.deltas("hold.confirmed", n, func(i int) int64 { return v.holds[i].confirmed })
	c.deltas("hold.believed", n, func(i int) int64 { return v.holds[i].believed })
	c.deltas("hold.from", n, func(i int) int64 { return v.holds[i].from })
	c.deltas("hold.until", n, func(i int) int64 { return v.holds[i].until })
	c.plain("hold.lease", n, func(i int) int64 { // 0: none
		if v.holds[i].expiry == 0 {
			return 0
		}
		return max(v.holds[i].expiry-v.holds[i].from, 1)
	})
	c.plain("hold.process", n, func(i int) int64 { return int64(v.holds[i].process) })
	c.plain("hold.key", n, func(i int) int64 { return int64(v.holds[i].key) })
	c.plain("hold.what", n, func(i int) int64 {
		return int64(v.holds[i].end) | bit(v.holds[i].vague)<<4 | bit(v.holds[i].hasToken)<<5
	})
	c.deltas("hold.token", n, func(i int) int64 { return tokens.at(v.holds[i].token) })

	n = len(h.Applied)
	c.deltas("applied.time", n, func(i int) int64 { return h.Applied[i].Time })
	c.plain("applied.client", n, func(i int) int64 { return int64(h.Applied[i].Client) })
	c.plain("applied.key", n, func(i int) int64 { return int64(h.Applied[i].Key) })
	c.plain("applied.what", n, func(i int) int64 {
		_, stale := slices.BinarySearch(v.stale, int32(i))
		return int64(h.Applied[i].Kind) | bit(h.Applied[i].Accepted)<<4 | bit(h.Applied[i].HasToken)<<5 | bit(stale)<<6
	})
	c.deltas("applied.token", n, func(i int) int64 { return tokens.at(h.Applied[i].Token) })
	c.plain("applied.value", n, func(i int) int64 { return values.at(h.Values, h.Applied[i].Value) })
	c.deltas("applied.index", n, func(i int) int64 { return int64(h.Applied[i].Index) })

	n = len(v.overlaps)
	c.deltas("overlap.from", n, func(i int) int64 { return v.overlaps[i].from })
	c.plain("overlap.length", n, func(i int) int64 { return v.overlaps[i].to - v.overlaps[i].from })
	c.plain("overlap.key", n, func(i int) int64 { return int64(v.overlaps[i].key) })
	c.plain("overlap.a", n, func(i int) int64 { return int64(v.overlaps[i].a) })
	c.plain("overlap.b", n, func(i int) int64 { return int64(v.overlaps[i].b) })

	return c.write(w, map[string]any{
		"tokens": tokens.texts,
		"end":    lastTime(h), "timeless": h.Timeless,
		"processes": cutAll(h.Processes), "keys": cutAll(h.Keys), "errors": cutAll(h.Errors),
		"values": values.texts, "endings": endings, "faults": append([]fault{}, v.faults...),
		"jumps": firsts(v.Props), "notices": len(h.Notices), "focus": v.focus(),
		"resource": v.Run.Resource, "service": v.Run.Backend,
	})
}

// focus is what the page shows first: the story of the first violation, or all.
func (v *view) focus() [2]int64 {
	all := [2]int64{0, lastTime(v.h)}
	var p *checker.Property
	if p = v.Run.Primary(); p == nil || p.Witness == nil || len(p.Witness.Holds) == 0 {
		return all
	}
	from, to := int64(math.MaxInt64), int64(0)
	for _, h := range p.Witness.Holds {
		from, to = min(from, h.From), max(to, min(h.To, all[1]))
	}
	room := (to - from) / 12
	return [2]int64{max(0, from-room), min(all[1], to+room)}
}

// maxExact is beyond what the page's script can add up exactly.
const maxExact = 1 << 51

// tokenCode writes tokens as they are or, if one of the history is too large for
// that, as indexes of texts.
type tokenCode struct {
	texts []string // nil for tokens as they are
	ids   map[int64]int64
}

func tokensOf(h *history.History) *tokenCode {
	t := &tokenCode{}
	large := func(v int64) bool { return v > maxExact || v < -maxExact }
	for i := range h.Ops {
		if h.Ops[i].HasToken && large(h.Ops[i].Token) {
			t.ids = map[int64]int64{}
		}
	}
	for i := range h.Applied {
		if h.Applied[i].HasToken && large(h.Applied[i].Token) {
			t.ids = map[int64]int64{}
		}
	}
	return t
}

func (t *tokenCode) at(token int64) int64 {
	if t.ids == nil {
		return token
	}
	id, found := t.ids[token]
	if !found {
		id = int64(len(t.texts))
		t.ids[token] = id
		t.texts = append(t.texts, strconv.FormatInt(token, 10))
	}
	return id
}

// dictionary numbers the texts that are kept, from 1 on; 0 is none. Of a history
// with more different texts than limit the later ones are left out.
type dictionary struct {
	limit int
	texts []string
	ids   map[int32]int64
}

func (s *dictionary) at(all []string, i int32) int64 {
	if i < 0 {
		return 0
	}
	if id, found := s.ids[i]; found {
		return id
	}
	if s.ids == nil {
		s.ids = map[int32]int64{}
	}
	if len(s.texts) >= s.limit {
		return 0
	}
	s.texts = append(s.texts, cut(all[i]))
	s.ids[i] = int64(len(s.texts))
	return s.ids[i]
}

// longest is the length in bytes to which texts are cut.
const longest = 200

func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= longest {
		return s
	}
	n := longest
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func cutAll(all []string) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = cut(s)
	}
	return out
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// milliseconds writes nanoseconds as milliseconds, with one digit behind the point,
// or more where there would be nothing else to see.
func milliseconds(ns int64) string {
	if ns != 0 && ns < int64(time.Millisecond) && ns > -int64(time.Millisecond) {
		return fmt.Sprintf("%.3f", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.1f", float64(ns)/1e6)
}
