package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Schema is the version of the JSON form of a report.
const Schema = "lockcheck-bench/v1"

// Report is everything that one run has measured.
type Report struct {
	Schema   string            `json:"schema"`
	Made     string            `json:"made"`
	Baseline string            `json:"baseline,omitempty"` // the subject to which others are compared
	Versions map[string]string `json:"versions,omitempty"`
	Locks    []Measure         `json:"locks,omitempty"`
	Costs    []Cost            `json:"costs,omitempty"`
	Work     []Work            `json:"work,omitempty"`
	WorkTime float64           `json:"work_ms,omitempty"`
	Harness  []Overhead        `json:"harness,omitempty"`
	Pipe     *Pipe             `json:"pipe,omitempty"`
	Recorded []Recorded        `json:"recorded,omitempty"`
}

// Pipe is the round trip of a byte to another process and back.
type Pipe struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
}

// Cost is what something adds, as ratios of two subjects of one run.
type Cost struct {
	Of      string `json:"of"`
	Subject string `json:"subject"`
	To      string `json:"to"` // what it is compared with
	// By how much the median section takes longer, and the part of the throughput that
	// is left, of one client; and the latter of clients that contend.
	Latency   float64 `json:"latency"`
	Rate      float64 `json:"rate"`
	Contended float64 `json:"contended_rate"`
}

// Costs are the comparisons that a report makes where both subjects were measured.
func Costs() []Cost {
	return []Cost{
		{Of: "a replica", Subject: "redis-replicated", To: "redis"},
		{Of: "WAIT", Subject: "redis-wait", To: "redis-replicated"},
		{Of: "Redlock, five servers instead of one", Subject: "redlock", To: "redis"},
		{Of: "consensus of three", Subject: "etcd", To: "redis"},
		{Of: "fencing: the token, by the lock", Subject: "postgres-lease", To: "postgres-session"},
		{Of: "fencing: the comparison, by the resource", Subject: "etcd + write fenced", To: "etcd + write unfenced"},
		{Of: "fencing: the comparison, by a database", Subject: "postgres-lease + write postgres", To: "postgres-lease + write unfenced"},
		{Of: "PgBouncer, session pooling", Subject: "pgbouncer-session-session", To: "postgres-session"},
		{Of: "PgBouncer, transaction pooling", Subject: "pgbouncer-transaction-xact", To: "postgres-xact"},
	}
}

// Compare fills in the costs of what was measured.
func (r *Report) Compare() {
	r.Costs = nil
	for _, c := range Costs() {
		a, b := r.of(c.Subject, true), r.of(c.To, true)
		if a == nil || b == nil {
			continue
		}
		c.Latency, c.Rate = a.P50/b.P50, a.PerSecond/b.PerSecond
		if a, b := r.of(c.Subject, false), r.of(c.To, false); a != nil && b != nil {
			c.Contended = a.PerSecond / b.PerSecond
		}
		r.Costs = append(r.Costs, c)
	}
}

// of is the measure of a subject alone, or contended; nil if there is none.
func (r *Report) of(subject string, alone bool) *Measure {
	i := slices.IndexFunc(r.Locks, func(m Measure) bool { return m.Subject == subject && (m.Clients == 1) == alone })
	if i < 0 {
		return nil
	}
	return &r.Locks[i]
}

// table is rows of cells, the first of which are titles.
type table struct {
	caption string
	rows    [][]string
}

