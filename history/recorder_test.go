package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func ptr(n int64) *int64 { return &n }

// What Record returned is what a reader finds, event by event.
func TestRecorderRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var watched, recorded []Event
	r.Watch(func(e Event) { watched = append(watched, e) })
	for _, e := range []Event{
		{Process: Harness, Type: Info, F: Run, Value: json.RawMessage(`{"scenario":"gc-pause","seed":7}`)},
		{Process: "A", Type: Invoke, F: Acquire, Key: "k"},
		{Process: "A", Type: OK, F: Acquire, Key: "k", Token: ptr(0), TTL: 200e6, Until: 210e6},
		{Process: "A", Type: Invoke, F: Write, Key: "k", Value: json.RawMessage(`"<a> & \u00e9"`), Token: ptr(-3)},
		{Process: Resource, Type: OK, F: Write, Key: "k", Value: json.RawMessage(`"<a>"`), Client: "A", Op: ptr(3)},
		{Process: "A", Type: OK, F: Write, Key: "k"},
		{Process: Nemesis, Type: Invoke, F: "pause", Value: json.RawMessage(`{"client":"A"}`)},
		{Process: "B", Type: Invoke, F: Read, Key: "k", Value: json.RawMessage(`null`)},
		{Process: "B", Type: Info, F: Read, Key: "k", Error: "read tcp 127.0.0.1: i/o \"timeout\"\n"},
		{Process: "A", Type: Info, F: Lost, Key: "k"},
		{Process: "ü", Type: Invoke, F: Release, Key: "\u2028"},
	} {
		recorded = append(recorded, r.Record(e))
	}
	if n := r.Len(); n != int64(len(recorded)) {
		t.Errorf("Len is %d, want %d", n, len(recorded))
	}
	if now := r.Now(); now < recorded[len(recorded)-1].Time {
		t.Errorf("now is %d, before the last event", now)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	r.Record(Event{Process: "late", Type: Info, F: Lost})

	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := NewScanner(f, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var read []Event
	for s.Scan() {
		read = append(read, s.Event())
	}
	if s.Err() != nil || s.Truncated() {
		t.Error(s.Err(), s.Truncated())
	}
	if !reflect.DeepEqual(read, recorded) {
		t.Errorf("read\n%v\nrecorded\n%v", read, recorded)
	}
	if !reflect.DeepEqual(watched, recorded) {
		t.Errorf("watched\n%v\nrecorded\n%v", watched, recorded)
	}
	h, err := Open(path, ReadOptions{})
	if err != nil || h.Broken != nil || h.Truncated || h.Timeless {
		t.Fatal(err, h)
	}
	if len(h.Ops) != 4 || len(h.Applied) != 1 || len(h.Notices) != 1 || len(h.Other) != 2 {
		t.Error(dump(h))
	}
	if a := h.Ops[0]; !a.HasToken || a.Token != 0 || h.Terms[a.Term] != (Term{TTL: 200e6, Until: 210e6}) {
		t.Errorf("the grant is %+v", a)
	}
}

func TestCreateKeepsWhatIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Errorf("the file now holds %q", b)
	}
}

// Many goroutines record; indexes and times rise strictly all the same, and
// each goroutine's events stand in its order.
func TestRecorderIsConcurrent(t *testing.T) {
	const writers, each = 16, 500
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	last := Event{Index: -1, Time: -1}
	r.Watch(func(e Event) {
		if e.Index != last.Index+1 || e.Time <= last.Time {
			t.Errorf("%v after %v", e, last)
		}
		last = e
	})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			p := strconv.Itoa(w)
			for i := range each {
				e := r.Record(Event{Process: p, Type: Invoke, F: Write, Value: json.RawMessage(strconv.Itoa(i))})
				if back := r.Record(Event{Process: p, Type: OK, F: Write}); back.Time <= e.Time {
					t.Errorf("%v after %v", back, e)
				}
				_, _, _ = r.Len(), r.Now(), r.Err()
			}
		})
	}
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := Open(path, ReadOptions{})
	if err != nil || h.Broken != nil || h.Truncated || h.Events != 2*writers*each {
		t.Fatal(err, h.Assumptions, h.Events)
	}
	next := make([]int, writers)
	for _, o := range h.Ops {
		if o.Outcome != Done || h.Values[o.Value] != strconv.Itoa(next[o.Process]) {
			t.Fatalf("%+v is not write %d of process %s", o, next[o.Process], h.Processes[o.Process])
		}
		next[o.Process]++
	}
}

