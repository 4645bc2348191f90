// Package serve shows the runs in a folder in a browser: a list, the page of each,
// two side by side, one that is going on, and its files. It only reads, and only
// inside that folder.
package serve

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/page"
)

//go:embed list.html
var listHTML string

//go:embed compare.html
var compareHTML string

//go:embed live.html
var liveHTML string

//go:embed serve.css
var styleCSS string

//go:embed live.js
var liveJS string

// Files of a run's folder that this package knows.
const (
	runFile     = "run.json"
	historyFile = "history.jsonl"
)

// Options say what is shown, and to whom.
type Options struct {
	Dir string // folder of the runs' folders
	// Write writes the page of the run in a folder.
	Write func(w io.Writer, dir string) error
	// Hosts are the names, without ports, under which the server may be asked for,
	// besides those of loopback. A page elsewhere that makes its own name point
	// here gets nothing.
	Hosts []string
}

// Server answers requests. It is safe for concurrent use. The caller closes it.
type Server struct {
	o     Options
	root  *os.Root
	pages map[string]*template.Template
	mux   *http.ServeMux
	write sync.Mutex // one page is made at a time: it takes memory
}

// New returns a server for the folder, which must exist.
func New(o Options) (*Server, error) {
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, root: root, mux: http.NewServeMux(), pages: map[string]*template.Template{}}
	for name, text := range map[string]string{"list": listHTML, "compare": compareHTML, "live": liveHTML} {
		if s.pages[name], err = template.New(name).Parse(text); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	s.mux.HandleFunc("GET /{$}", s.list)
	s.mux.HandleFunc("GET /run/{name}", s.run)
	s.mux.HandleFunc("GET /compare", s.compare)
	s.mux.HandleFunc("GET /live/{name}", s.live)
	s.mux.HandleFunc("GET /events/{name}", s.events)
	s.mux.HandleFunc("GET /files/{name}/{file}", s.file)
	return s, nil
}

