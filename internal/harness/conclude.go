package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
)

// ErrNoRun says that a folder is not that of a run.
var ErrNoRun = errors.New("not a run's folder")

// CheckOptions say how recorded histories are checked and told.
type CheckOptions struct {
	Gate    []string // properties whose violation counts; nil is all
	Checker checker.Options
	Read    history.ReadOptions
	Text    io.Writer // where the report goes; nil for none
	Report  reports.Options
}

// CheckRun judges what is recorded in a run's folder, also that of a run which
// was killed. It changes nothing, and the outcome is the same each time.
func CheckRun(dir string, o CheckOptions) (*reports.Run, error) {
	path := filepath.Join(dir, runFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%s: %w: there is no %s in it", dir, ErrNoRun, runFile)
	}
	if err != nil {
		return nil, err
	}
	var meta reports.Run
	if err := json.Unmarshal(b, &meta); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrNoRun, err)
	}
	meta.Dir = dir // it may have been moved
	return &meta, check(&meta, filepath.Join(dir, HistoryFile), o)
}

// CheckFile judges a history that is not part of a run's folder. "-" is
// standard input.
func CheckFile(path string, o CheckOptions) (*reports.Run, error) {
	meta := &reports.Run{}
	return meta, check(meta, path, o)
}

// conclude judges a run that has just ended, and writes what came of it and
// the report into the run's folder.
func conclude(meta *reports.Run, gate []string) error {
	text, err := os.OpenFile(filepath.Join(meta.Dir, reportFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	err = check(meta, filepath.Join(meta.Dir, HistoryFile), CheckOptions{
		Gate: gate, Text: text, Report: reports.Options{Width: 100},
	})
	if err = errors.Join(err, text.Close()); err != nil {
		return err
	}
	// The verdict stands without its pictures.
	for _, err := range []error{visualize(meta), writePage(meta)} {
		if err != nil {
			meta.Remarks = append(meta.Remarks, "a picture is missing: "+err.Error())
		}
	}
	return writeJSON(filepath.Join(meta.Dir, runFile), meta)
}

// visualize writes porcupine's picture of each violation that it can draw into
// the run's folder.
func visualize(meta *reports.Run) error {
	for _, property := range []string{checker.Mutex, checker.Lease, checker.Token} {
		if meta.Verdict(property) != checker.Violated {
			continue
		}
		h, err := history.Open(filepath.Join(meta.Dir, HistoryFile), history.ReadOptions{})
		if err != nil {
			return err
		}
		var page bytes.Buffer
		if err := checker.Visualize(h, checker.Options{}, property, &page); err != nil {
			if errors.Is(err, checker.ErrNothingToShow) {
				continue
			}
			return err
		}
		path := filepath.Join(meta.Dir, "porcupine-"+property+".html")
		if err := os.WriteFile(path, page.Bytes(), 0o600); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// check judges the history at path, completes meta, and writes the report.
func check(meta *reports.Run, path string, o CheckOptions) error {
	h, err := history.Open(path, o.Read)
	if err != nil {
		return err
	}
	end := endOf(h)
	if o.Checker.Bound == 0 && !statesLease(h) {
		o.Checker.Bound = end.bound
	}
	rep := judge(h, o.Checker)
	meta.SetReport(rep)
	gate := o.Gate
	if len(gate) == 0 {
		// What a correct lock may break counts only if it is asked for.
		meta.Excused = end.excused
		for _, p := range rep.Properties {
			if !slices.Contains(end.excused, p.Name) {
				gate = append(gate, p.Name)
			}
		}
	}
	meta.Status = status(rep, end, gate, meta.Known)
	meta.Faults, meta.GrantsUnderFault = tally(h)
	meta.Remarks = end.remarks
	if meta.Status == reports.Violation {
		meta.Remarks = append(meta.Remarks, end.reasons...) // it stands, and the reader is to know
	}
	meta.Figures = figures(h, end.figures)
	meta.Reasons = append(end.reasons, doubts(rep, gate)...)
	if len(meta.Reasons) == 0 && rep.Operations == 0 {
		meta.Reasons = []string{"no client did anything: nothing was tested"}
	}
	if o.Text == nil {
		return nil
	}
	events, err := eventsFor(rep, h, path, o.Read)
	if err != nil {
		return err
	}
	return reports.Text(o.Text, meta, rep, events, o.Report)
}

// judge checks a history, against the model too if one is named.
func judge(h *history.History, o checker.Options) *checker.Report {
	if o.Model == "" {
		return checker.Check(h, o)
	}
	m, err := checker.ParseModel(o.Model)
	rep := &checker.Report{Operations: len(h.Ops)}
	if err == nil && m.Lock() {
		rep = checker.Check(h, o)
	}
	p := checker.CheckModel(h, o)
	rep.Properties = slices.Insert(rep.Properties, 0, p)
	if !m.Lock() || o.Convention != "" {
		return rep
	}
	// What a failed release means may decide alone: say so where it does.
	o.Convention = checker.FailedIgnored
	if q := checker.CheckModel(h, o); q.Verdict != p.Verdict {
		rep.Findings = append(rep.Findings, checker.Finding{
			Code: "convention",
			Why:  fmt.Sprintf("read as %s, %s would be %s: %s", q.Convention, q.Name, q.Verdict, q.Why),
		})
	}
	return rep
}

// Histories that are not told whole: of more events than wholeHistory only those
// around a witness are, and without a witness none if there are more than
// plainHistory.
const (
	plainHistory = 100
	wholeHistory = 5000
	around       = 100
)

// eventsFor returns the events that a report tells.
func eventsFor(rep *checker.Report, h *history.History, path string, o history.ReadOptions) ([]history.Event, error) {
	if path == "-" {
		return nil, nil // it cannot be read twice
	}
	first, last := int64(0), int64(math.MaxInt64)
	switch witness := slices.ContainsFunc(rep.Properties, func(p checker.Property) bool { return p.Witness != nil }); {
	case !witness && h.Events > plainHistory:
		return nil, nil
	case h.Events > wholeHistory:
		first, last = witnessed(rep)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o.Name = path
	s, err := h.NewScannerNear(f, o, first)
	if err != nil {
		return nil, err
	}
	var events []history.Event
	for s.Scan() {
		if i := s.Index(); i >= first && i <= last {
			events = append(events, s.Event())
		} else if i > last {
			return events, nil
		}
	}
	return events, s.Err()
}

// witnessed returns the range of indexes around the first witness.
func witnessed(rep *checker.Report) (first, last int64) {
	for _, p := range rep.Properties {
		if w := p.Witness; w != nil && len(w.Events) > 0 {
			return w.Events[0] - around, w.Events[len(w.Events)-1] + around
		}
	}
	return 0, around
}

// ending is what the harness itself said of a run's end.
type ending struct {
	cutOff       bool // a run of ours that did not come to its end
	interrupted  bool
	failed       bool // the environment failed
	inconclusive bool
	reasons      []string
	remarks      []string
	excused      []string      // properties that do not count
	figures      []string      // what to measure
	bound        time.Duration // for liveness, where no lease is stated; 0 is none
}

func endOf(h *history.History) ending {
	var s ending
	ours, complete := false, false
	for _, e := range h.Other {
		if e.Process != history.Harness {
			continue
		}
		switch e.F {
		case history.Run:
			ours = true
			var header struct {
				Bound   int64    `json:"bound_ms"`
				Figures []string `json:"figures"`
			}
			if json.Unmarshal(e.Value, &header) == nil {
				s.bound = time.Duration(header.Bound) * time.Millisecond
				s.figures = header.Figures
			}
		case remarkEvent:
			s.remarks = append(s.remarks, e.Error)
		case excusedEvent:
			s.excused = append(s.excused, e.Key)
		case EndEvent:
			complete = true
		case errorEvent:
			s.failed = true
			s.reasons = append(s.reasons, e.Error)
		case inconclusiveEvent:
			s.inconclusive = true
			s.reasons = append(s.reasons, e.Error)
		case interruptEvent:
			s.interrupted = true
			s.reasons = append(s.reasons, "the run was interrupted")
		}
	}
	if s.cutOff = ours && !complete; s.cutOff {
		s.reasons = append(s.reasons, "the history ends before the run did: the harness was killed or could not write")
	}
	return s
}

// statesLease reports whether any grant of the history states a lease.
func statesLease(h *history.History) bool {
	return slices.ContainsFunc(h.Terms, func(t history.Term) bool { return t.TTL > 0 })
}

// status ranks what a run came to: a violation outranks everything else, unless it
// is known.
func status(rep *checker.Report, s ending, gate, known []string) reports.Status {
	for _, p := range gated(rep, gate) {
		if p.Verdict == checker.Violated && !slices.Contains(known, p.Name) {
			return reports.Violation
		}
	}
	for _, p := range rep.Properties {
		if p.Second != nil && p.Second.Outcome == "disagrees" {
			return reports.Error
		}
	}
	switch {
	case s.failed:
		return reports.Error
	case s.inconclusive, s.interrupted, s.cutOff, rep.Operations == 0:
		return reports.Inconclusive
	}
	for _, p := range gated(rep, gate) {
		if p.Verdict == checker.Unknown {
			return reports.Inconclusive
		}
	}
	return reports.Pass
}

// doubts says what keeps a run from passing.
func doubts(rep *checker.Report, gate []string) []string {
	var ds []string
	for _, p := range rep.Properties {
		if p.Second != nil && p.Second.Outcome == "disagrees" {
			ds = append(ds, fmt.Sprintf("%s: porcupine disagrees: %s", p.Name, p.Second.Detail))
		}
	}
	for _, p := range gated(rep, gate) {
		if p.Verdict == checker.Unknown {
			ds = append(ds, fmt.Sprintf("%s is unknown: %s", p.Name, p.Why))
		}
	}
	return ds
}

// gated are the properties that count: those that gate names, or all.
func gated(rep *checker.Report, gate []string) []checker.Property {
	if len(gate) == 0 {
		return rep.Properties
	}
	var ps []checker.Property
	for _, name := range gate {
		if p := rep.Property(name); p != nil {
			ps = append(ps, *p)
		}
	}
	return ps
}
