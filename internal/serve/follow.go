package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/lockcheck/lockcheck/history"
)

// How a history is followed.
const (
	poll      = 200 * time.Millisecond // a file of another process tells nobody that it grew
	heartbeat = 10 * time.Second
	batch     = 2000    // lines in one message
	longLine  = 1 << 20 // a longer line of a history is not sent
)

// events sends the lines of a run's history as server-sent events, from the first
// one on, as they are written: messages "events" with a JSON array of lines, and
// "end" when the run is over.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	e, err := s.entry(r.PathValue("name"))
	if err != nil {
		notFound(w)
		return
	}
	f, err := s.root.Open(filepath.Join(e.Name, historyFile))
	if err != nil {
		notFound(w)
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		notFound(w)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(event string, data []byte) error {
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data); err != nil {
			return err
		}
		return out.Flush()
	}
	_ = follow(r.Context(), f, send) // the browser has gone: nobody to tell
}

// follow reads lines from r as it grows until the history says that it ends, or
// ctx does, and passes them on.
func follow(ctx context.Context, r io.Reader, send func(event string, data []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	var part []byte // a line whose end is not written yet
	quiet := time.Now()
	for {
		lines, over, err := more(in, &part)
		if err != nil {
			return err
		}
		switch {
		case len(lines) > 0:
			b, err := json.Marshal(lines)
			if err != nil {
				return err
			}
			if err := send("events", b); err != nil {
				return err
			}
			quiet = time.Now()
		case time.Since(quiet) > heartbeat:
			if err := send("alive", []byte("{}")); err != nil {
				return err
			}
			quiet = time.Now()
		}
		if over {
			return send("end", []byte("{}"))
		}
		if len(lines) == batch {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// more returns the whole lines that there are, at most a batch, and whether the
// last event of a run is among them. What is not JSON is left out.
func more(in *bufio.Reader, part *[]byte) (lines []json.RawMessage, over bool, err error) {
	for len(lines) < batch && !over {
		b, err := in.ReadSlice('\n')
		if len(*part) <= longLine {
			*part = append(*part, b...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err == io.EOF {
			return lines, false, nil
		}
		if err != nil {
			return lines, false, err
		}
		line := bytes.TrimSpace(*part)
		*part = nil
		var e struct {
			Process string `json:"process"`
			F       string `json:"f"`
		}
		if len(line) > longLine || json.Unmarshal(line, &e) != nil {
			continue
		}
		lines = append(lines, bytes.Clone(line))
		over = e.Process == history.Harness && e.F == endEvent
	}
	return lines, over, nil
}

// endEvent is the last event of a run's history.
const endEvent = "end"
