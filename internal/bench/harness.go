package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// HarnessOptions say how the harness itself is measured.
type HarnessOptions struct {
	Backends []string // each with a loop of its library in Bare
	Clients  []int    // side by side, each with a lock of its own
	Rounds   int      // of each, in turn with the bare loop
	For      time.Duration
	Dir      string
	Bin      map[string]string
	Progress func(what string)
}

// Overhead is what the harness adds to a lock: the same sections, by the same client
// library and the same number of clients, in a bare loop and through the harness, where
// each client is a process and every operation is recorded.
type Overhead struct {
	Backend string  `json:"backend"`
	Clients int     `json:"clients"`
	Bare    Measure `json:"bare"`
	Through Measure `json:"through"`
	Ratio   float64 `json:"ratio"` // of throughputs
	// Added is what an operation takes that asks no server: a check.
	AddedP50 float64 `json:"added_p50_us"`
	AddedP99 float64 `json:"added_p99_us"`
	// Memory is that of a client's process which no other shares, in bytes.
	Memory int64         `json:"memory_per_client"`
	Start  time.Duration `json:"start_ns"` // until all clients are connected
	Events int64         `json:"events"`   // recorded
}

// RunHarness measures what the harness adds.
func RunHarness(ctx context.Context, o HarnessOptions) ([]Overhead, error) {
	var all []Overhead
	for _, name := range o.Backends {
		b, err := newBed(ctx, Subject{Backend: name}, Options{Dir: o.Dir, Bin: o.Bin})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, n := range o.Clients {
			over, err := overhead(ctx, b, n, o)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s with %d clients: %w", name, n, err), b.close())
			}
			all = append(all, over)
		}
		if err := b.close(); err != nil {
			return nil, err
		}
	}
	return all, ctx.Err()
}

func overhead(ctx context.Context, b *bed, clients int, o HarnessOptions) (over Overhead, err error) {
	over = Overhead{Backend: b.subject.Backend, Clients: clients}
	bare, err := openBare(b, clients)
	if err != nil {
		return over, err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	begin := time.Now()
	through, err := openThrough(ctx, b, clients, filepath.Join(o.Dir, fmt.Sprintf("%s-%d.jsonl", b.subject.Backend, clients)))
	if err != nil {
		return over, err
	}
	defer func() { err = errors.Join(err, through.close()) }()
	over.Start = time.Since(begin)
	tallies := [2]*tally{newTally(), newTally()}
	for n := range o.Rounds {
		for i, side := range []side{bare, through} {
			if o.Progress != nil {
				o.Progress(fmt.Sprintf("%s, clients: %d, %s, round %d of %d", over.Backend, clients, [2]string{"bare", "through the harness"}[i], n+1, o.Rounds))
			}
			if err := both(ctx, side, clients, o.For, tallies[i]); err != nil {
				return over, err
			}
		}
	}
	over.Memory = through.memory()
	over.Events = through.rec.Len()
	over.Bare, over.Through = tallies[0].measure(over.Backend, clients), tallies[1].measure(over.Backend, clients)
	over.Ratio = over.Through.PerSecond / over.Bare.PerSecond
	checks := newTally()
	if err := both(ctx, checking{through}, clients, o.For, checks); err != nil {
		return over, err
	}
	over.AddedP50, over.AddedP99 = at(checks.took, 50), at(checks.took, 99)
	return over, nil
}

// side is a way to make sections: by the library itself, or through the harness.
type side interface {
	// section has the nth client take its lock and release it.
	section(ctx context.Context, n int) error
}

// both has so many clients make sections for a time, each with a lock of its own.
func both(ctx context.Context, s side, clients int, limit time.Duration, t *tally) error {
	begin := time.Now()
	end := begin.Add(limit)
	took := make([]*hdrhistogram.Histogram, clients)
	errs := make([]error, clients)
	var busy sync.WaitGroup
	for i := range clients {
		took[i] = newHistogram()
		busy.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				from := time.Now()
				if from.After(end) {
					return
				}
				errs[i] = s.section(ctx, i)
				record(took[i], time.Since(from))
			}
		})
	}
	busy.Wait()
	t.elapsed += time.Since(begin)
	for _, h := range took {
		t.took.Merge(h)
		t.sections += h.TotalCount()
	}
	return errors.Join(errors.Join(errs...), ctx.Err())
}

// through is clients as runs have them.
type through struct {
	rec     *history.Recorder
	clients []*client.Proc
}