func TestRecorderClosedWhileRecording(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				r.Record(Event{Process: "A", Type: Info, F: Lost})
			}
		})
		wg.Go(func() {
			for r.Len() < 1000 {
				runtime.Gosched()
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	h, err := Open(path, ReadOptions{})
	if err != nil || h.Broken != nil || h.Truncated || h.Events != r.Len() {
		t.Fatalf("%v: %d events of %d", err, h.Events, r.Len())
	}
}

const childEnv = "HISTORY_TEST_RECORD_TO"

// A recorder that is killed in mid-run leaves everything that happened until
// shortly before.
func TestRecorderSurvivesKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	cmd := exec.Command(os.Args[0], "-test.run=^TestRecordUntilKilled$")
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var told int64 // an event that was on disk, as the child saw it
	in := bufio.NewScanner(out)
	for in.Scan() && told < 20_000 {
		if told, err = strconv.ParseInt(in.Text(), 10, 64); err != nil {
			t.Errorf("the child said %q", in.Text())
			break
		}
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the child was not killed: %v", err)
	}
	h, err := Open(path, ReadOptions{})
	if err != nil || h.Broken != nil {
		t.Fatal(err, h)
	}
	if h.Events < told || told < 20_000 {
		t.Errorf("%d events left, %d had been written", h.Events, told)
	}
}

// TestRecordUntilKilled is the child of TestRecorderSurvivesKill.
func TestRecordUntilKilled(t *testing.T) {
	path := os.Getenv(childEnv)
	if path == "" {
		t.Skip("runs as a child of TestRecorderSurvivesKill")
	}
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	line := int64(len(Event{Process: "A", Type: Info, F: Lost, Error: strings.Repeat("x", 100)}.String()))
	for i := range 100_000_000 {
		r.Record(Event{Process: "A", Type: Info, F: Lost, Error: strings.Repeat("x", 100)})
		if i%1000 != 0 {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		// Lines grow with their numbers: no line is longer than this.
		if _, err := fmt.Println(info.Size() / (line + 40)); err != nil {
			return // the parent has gone
		}
	}
}

// fullFile fails after some bytes.
type fullFile struct {
	mu   sync.Mutex
	room int
	buf  bytes.Buffer
	open bool
}

func (f *fullFile) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(b), f.room)
	f.room -= n
	f.buf.Write(b[:n])
	if n < len(b) {
		f.room = 1 << 20 // there is room again: too late
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (f *fullFile) Close() error { f.open = false; return nil }

// The first failure to write is told, and what was written before it stays
// readable: no gap in the middle looks like a whole history.
func TestRecorderKeepsWriteErrors(t *testing.T) {
	f := &fullFile{room: 1000, open: true}
	r := newRecorder(f)
	for range 1000 {
		r.Record(Event{Process: "A", Type: Info, F: Lost})
	}
	err := r.Close()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "history is incomplete") {
		t.Errorf("got %v", err)
	}
	if err := r.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("closed again: %v", err)
	}
	if !errors.Is(r.Err(), syscall.ENOSPC) || f.open {
		t.Errorf("Err is %v, file open %v", r.Err(), f.open)
	}
	h, err := Decode(&f.buf, ReadOptions{})
	if err != nil || h.Broken != nil || h.Events == 0 {
		t.Error(err, h)
	}
}

func TestRecorderOnFullDevice(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("this system has no full device: %v", err)
	}
	r := newRecorder(f)
	r.Record(Event{Process: "A", Type: Info, F: Lost})
	if err := r.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
}

// A value that is not JSON is a mistake of the harness. It costs the value, is
// told, and leaves the history whole.
func TestRecorderRefusesValuesThatAreNotJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if e := r.Record(Event{Process: "A", Type: Info, F: Lost, Value: json.RawMessage("a\nb")}); e.Value != nil {
		t.Errorf("returned as written is %v", e)
	}
	r.Record(Event{Process: "A", Type: Info, F: Lost})
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "event 0: its value is not JSON") {
		t.Errorf("got %v", err)
	}
	h, err := Open(path, ReadOptions{})
	if err != nil || h.Broken != nil || len(h.Notices) != 2 {
		t.Error(err, h)
	}
}
