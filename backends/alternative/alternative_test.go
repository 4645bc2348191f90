package alternative

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/conformance"
	"github.com/lockcheck/lockcheck/backends/resource"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

// bench is a backend with its server and the resource there.
type bench struct {
	*testing.T
	backends.Backend
	servers  []backends.Endpoint
	resource *resource.Resource

	mu      sync.Mutex
	applied []string // in order
}

func newBench(t *testing.T, name string) *bench {
	t.Helper()
	found, err := backends.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, Backend: found, servers: conformance.Servers(t, found, backends.Options{})}
	rec, err := history.Create(filepath.Join(t.TempDir(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	rec.Watch(func(e history.Event) {
		if e.F == history.Write && e.Type == history.OK {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.applied = append(b.applied, strings.Trim(string(e.Value), `"`))
		}
	})
	b.resource, err = resource.Open(t.Context(), "postgres", resource.Options{Recorder: rec, DSN: b.servers[0].URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.resource.Close(), rec.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) client(name string) backends.Client {
	b.Helper()
	c, err := b.Open(b.Context(), backends.Config{Process: name, Servers: b.servers, ResourceDSN: b.servers[0].URL})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func (b *bench) acquire(c backends.Client) {
	b.Helper()
	if _, err := c.Acquire(b.Context(), "k", 0); err != nil {
		b.Fatal(err)
	}
}

func put(b *bench, c backends.Client, value string) error {
	return c.(backends.Writer).Write(b.Context(), backends.Write{Key: "k", Value: value, Process: "A", Op: 1})
}

// want checks what the resource applied.
func (b *bench) want(values ...string) {
	b.Helper()
	if err := b.resource.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.applied, values) {
		b.Errorf("applied %q, want %q", b.applied, values)
	}
}

func (b *bench) read() string {
	b.Helper()
	r, err := http.Get(b.resource.ReadURL("A", "k"))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		b.Fatal(err)
	}
	return string(body)
}

// Whoever read before another wrote cannot write, however late it comes: a
// paused process overwrites nothing.
func TestConditionalWriteOfAnOldVersionFails(t *testing.T) {
	b := newBench(t, "conditional-write")
	x, y := b.client("A"), b.client("B")
	if err := put(b, x, "0"); !backends.IsFailed(err) {
		t.Errorf("write without an acquire: error %v, want a certain failure", err)
	}
	b.acquire(x)
	b.acquire(y) // both are granted
	for _, v := range []string{"1", "2"} {
		if err := put(b, y, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(b, x, "3"); !errors.Is(err, errOvertaken) || !backends.IsFailed(err) {
		t.Errorf("error %v, want %v", err, errOvertaken)
	}
	b.want("1", "2")
	b.acquire(x)
	if err := put(b, x, "4"); err != nil {
		t.Fatal(err)
	}
	b.want("1", "2", "4")
	if err := x.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if err := x.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("second release: error %v, want %v", err, backends.ErrNotHeld)
	}
}

// Clients that try again whenever they were overtaken lose no update.
func TestConditionalWritesLoseNothing(t *testing.T) {
	const clients, rounds = 8, 10
	b := newBench(t, "conditional-write")
	var wg sync.WaitGroup
	for i := range clients {
		c := b.client(fmt.Sprint(i))
		wg.Go(func() {
			for done := 0; done < rounds; {
				if _, err := c.Acquire(t.Context(), "k", 0); err != nil {
					t.Error(err)
					return
				}
				n, err := strconv.Atoi("0" + b.read())
				if err != nil {
					t.Error(err)
					return
				}
				switch err := put(b, c, fmt.Sprint(n+1)); {
				case err == nil:
					done++
				case !errors.Is(err, errOvertaken):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	var all []string
	for i := range clients * rounds {
		all = append(all, fmt.Sprint(i+1))
	}
	b.want(all...)
}

// The effect happens once, whoever tries at the same time, and who comes later
// is told the result.
func TestIdempotentEffectHappensOnce(t *testing.T) {
	b := newBench(t, "idempotency-key")
	var wg sync.WaitGroup
	for i := range 10 {
		c := b.client(fmt.Sprint(i))
		b.acquire(c)
		wg.Go(func() {
			if err := put(b, c, fmt.Sprint(i)); err != nil && !errors.Is(err, errDone) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	first := b.read()
	b.want(first)
	late := b.client("late")
	b.acquire(late)
	err := put(b, late, "late")
	if !backends.IsFailed(err) || !strings.Contains(err.Error(), strconv.Quote(first)) {
		t.Errorf("error %v, want a certain failure with the result %q", err, first)
	}
	b.want(first)
	if err := late.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if err := late.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("second release: error %v, want %v", err, backends.ErrNotHeld)
	}
}

// A claim is for good: neither the end of the work nor that of its client lets
// another claim the same job.
func TestJobIsClaimedOnce(t *testing.T) {
	b := newBench(t, "unique-constraint")
	x, y := b.client("A"), b.client("B")
	refused := func(c backends.Client, why string) {
		t.Helper()
		if _, err := c.Acquire(t.Context(), "k", 0); !errors.Is(err, backends.ErrBusy) {
			t.Errorf("%s: error %v, want %v", why, err, backends.ErrBusy)
		}
	}
	b.acquire(x)
	refused(y, "A works on it")
	refused(x, "A works on it already")
	if err := y.Release(t.Context(), "k"); !errors.Is(err, backends.ErrNotHeld) {
		t.Errorf("release by B: error %v, want %v", err, backends.ErrNotHeld)
	}
	// An answer that was lost: A does not know of its claim, and finds it.
	clear(x.(*unique).working)
	b.acquire(x)
	if err := x.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	refused(y, "A has done it")
	refused(x, "A has done it")
	x.Close()
	refused(b.client("C"), "A is gone")
}

func TestOneClaimOfManyIsAccepted(t *testing.T) {
	b := newBench(t, "unique-constraint")
	var wg sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for i := range 10 {
		c := b.client(fmt.Sprint(i))
		wg.Go(func() {
			_, err := c.Acquire(t.Context(), "k", 0)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				accepted++
			} else if !errors.Is(err, backends.ErrBusy) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if accepted != 1 {
		t.Errorf("%d claims of one job were accepted", accepted)
	}
}