func openThrough(ctx context.Context, b *bed, clients int, path string) (*through, error) {
	command, err := selfexec.Command("worker", b.subject.Backend)
	if err != nil {
		return nil, err
	}
	rec, err := history.Create(path)
	if err != nil {
		return nil, err
	}
	t := &through{rec: rec, clients: make([]*client.Proc, clients)}
	errs := make([]error, clients)
	var busy sync.WaitGroup
	for i := range clients {
		busy.Go(func() {
			p, err := client.Start(client.Options{Name: "c" + strconv.Itoa(i+1), Command: command, Recorder: rec})
			if err == nil {
				t.clients[i] = p
				_, err = p.Open(ctx, client.OpenOptions{Servers: b.at, TTL: ttl})
			}
			errs[i] = err
		})
	}
	busy.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *through) section(ctx context.Context, n int) error {
	key := "through-" + strconv.Itoa(n)
	for _, f := range []string{history.Acquire, history.Release} {
		e, err := t.clients[n].Do(ctx, client.Request{F: f, Key: key})
		if err != nil {
			return err
		}
		if e.Type != history.OK {
			return fmt.Errorf("%s: %s: %s", f, e.Type, e.Error)
		}
	}
	return nil
}

// checking is clients that ask themselves whether they hold, which asks no server.
type checking struct{ *through }

func (c checking) section(ctx context.Context, n int) error {
	_, err := c.clients[n].Do(ctx, client.Request{F: history.Check, Key: "through-" + strconv.Itoa(n)})
	return err
}

// memory is the mean of what a client's processes have for themselves, 0 if that
// cannot be told here.
func (t *through) memory() int64 {
	var sum, n int64
	for _, p := range t.clients {
		pids, err := p.PIDs()
		if err != nil {
			return 0
		}
		for _, pid := range pids {
			own, err := ownMemory(pid)
			if err != nil {
				return 0
			}
			sum += own
		}
		n++
	}
	return sum / max(n, 1)
}

// RunPipe measures the round trip of a byte through pipes to another process, cat, and
// back: what an operation of a client in a process of its own takes at least. It is
// an error if there is no cat.
func RunPipe(ctx context.Context, limit time.Duration) (p50, p99 float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+closeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := guard.Start(cmd); err != nil {
		return 0, 0, err
	}
	took := newHistogram()
	b := []byte{'\n'}
	for end := time.Now().Add(limit); err == nil && time.Now().Before(end); {
		begin := time.Now()
		if _, err = in.Write(b); err == nil {
			_, err = io.ReadFull(out, b)
		}
		record(took, time.Since(begin))
	}
	err = errors.Join(err, in.Close(), cmd.Wait())
	guard.Forget(cmd)
	return at(took, 50), at(took, 99), err
}

// closeTimeout is how long clients may take to end.
const closeTimeout = 10 * time.Second

func (t *through) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	errs := make([]error, len(t.clients))
	var busy sync.WaitGroup
	for i, p := range t.clients {
		if p != nil {
			busy.Go(func() { errs[i] = p.Close(ctx) })
		}
	}
	busy.Wait()
	return errors.Join(errors.Join(errs...), t.rec.Close())
}

// Recorded is how fast events are written to a file.
type Recorded struct {
	Writers   int     `json:"writers"` // side by side
	Events    int64   `json:"events"`
	PerSecond float64 `json:"per_second"`
	Bytes     int64   `json:"bytes"`
}

// RunRecorder measures how many events of acquires and releases are recorded in a
// second, from when the first is until all of them are in the file.
func RunRecorder(dir string, writers int, events int64) (Recorded, error) {
	path := filepath.Join(dir, "events-"+strconv.Itoa(writers)+".jsonl")
	rec, err := history.Create(path)
	if err != nil {
		return Recorded{}, err
	}
	begin := time.Now()
	var busy sync.WaitGroup
	for i := range writers {
		process := "c" + strconv.Itoa(i+1)
		busy.Go(func() {
			for n := range events / int64(writers) / 4 {
				token := n
				rec.Record(history.Event{Process: process, Type: history.Invoke, F: history.Acquire, Key: "k"})
				rec.Record(history.Event{Process: process, Type: history.OK, F: history.Acquire, Key: "k", Token: &token, TTL: int64(ttl)})
				rec.Record(history.Event{Process: process, Type: history.Invoke, F: history.Release, Key: "k"})
				rec.Record(history.Event{Process: process, Type: history.OK, F: history.Release, Key: "k"})
			}
		})
	}
	busy.Wait()
	n := rec.Len()
	if err := rec.Close(); err != nil {
		return Recorded{}, err
	}
	took := time.Since(begin)
	info, err := os.Stat(path)
	if err != nil {
		return Recorded{}, err
	}
	return Recorded{writers, n, float64(n) / took.Seconds(), info.Size()}, os.Remove(path)
}
