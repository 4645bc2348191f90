// Command bench compares, in one run and on the same generated histories, the
// exact checkers with porcupine and with decoding alone, and prints a table.
//
// Each measurement that takes much memory runs in a process of its own, so that
// its memory can be told and bounded. With -write it writes a history instead.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/checker/internal/gen"
	"github.com/lockcheck/lockcheck/checker/internal/rival"
	"github.com/lockcheck/lockcheck/history"
)

func main() {
	var c gen.Config
	child := flag.String("child", "", "what a process started by this one measures: exact, porcupine, decode")
	write := flag.String("write", "", "write a history to this file, and nothing else")
	large := flag.Bool("large", false, "also 10^7 operations, without porcupine")
	only := flag.String("only", "", "one table alone: kinds, porcupine, files")
	lockcheck := flag.String("lockcheck", "bin/lockcheck", "the program whose check is measured on files")
	flag.IntVar(&c.Ops, "ops", 1_000_000, "operations of -write")
	flag.IntVar(&c.Clients, "clients", 50, "clients of -write")
	flag.IntVar(&c.Keys, "keys", 1, "keys of -write")
	flag.Float64Var(&c.Unknown, "unknown", 0, "share of unknown outcomes of -write")
	flag.BoolVar(&c.Plant, "plant", false, "plant one double grant in what -write writes")
	flag.BoolVar(&c.Tokens, "tokens", false, "grants of -write carry tokens")
	flag.BoolVar(&c.Writes, "writes", false, "holders of -write write to a resource")
	flag.BoolVar(&c.Renew, "lease", false, "grants of -write are leases, and renewed")
	flag.BoolVar(&c.Deadline, "deadline", false, "clients of -write keep a deadline")
	flag.Parse()
	if c.Renew {
		c.TTL = gen.Lease
	}
	var err error
	switch {
	case *write != "":
		err = writeFile(*write, c)
	case *child != "":
		err = measure(*child, flag.Args())
	default:
		err = table(os.Stdout, *large, *lockcheck, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func writeFile(path string, c gen.Config) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(gen.Write(f, gen.History(c)), f.Close())
}

// result is what one process measured.
type result struct {
	Verdict string
	Seconds float64 // processor time of one checking
	Wall    float64
	Bytes   float64 // allocated beside the history
	Grants  int     // in the witness
}

// limit bounds porcupine.
const (
	limitTime   = time.Minute
	limitMemory = 10 << 30
)

// measure is what a process started by another one does. It prints a result.
func measure(what string, args []string) error {
	var c gen.Config
	var r result
	switch what {
	case "exact", "porcupine":
		if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
			return err
		}
	}
	switch what {
	case "exact":
		runtime.GOMAXPROCS(1) // a core
		h := gen.History(c)
		r = exact(h)
	case "porcupine":
		h := gen.History(c)
		runtime.GC()
		debug.FreeOSMemory()
		limit := syscall.Rlimit{Cur: limitMemory, Max: limitMemory}
		if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
			return fmt.Errorf("limit memory: %w", err)
		}
		r = raw(h)
	case "decode":
		start, used := time.Now(), processorTime()
		h, err := history.Open(args[0], history.ReadOptions{})
		if err != nil {
			return err
		}
		r = result{Verdict: fmt.Sprint(len(h.Ops)), Seconds: processorTime() - used, Wall: time.Since(start).Seconds()}
		runtime.KeepAlive(h)
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// exact checks a history as often as it takes to be measured, and returns the
// fastest time.
func exact(h *history.History) result {
	r := result{Seconds: math.Inf(1), Wall: math.Inf(1)}
	var before, after runtime.MemStats
	for spent := 0.0; spent < 0.3; {
		runtime.GC()
		runtime.ReadMemStats(&before)
		start, used := time.Now(), processorTime()
		rep := checker.Check(h, checker.Options{NoSecondOpinion: true})
		seconds, wall := processorTime()-used, time.Since(start).Seconds()
		runtime.ReadMemStats(&after)
		spent += max(wall, 1e-4)
		r.Seconds, r.Wall = min(r.Seconds, max(seconds, 1e-7)), min(r.Wall, wall)
		r.Bytes = float64(after.TotalAlloc - before.TotalAlloc)
		p := rep.Property(checker.Mutex)
		r.Verdict = string(p.Verdict)
		if p.Witness != nil {
			r.Grants = len(p.Witness.Holds)
		}
	}
	return r
}

// raw has porcupine judge the plain lock as people give it to it.
func raw(h *history.History) result {
	ops := rival.Operations(h)
	start, used := time.Now(), processorTime()
	v := porcupine.CheckOperationsTimeout(rival.Mutex, ops, limitTime)
	return result{Verdict: string(v), Seconds: processorTime() - used, Wall: time.Since(start).Seconds()}
}

// processorTime is what this process has used so far, which does not depend on
// how busy the machine is.
func processorTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// outcome is a child's result with what the system says of it.
type outcome struct {
	result
	cpu, wall float64
	memory    float64 // greatest resident size, in bytes
	failed    string
}

// run measures in a process of its own.
func run(name string, args ...string) outcome {
	var o outcome
	cmd := exec.Command(name, args...)
	var out, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &problems
	start := time.Now()
	err := cmd.Run()
	o.wall = time.Since(start).Seconds()
	if s := cmd.ProcessState; s != nil {
		o.cpu = (s.UserTime() + s.SystemTime()).Seconds()
		if u, ok := s.SysUsage().(*syscall.Rusage); ok {
			o.memory = float64(u.Maxrss) * 1024
		}
	}
	if text := out.String(); strings.HasPrefix(text, "{\"Verdict") {
		if err := json.Unmarshal([]byte(text), &o.result); err != nil {
			o.failed = err.Error()
		}
		return o
	}
	o.Verdict = out.String()
	switch {
	case strings.Contains(problems.String(), "out of memory") || strings.Contains(problems.String(), "cannot allocate memory"):
		o.failed = "out of memory"
	case err != nil && out.Len() == 0:
		o.failed = fmt.Sprint(err, ": ", firstLine(problems.String()))
	}
	return o
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// table measures everything and prints it as Markdown.
func table(w io.Writer, large bool, lockcheck, only string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockcheck-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := bench{w: w, self: self, dir: dir, lockcheck: lockcheck, large: large}
	for _, t := range []struct {
		name string
		make func() error
	}{{"kinds", b.kinds}, {"porcupine", b.mutexes}, {"files", b.files}} {
		if only != "" && only != t.name {
			continue
		}
		if err := t.make(); err != nil {
			return err
		}
	}
	return nil
}

type bench struct {
	w         io.Writer
	self, dir string
	lockcheck string
	large     bool
}

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(b.w, format, args...) }

func (b *bench) child(what string, c gen.Config) (outcome, error) {
	spec, err := json.Marshal(c)
	if err != nil {
		return outcome{}, err
	}
	return run(b.self, "-child", what, string(spec)), nil
}

// kinds is the table of the exact checkers, on decoded histories and one core.
func (b *bench) kinds() error {
	b.printf("### Exact checkers on decoded histories, one core, 10^6 operations\n\n")
	b.printf("| history | clients, keys | unknown | M operations/s | bytes/operation | with a planted double grant: M operations/s |\n|---|---|---|---|---|---|\n")
	for _, k := range []struct {
		name   string
		config gen.Config
	}{
		{"mutex", gen.Config{}},
		{"fenced: tokens", gen.Config{Tokens: true}},
		{"lease, renewals", gen.Config{TTL: gen.Lease, Renew: true}},
		{"lease, tokens, client deadlines", gen.Config{TTL: gen.Lease, Renew: true, Tokens: true, Deadline: true}},
		{"fence: writes to a resource", gen.Config{Tokens: true, Writes: true}},
	} {
		for _, size := range [][2]int{{5, 1}, {50, 1}, {50, 100}} {
			for _, unknown := range []float64{0, 0.1} {
				c := k.config
				c.Ops, c.Clients, c.Keys, c.Unknown = 1_000_000, size[0], size[1], unknown
				valid, err := b.child("exact", c)
				if err != nil {
					return err
				}
				c.Plant = true
				planted, err := b.child("exact", c)
				if err != nil {
					return err
				}
				if valid.Verdict != string(checker.Held) || planted.Verdict != string(checker.Violated) {
					return fmt.Errorf("%s: mutex is %q, with a planted double grant %q", k.name, cmp.Or(valid.failed, valid.Verdict), cmp.Or(planted.failed, planted.Verdict))
				}
				b.printf("| %s | %d, %d | %v %% | %.0f | %.2f | %.0f |\n", k.name, c.Clients, c.Keys, 100*unknown,
					1/valid.Seconds, valid.Bytes/1e6, 1/planted.Seconds)
			}
		}
	}
	b.printf("\n")
	return nil
}

// mutexes is the comparison with porcupine.
func (b *bench) mutexes() error {
	b.printf("### Against porcupine v1.3.1, the same mutex histories, 20 clients\n\n")
	b.printf("Porcupine has %v and %d GB. Processor time; memory is the greatest resident size.\n\n", limitTime, limitMemory>>30)
	b.printf("| operations, keys | unknown | history | exact | porcupine | memory | times |\n|---|---|---|---|---|---|---|\n")
	sizes := []int{1_000, 10_000, 100_000, 1_000_000}
	if b.large {
		sizes = append(sizes, 10_000_000)
	}
	for _, n := range sizes {
		for _, keys := range []int{1, 100} {
			for _, unknown := range []float64{0, 0.1} {
				for _, plant := range []bool{false, true} {
					c := gen.Config{Ops: n, Clients: 20, Keys: keys, Unknown: unknown, Plant: plant}
					ours, err := b.child("exact", c)
					if err != nil {
						return err
					}
					kind, theirs, times := "valid", outcome{}, ""
					if plant {
						kind = "violated"
					}
					if n <= 1_000_000 && (unknown == 0 || !plant || n == 1_000 || n == 1_000_000) {
						if theirs, err = b.child("porcupine", c); err != nil {
							return err
						}
						ratio := cmp.Or(theirs.Seconds, theirs.cpu) / ours.Seconds
						switch {
						case theirs.failed != "":
							times = fmt.Sprintf("> %.0f, %s", ratio, theirs.failed)
						case theirs.Verdict == string(porcupine.Unknown):
							times = fmt.Sprintf("> %.0f, undecided", ratio)
						case (theirs.Verdict == string(porcupine.Ok)) != (ours.Verdict == string(checker.Held)):
							return fmt.Errorf("%+v: porcupine says %s, mutex is %s", c, theirs.Verdict, ours.Verdict)
						default:
							times = fmt.Sprintf("%.0f", ratio)
						}
					} else {
						times = "not tried"
					}
					b.printf("| %d, %d | %v %% | %s | %s | %s | %s | %s |\n", n, keys, 100*unknown, kind,
						length(ours.Seconds), length(cmp.Or(theirs.Seconds, theirs.cpu)), size(theirs.memory), times)
				}
			}
		}
	}
	b.printf("\n")
	return nil
}

// files compares `lockcheck check` with decoding alone.
func (b *bench) files() error {
	b.printf("### `lockcheck check FILE` against decoding alone\n\n")
	b.printf("The fastest of 7 runs each, in turn; elapsed time of the whole process, and processor time in brackets. Memory is the greatest resident size.\n\n")
	b.printf("| file | operations | size | decode | memory | check | memory | check / decode | says |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range []struct {
		name   string
		config gen.Config
	}{
		{"mutex, 1 key", gen.Config{Keys: 1}},
		{"mutex, 1 key, 10 % unknown, one double grant", gen.Config{Keys: 1, Unknown: 0.1, Plant: true}},
		{"mutex, 100 keys, 10 % unknown, one double grant", gen.Config{Keys: 100, Unknown: 0.1, Plant: true}},
		{"fenced leases with writes, 100 keys", gen.Config{Keys: 100, TTL: gen.Lease, Renew: true, Tokens: true, Writes: true, Deadline: true}},
		{"fenced leases with writes, 1 key, 10 % unknown, one double grant", gen.Config{Keys: 1, TTL: gen.Lease, Renew: true, Tokens: true, Writes: true, Deadline: true, Unknown: 0.1, Plant: true}},
	} {
		c := f.config
		c.Ops, c.Clients = 1_000_000, 20
		path := filepath.Join(b.dir, "history.jsonl")
		if o := run(b.self, append([]string{"-write", path}, flags(c)...)...); o.failed != "" {
			return errors.New(o.failed)
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		var decodes, checks []outcome
		for range 7 {
			decodes = append(decodes, run(b.self, "-child", "decode", path))
			checks = append(checks, run(b.lockcheck, "check", path))
		}
		d, k := fastest(decodes), fastest(checks)
		if d.failed != "" || k.failed != "" {
			return errors.New(d.failed + k.failed)
		}
		b.printf("| %s | %s | %s | %s (%s) | %s | %s (%s) | %s | %.2f (%.2f) | %s |\n", f.name, d.Verdict, size(float64(info.Size())),
			length(d.wall), length(d.cpu), size(d.memory), length(k.wall), length(k.cpu), size(k.memory), k.wall/d.wall, k.cpu/d.cpu, strings.TrimSuffix(firstLine(k.Verdict), "."))
	}
	return nil
}

func flags(c gen.Config) []string {
	return []string{
		fmt.Sprintf("-ops=%d", c.Ops), fmt.Sprintf("-clients=%d", c.Clients), fmt.Sprintf("-keys=%d", c.Keys),
		fmt.Sprintf("-unknown=%v", c.Unknown), fmt.Sprintf("-plant=%v", c.Plant), fmt.Sprintf("-tokens=%v", c.Tokens),
		fmt.Sprintf("-writes=%v", c.Writes), fmt.Sprintf("-lease=%v", c.Renew), fmt.Sprintf("-deadline=%v", c.Deadline),
	}
}

func fastest(os []outcome) outcome {
	return slices.MinFunc(os, func(x, y outcome) int { return cmp.Compare(x.wall, y.wall) })
}

func length(seconds float64) string {
	switch {
	case seconds == 0:
		return "–"
	case seconds < 1e-3:
		return fmt.Sprintf("%.0f µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.1f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.2f s", seconds)
}

func size(bytes float64) string {
	if bytes == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f MB", bytes/1e6)
}
