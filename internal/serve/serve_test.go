package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// put writes the folder of a run.
func put(t *testing.T, dir, name, run, history string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{runFile: run, historyFile: history} {
		if err := os.WriteFile(filepath.Join(dir, name, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func runJSON(scenario, backend, status string) string {
	return fmt.Sprintf(`{"schema":"lockcheck/v1","scenario":%q,"backend":%q,"resource":"unfenced","status":%q,"violates":"mutex","properties":{"mutex":{"name":"mutex","verdict":%q,"why":""}},"versions":{}}`,
		scenario, backend, status, map[string]string{"violation": "violated"}[status])
}

// serving is a server of a folder with some runs, beside one with a secret.
func serving(t *testing.T) (url, dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "runs")
	put(t, dir, "one", runJSON("gc-pause", "redis", "violation"), `{"index":0,"time":1,"process":"harness","type":"info","f":"run"}`+"\n"+`{"index":1,"time":2,"process":"harness","type":"info","f":"end"}`+"\n")
	put(t, dir, "two", runJSON("gc-pause", "redis", "pass"), "")
	put(t, dir, "three", runJSON("contention", "etcd", "inconclusive"), "")
	put(t, dir, `<script>alert(1)</script>`, runJSON("<img src=x onerror=alert(2)>", "etcd", "error"), "")
	if err := os.WriteFile(filepath.Join(top, "secret"), []byte("what nobody may see"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"leak": "../../secret", "page.html": "../../secret"} {
		if err := os.Symlink(to, filepath.Join(dir, "one", link)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, top, "outside", runJSON("gc-pause", "outside", "pass"), "")
	if err := os.Symlink("../outside", filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Dir: dir, Write: func(w io.Writer, dir string) error {
		_, err := io.WriteString(w, "the page of "+filepath.Base(dir))
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL, dir
}

func get(t *testing.T, url string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestList(t *testing.T) {
	url, _ := serving(t)
	for query, want := range map[string][]string{
		"":                      {"/run/one", "/run/two", "/run/three"},
		"?verdict=violation":    {"/run/one"},
		"?backend=etcd":         {"/run/three"},
		"?scenario=gc-pause":    {"/run/one", "/run/two"},
		"?q=THREE":              {"/run/three"},
		"?sort=verdict&q=w":     {"/run/two"},
		"?verdict=no+such+word": nil,
	} {
		t.Run(query, func(t *testing.T) {
			resp, body := get(t, url+"/"+query, nil)
			if resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			for _, name := range []string{"/run/one", "/run/two", "/run/three"} {
				wanted := false
				for _, w := range want {
					wanted = wanted || w == name
				}
				if got := strings.Contains(body, `"`+name+`"`); got != wanted {
					t.Errorf("%s listed: %v, want %v", name, got, wanted)
				}
			}
			if strings.Contains(body, "<script>alert") || strings.Contains(body, "<img") {
				t.Error("a name became markup")
			}
			if strings.Contains(body, "outside") {
				t.Error("a run outside of the folder is listed")
			}
		})
	}
	_, body := get(t, url+"/", nil)
	if !strings.Contains(body, "<td>1 of 2</td><td>50 %</td>") {
		t.Error("the hit rate of gc-pause on redis, 1 of 2, is not shown")
	}
}

func TestSorting(t *testing.T) {
	url, _ := serving(t)
	_, body := get(t, url+"/?sort=backend", nil)
	if strings.Index(body, "/run/three") > strings.Index(body, "/run/one") {
		t.Error("sorted by backend, etcd comes after redis")
	}
}

func TestNothingOutside(t *testing.T) {
	url, _ := serving(t)
	for _, path := range []string{
		"/files/one/leak", "/files/one/page.html", "/files/one/..%2f..%2fsecret", "/files/..%2f/secret", "/files/../secret",
		"/files/%2e%2e/secret", "/files/one/%2e%2e", `/files/one/..\..\secret`, "/files/linked/run.json", "/run/linked", "/run/..",
		"/run/%2e%2e%2foutside", "/live/linked", "/events/linked", "/events/..%2foutside", "/files/one/", "/secret", "/run/nowhere",
	} {
		resp, body := get(t, url+path, nil)
		if resp.StatusCode < 300 || strings.Contains(body, "nobody may see") {
			t.Errorf("%s: %s %.40q", path, resp.Status, body)
		}
	}
}

func TestHeaders(t *testing.T) {
	url, _ := serving(t)
	for _, path := range []string{"/", "/run/one", "/live/one", "/compare?run=one&run=two", "/files/one/run.json", "/nowhere"} {
		resp, _ := get(t, url+path, nil)
		h := resp.Header
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: headers %v", path, h)
		}
		if strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s: unsafe policy", path)
		}
	}
	resp, body := get(t, url+"/run/one", nil)
	if body != "the page of one" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "script-src 'sha256-") {
		t.Errorf("the page of a run is %q", body)
	}
	resp, _ = get(t, url+"/files/one/run.json", nil)
	if d := resp.Header.Get("Content-Disposition"); !strings.HasPrefix(d, "attachment") {
		t.Errorf("a file is to be shown in the browser: %q", d)
	}
}

func TestReadOnlyAndByItsName(t *testing.T) {
	url, _ := serving(t)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		resp, _ := get(t, url+"/", func(r *http.Request) { r.Method = method })
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
	for host, want := range map[string]int{
		"evil.example": http.StatusMisdirectedRequest, "evil.example:80": http.StatusMisdirectedRequest, "10.0.0.1": http.StatusMisdirectedRequest,
		"localhost.evil.example": http.StatusMisdirectedRequest, "localhost:1234": http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:80": http.StatusOK,
	} {
		resp, _ := get(t, url+"/", func(r *http.Request) { r.Host = host })
		if resp.StatusCode != want {
			t.Errorf("host %s: %s, want %d", host, resp.Status, want)
		}
	}
}

// A history is followed while it is written: also in parts of lines, and in spite
// of what is no event.
func TestFollow(t *testing.T) {
	r, w := io.Pipe()
	type message struct{ event, data string }
	got := make(chan message, 100)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- follow(ctx, r, func(event string, data []byte) error {
			got <- message{event, string(data)}
			return nil
		})
	}()
	go func() {
		for _, part := range []string{
			`{"index":0,"process":"A","type":"invoke","f":"acq`, `uire"}` + "\n", "rubbish\n", `{"index":1,"process":"A","type":"ok","f":"acquire"}` + "\n",
			`{"index":2,"process":"harness","type":"info","f":"end"}` + "\n", `{"index":3,"process":"A","type":"invoke","f":"late"}` + "\n",
		} {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	}()
	var indexes []float64
	for {
		select {
		case m := <-got:
			if m.event == "end" {
				if fmt.Sprint(indexes) != "[0 1 2]" {
					t.Errorf("events %v came, want 0, 1, 2", indexes)
				}
				r.Close()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				return
			}
			var lines []map[string]any
			if err := json.Unmarshal([]byte(m.data), &lines); err != nil {
				t.Fatal(err)
			}
			for _, l := range lines {
				indexes = append(indexes, l["index"].(float64))
			}
		case <-ctx.Done():
			t.Fatal("no end came")
		}
	}
}

// The file of a run that is going on is followed over HTTP.
func TestLiveFile(t *testing.T) {
	url, dir := serving(t)
	f, err := os.OpenFile(filepath.Join(dir, "two", historyFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events/two", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"index":0,"time":1,"process":"A","type":"invoke","f":"acquire"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	next := func(want string) {
		t.Helper()
		for in.Scan() {
			if strings.Contains(in.Text(), want) {
				return
			}
		}
		t.Fatalf("%q did not come: %v", want, in.Err())
	}
	next(`"f":"acquire"`)
	if _, err := f.WriteString(`{"index":1,"time":2,"process":"harness","type":"info","f":"end"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	next("event: end")
}