// tables are the report as tables.
func (r *Report) tables() []table {
	var all []table
	for _, alone := range []bool{true, false} {
		t := table{caption: "One client, a lock that nobody else wants"}
		base := r.of(r.Baseline, alone)
		for _, m := range r.Locks {
			if (m.Clients == 1) != alone {
				continue
			}
			if !alone {
				t.caption = fmt.Sprintf("%d clients, one lock; latency includes the wait", m.Clients)
			}
			ratio := "-"
			if base != nil {
				ratio = times(m.PerSecond / base.PerSecond)
			}
			t.rows = append(t.rows, []string{m.Subject, perSecond(m.PerSecond), ratio, micros(m.P50), micros(m.P99)})
		}
		if len(t.rows) > 0 {
			t.rows = slices.Insert(t.rows, 0, []string{"lock", "sections/s", "to " + cmp.Or(r.Baseline, "-"), "p50", "p99"})
			all = append(all, t)
		}
	}
	if len(r.Costs) > 0 {
		t := table{caption: "What safety costs: ratios within this run", rows: [][]string{{"of", "compared", "latency", "throughput", "contended"}}}
		for _, c := range r.Costs {
			t.rows = append(t.rows, []string{c.Of, c.Subject + " / " + c.To, times(c.Latency), times(c.Rate), times(c.Contended)})
		}
		all = append(all, t)
	}
	if len(r.Work) > 0 {
		t := table{caption: fmt.Sprintf("Work of %.0f ms under one lock: at most %.0f sections a second", r.WorkTime, 1000/r.WorkTime), rows: [][]string{{"clients", "sections/s"}}}
		for _, w := range r.Work {
			t.rows = append(t.rows, []string{fmt.Sprint(w.Clients), fmt.Sprintf("%.2f", w.PerSecond)})
		}
		all = append(all, t)
	}
	if len(r.Harness) > 0 {
		t := table{caption: "The harness: sections by the library alone, and by clients in processes of their own with every operation recorded", rows: [][]string{
			{"lock", "clients", "bare/s", "through/s", "ratio", "added p50", "added p99", "memory a client", "all connected"}}}
		for _, o := range r.Harness {
			t.rows = append(t.rows, []string{o.Backend, fmt.Sprint(o.Clients), perSecond(o.Bare.PerSecond), perSecond(o.Through.PerSecond), times(o.Ratio),
				micros(o.AddedP50), micros(o.AddedP99), fmt.Sprintf("%.1f MB", float64(o.Memory)/1e6), fmt.Sprintf("%d ms", o.Start.Milliseconds())})
		}
		all = append(all, t)
	}
	if r.Pipe != nil {
		all = append(all, table{caption: "A byte to another process and back, through pipes", rows: [][]string{{"p50", "p99"}, {micros(r.Pipe.P50), micros(r.Pipe.P99)}}})
	}
	if len(r.Recorded) > 0 {
		t := table{caption: "Events recorded to a file", rows: [][]string{{"writers", "events", "events/s", "MB/s"}}}
		for _, e := range r.Recorded {
			t.rows = append(t.rows, []string{fmt.Sprint(e.Writers), fmt.Sprint(e.Events), perSecond(e.PerSecond), fmt.Sprintf("%.0f", float64(e.Bytes)/float64(e.Events)*e.PerSecond/1e6)})
		}
		all = append(all, t)
	}
	return all
}

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	for n, t := range r.tables() {
		if n > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintln(&b, t.caption)
		widths := make([]int, len(t.rows[0]))
		for _, row := range t.rows {
			for i, cell := range row {
				widths[i] = max(widths[i], len([]rune(cell)))
			}
		}
		for _, row := range t.rows {
			for i, cell := range row {
				pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
				if left(t.rows[0][i]) {
					cell += pad
				} else {
					cell = pad + cell
				}
				b.WriteString("  " + cell)
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// left reports whether a column is of words.
func left(title string) bool { return title == "lock" || title == "of" || title == "compared" }

// Markdown writes the report as tables of Markdown.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	for n, t := range r.tables() {
		if n > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s:\n\n", t.caption)
		for i, row := range t.rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
			if i == 0 {
				b.WriteString("|")
				for _, title := range row {
					b.WriteString(map[bool]string{true: "---|", false: "---:|"}[left(title)])
				}
				b.WriteString("\n")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	r.Schema = Schema
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

func perSecond(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func times(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

// micros writes a time in microseconds as people read it.
func micros(us float64) string {
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.1f ms", us/1e3)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}
