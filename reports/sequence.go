package reports

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
)

// step is a row that is shown, or operations that are left out before it.
type step struct {
	row
	omitted int // operations left out before the row, -1 if only rows that are none
}

// steps are the rows that are shown. Rest is how many operations follow the
// last one.
func (d *diagram) steps() (all []step, rest int) {
	keep := d.shown()
	prev := -1
	for i, r := range d.rows {
		if !keep[i] {
			continue
		}
		s := step{row: r, omitted: r.before}
		if prev >= 0 {
			s.omitted -= d.rows[prev].after
		}
		if s.omitted <= 0 && prev < i-1 {
			s.omitted = -1
		}
		all = append(all, s)
		prev = i
	}
	if prev >= 0 {
		rest = d.ops - d.rows[prev].after
	}
	return all, rest
}

// label is the text of a mark, where there is no lack of room.
func (m mark) label() string {
	if m.lost {
		return m.labels[0] + ": " + m.labels[1]
	}
	return m.labels[0]
}

// Mermaid writes the diagram as a Mermaid sequence diagram, for documents and
// pull requests. What it shows is what Diagram shows.
func Mermaid(w io.Writer, events []history.Event, rep *checker.Report, o Options) error {
	d := tell(events, rep, o)
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "sequenceDiagram")
	if len(d.rows) == 0 {
		fmt.Fprintln(out, "    participant L0 as no operation of a client is in the history")
		return out.Flush()
	}
	for lane := range d.lanes {
		fmt.Fprintf(out, "    participant L%d as %s\n", lane, mermaidText(d.title(lane)))
	}
	last := len(d.lanes) - 1
	steps, rest := d.steps()
	both := false
	for _, s := range steps {
		if s.omitted != 0 {
			fmt.Fprintf(out, "    Note over L0,L%d: %s\n", last, mermaidText(omission(s.omitted)))
		}
		if s.both != both {
			both = s.both
			if both {
				fmt.Fprintf(out, "    rect rgba(209, 36, 47, 0.15)\n    Note over L0,L%d: two believe they hold\n", last)
			} else {
				fmt.Fprintln(out, "    end")
			}
		}
		for _, m := range s.marks {
			text := m.label()
			if s.time >= 0 {
				text = milliseconds(s.time) + " ms: " + text
			}
			switch {
			case m.lost, m.from == m.to:
				fmt.Fprintf(out, "    Note over L%d: %s\n", m.from, mermaidText(text))
			case m.unknown:
				fmt.Fprintf(out, "    L%d-->>L%d: %s\n", m.from, m.to, mermaidText(text))
			default:
				fmt.Fprintf(out, "    L%d->>L%d: %s\n", m.from, m.to, mermaidText(text))
			}
		}
	}
	if both {
		fmt.Fprintln(out, "    end")
	}
	if rest > 0 {
		fmt.Fprintf(out, "    Note over L0,L%d: %s\n", last, mermaidText(omission(rest)))
	}
	return out.Flush()
}

// title is a lane's title with what it is, e.g. "lock service (redis)".
func (d *diagram) title(lane int) string {
	what := ""
	switch lane {
	case d.res:
		what = d.o.clean(d.o.Resource)
	case service:
		what = d.o.clean(d.o.Service)
	}
	if what == "" {
		return d.lanes[lane]
	}
	return d.lanes[lane] + " (" + what + ")"
}

func omission(n int) string {
	if n < 0 {
		return "…"
	}
	return "… " + plural(n, "operation") + " …"
}

// mermaidText escapes everything that could be more than text.
func mermaidText(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', strings.ContainsRune(" .,:_-()'…", r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "#%d;", r)
		}
	}
	return b.String()
}

// Sequence is the JSON form of a diagram.
type Sequence struct {
	Lanes []string      `json:"lanes"`
	Rows  []SequenceRow `json:"rows"`
	Rest  int           `json:"omitted_after,omitempty"`
	Run   *Run          `json:"run,omitempty"`
}

// SequenceRow is what happened at one time.
type SequenceRow struct {
	TimeMS  *float64       `json:"time_ms"` // null where the time is not known
	Event   *int64         `json:"event"`   // index; null for what is no event, as the end of a lease
	Omitted int            `json:"omitted_before,omitempty"`
	Holds   []string       `json:"holds,omitempty"`  // lanes that believe that they hold
	Frozen  []string       `json:"frozen,omitempty"` // lanes that cannot run
	Both    bool           `json:"both,omitempty"`   // more than one believes
	Marks   []SequenceMark `json:"marks"`
}

// SequenceMark is a message from lane to lane, or a note if they are equal.
type SequenceMark struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Text    string `json:"text"`
	Unknown bool   `json:"unknown,omitempty"` // the outcome
}

// SequenceJSON writes the run, if it is not nil, and its diagram as one JSON object.
func SequenceJSON(w io.Writer, r *Run, events []history.Event, rep *checker.Report, o Options) error {
	d := tell(events, rep, o)
	seq := Sequence{Lanes: d.lanes, Rows: []SequenceRow{}, Run: r}
	steps, rest := d.steps()
	seq.Rest = rest
	for _, s := range steps {
		row := SequenceRow{Omitted: max(s.omitted, 0), Both: s.both, Marks: []SequenceMark{}}
		if s.time >= 0 {
			t := float64(s.time) / 1e6
			row.TimeMS = &t
		}
		if s.index >= 0 {
			row.Event = &s.index
		}
		for lane, l := range s.lives {
			switch l {
			case holds:
				row.Holds = append(row.Holds, d.lanes[lane])
			case frozen:
				row.Frozen = append(row.Frozen, d.lanes[lane])
			}
		}
		for _, m := range s.marks {
			row.Marks = append(row.Marks, SequenceMark{d.lanes[m.from], d.lanes[m.to], m.label(), m.unknown})
		}
		seq.Rows = append(seq.Rows, row)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(seq)
}