// Close releases the folder.
func (s *Server) Close() error { return s.root.Close() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if !s.allowed(r.Host) {
		http.Error(w, fmt.Sprintf("this server is not called %q", r.Host), http.StatusMisdirectedRequest)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "nothing can be changed here", http.StatusMethodNotAllowed)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// allowed says whether a Host header names this server: a name that a stranger
// controls may point to loopback too.
func (s *Server) allowed(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return true
	}
	return host == "localhost" || slices.Contains(s.o.Hosts, host)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// html sends one of our own pages.
func (s *Server) html(w http.ResponseWriter, name, script string, data any) {
	var b strings.Builder
	if err := s.pages[name].Execute(&b, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	policy := "default-src 'none'; style-src " + hash(styleCSS) + "; form-action 'self'; base-uri 'none'; frame-src 'self'; frame-ancestors 'none'"
	if script != "" {
		policy += "; connect-src 'self'; script-src " + hash(script)
	}
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, b.String()) // the browser has gone: nobody to tell
}

// entry is one run of the list.
type entry struct {
	Name    string
	Date    time.Time
	Run     reports.Run
	Running bool // run.json states no outcome yet
	Page    bool // it has a history
}

// Verdict is how the run came out, in a word.
func (e entry) Verdict() string {
	if e.Running {
		return "no verdict yet"
	}
	return string(e.Run.Status)
}

// When is the date for people.
func (e entry) When() string { return e.Date.Format("2006-01-02 15:04:05") }

// Escaped is the name in an address.
func (e entry) Escaped() string { return url.PathEscape(e.Name) }

// entries reads what runs there are. What is no run's folder is left out.
func (s *Server) entries() ([]entry, error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, name := range names {
		if e, err := s.entry(name); err == nil {
			all = append(all, e)
		}
	}
	return all, nil
}

// errNoRun says that there is no run of this name.
var errNoRun = errors.New("no such run")

// stamp is how the name of a run's folder begins.
const stamp = "20060102T150405.000"

// largestRun bounds what is read of a run.json.
const largestRun = 8 << 20

func (s *Server) entry(name string) (entry, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\`) {
		return entry{}, errNoRun
	}
	f, err := s.root.Open(filepath.Join(name, runFile))
	if err != nil {
		return entry{}, errNoRun
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return entry{}, errNoRun
	}
	e := entry{Name: name, Date: info.ModTime()}
	b, err := io.ReadAll(io.LimitReader(f, largestRun))
	if err != nil {
		return entry{}, err
	}
	if err := json.Unmarshal(b, &e.Run); err != nil {
		return entry{}, errNoRun
	}
	// The name begins with when the run began; a copied file has another date.
	if began, err := time.ParseInLocation(stamp, name[:min(len(stamp), len(name))], time.Local); err == nil {
		e.Date = began
	}
	e.Running = e.Run.Status == ""
	_, err = s.root.Stat(filepath.Join(name, historyFile))
	e.Page = err == nil
	return e, nil
}

// sortings are the orders of the list, by the name of a column.
var sortings = map[string]func(a, b entry) int{
	"date":     func(a, b entry) int { return b.Date.Compare(a.Date) }, // the newest first
	"scenario": func(a, b entry) int { return cmp.Compare(a.Run.Scenario, b.Run.Scenario) },
	"backend":  func(a, b entry) int { return cmp.Compare(a.Run.Backend, b.Run.Backend) },
	"resource": func(a, b entry) int { return cmp.Compare(a.Run.Resource, b.Run.Resource) },
	"verdict":  func(a, b entry) int { return cmp.Compare(a.Verdict(), b.Verdict()) },
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	all, err := s.entries()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	q := r.URL.Query()
	var kept []entry
	for _, e := range all {
		if matches(e, q) {
			kept = append(kept, e)
		}
	}
	by := q.Get("sort")
	order, found := sortings[by]
	if !found {
		by, order = "date", sortings["date"]
	}
	slices.SortStableFunc(kept, func(a, b entry) int { return cmp.Or(order(a, b), sortings["date"](a, b), cmp.Compare(a.Name, b.Name)) })
	values := func(of func(entry) string) []string {
		var vs []string
		for _, e := range all {
			if v := of(e); v != "" && !slices.Contains(vs, v) {
				vs = append(vs, v)
			}
		}
		slices.Sort(vs)
		return vs
	}
	s.html(w, "list", "", map[string]any{
		"Style": template.CSS(styleCSS), "Runs": kept, "All": len(all), "Sort": by,
		"Scenario": q.Get("scenario"), "Backend": q.Get("backend"), "Verdict": q.Get("verdict"), "Text": q.Get("q"),
		"Scenarios": values(func(e entry) string { return e.Run.Scenario }),
		"Backends":  values(func(e entry) string { return e.Run.Backend }),
		"Verdicts":  values(entry.Verdict),
		"Trends":    trends(kept), "Dir": s.o.Dir,
	})
}

func matches(e entry, q url.Values) bool {
	is := func(name, v string) bool { return q.Get(name) == "" || q.Get(name) == v }
	return is("scenario", e.Run.Scenario) && is("backend", e.Run.Backend) && is("verdict", e.Verdict()) &&
		strings.Contains(strings.ToLower(e.Name+" "+e.Run.Outline()), strings.ToLower(q.Get("q")))
}

// trend is how often the runs of a scenario, on one backend and resource, showed a
// violation, over time.
type trend struct {
	Scenario, Backend, Resource string
	Hits, Runs                  int
	Marks                       []mark // oldest first
}

// mark is one run of a trend. Rate is the part of the runs up to it that were hits.
type mark struct {
	Name, Verdict string
	Hit           bool
	X, Y          int
}

// mostMarks is how many of the newest runs a trend draws.
const mostMarks = 60

// Line is the path of the rate.
func (t trend) Line() string {
	var b strings.Builder
	for i, m := range t.Marks {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&b, "%s%d %d", verb, m.X, m.Y)
	}
	return b.String()
}

// Percent is the hit rate over all runs.
func (t trend) Percent() int { return (100*t.Hits + t.Runs/2) / t.Runs }

// trends groups the runs. A hit is a violation: of the property that the scenario
// is about, where it names one.
func trends(all []entry) []trend {
	oldest := slices.Clone(all)
	slices.SortStableFunc(oldest, func(a, b entry) int { return a.Date.Compare(b.Date) })
	at := map[[3]string]int{}
	var ts []trend
	for _, e := range oldest {
		if e.Running || e.Run.Scenario == "" {
			continue
		}
		k := [3]string{e.Run.Scenario, e.Run.Backend, e.Run.Resource}
		i, found := at[k]
		if !found {
			i = len(ts)
			at[k] = i
			ts = append(ts, trend{Scenario: k[0], Backend: k[1], Resource: k[2]})
		}
		t := &ts[i]
		hit := e.Run.Status == reports.Violation
		if e.Run.Violates != "" {
			hit = e.Run.Verdict(e.Run.Violates) == checker.Violated
		}
		t.Runs++
		if hit {
			t.Hits++
		}
		t.Marks = append(t.Marks, mark{Name: e.Name, Verdict: e.Verdict(), Hit: hit, Y: 26 - 22*t.Hits/t.Runs})
	}
	for i := range ts {
		t := &ts[i]
		t.Marks = t.Marks[max(0, len(t.Marks)-mostMarks):]
		for j := range t.Marks {
			t.Marks[j].X = 6 + j*4
		}
	}
	slices.SortFunc(ts, func(a, b trend) int {
		return cmp.Or(cmp.Compare(a.Scenario, b.Scenario), cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Resource, b.Resource))
	})
	return ts
}

func notFound(w http.ResponseWriter) { http.Error(w, "there is no such run", http.StatusNotFound) }

// run sends the page of a run, made anew: a page that lies in the folder is not
// ours to trust.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	e, err := s.entry(r.PathValue("name"))
	if err != nil || !e.Page || !s.inside(e.Name) {
		notFound(w)
		return
	}
	s.write.Lock()
	defer s.write.Unlock()
	w.Header().Set("Content-Security-Policy", page.Policy()+"; frame-ancestors 'self'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	out := &counted{w: w}
	if err := s.o.Write(out, filepath.Join(s.o.Dir, e.Name)); err != nil && out.n == 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
	}
}

// inside says that what a page is made from lies in the folder: not behind a
// symbolic link that leads out of it.
func (s *Server) inside(name string) bool {
	for _, file := range []string{runFile, historyFile} {
		f, err := s.root.Open(filepath.Join(name, file)) // fails for what leads out
		if err != nil {
			return false
		}
		_ = f.Close() // only read
	}
	return true
}

// counted counts what was written.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

func (s *Server) compare(w http.ResponseWriter, r *http.Request) {
	var sides []entry
	for _, name := range r.URL.Query()["run"] {
		if e, err := s.entry(name); err == nil && e.Page && len(sides) < 2 {
			sides = append(sides, e)
		}
	}
	if len(sides) != 2 {
		http.Error(w, "choose two runs in the list", http.StatusBadRequest)
		return
	}
	s.html(w, "compare", "", map[string]any{"Style": template.CSS(styleCSS), "Sides": sides})
}

// file sends a file of a run's folder for download: never to be shown as a page.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	e, err := s.entry(r.PathValue("name"))
	name := r.PathValue("file")
	if err != nil || name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\`) {
		notFound(w)
		return
	}
	f, err := s.root.Open(filepath.Join(e.Name, name))
	if err != nil {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": e.Name + "-" + name}))
	http.ServeContent(w, r, "", info.ModTime(), f)
}

// Files are the names of the files of a run, for its live page and the list.
func (s *Server) files(name string) []string {
	dir, err := s.root.Open(name)
	if err != nil {
		return nil
	}
	defer dir.Close()
	all, err := dir.ReadDir(-1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var names []string
	for _, f := range all {
		if f.Type().IsRegular() {
			names = append(names, f.Name())
		}
	}
	slices.Sort(names)
	return names
}

func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	e, err := s.entry(r.PathValue("name"))
	if err != nil {
		notFound(w)
		return
	}
	s.html(w, "live", liveJS, map[string]any{
		"Style": template.CSS(styleCSS), "Script": template.JS(liveJS), "Run": e, "Files": s.files(e.Name),
	})
}
