package serve

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/page"
)

// doubleHold is a history in which B is granted the lock while A believes that it
// holds.
const doubleHold = `{"index":0,"time":1,"process":"harness","type":"info","f":"run"}
{"index":1,"time":1000000,"process":"A","type":"invoke","f":"acquire","key":"k"}
{"index":2,"time":2000000,"process":"A","type":"ok","f":"acquire","key":"k"}
{"index":3,"time":3000000,"process":"B","type":"invoke","f":"acquire","key":"k"}
{"index":4,"time":4000000,"process":"B","type":"ok","f":"acquire","key":"k"}
`

const ending = `{"index":5,"time":9000000,"process":"A","type":"invoke","f":"release","key":"k","value":"<img src=x onerror=window.pwned=1>"}
{"index":6,"time":9500000,"process":"harness","type":"info","f":"end"}
`

// The list, two runs side by side and the live view, clicked through in a real
// browser.
func TestInABrowser(t *testing.T) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: scripts/install-servers tests installs it")
	}
	t.Setenv("TMPDIR", t.TempDir()) // what the browser leaves behind goes with the test
	dir := t.TempDir()
	put(t, dir, "first", runJSON("gc-pause", "redis", "violation"), doubleHold+ending)
	put(t, dir, "second", runJSON("gc-pause", "etcd", "violation"), doubleHold+ending)
	put(t, dir, "running", runJSON("hunt", "redis", ""), doubleHold)
	s, err := New(Options{Dir: dir, Write: writeRun})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	server := httptest.NewServer(s)
	defer server.Close()

	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1300, 900))...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	var mu sync.Mutex
	var problems []string
	if err := chromedp.Listen(ctx, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			problems = append(problems, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError && !strings.HasSuffix(e.Entry.URL, "/favicon.ico") {
				problems = append(problems, e.Entry.Text)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	do := func(actions ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, actions...); err != nil {
			t.Fatal(err)
		}
	}
	text := func(js string) string {
		t.Helper()
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		v, err := chromedp.Run(limited, chromedp.Evaluate[string](js, chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatalf("%v in %s", err, js)
		}
		return v
	}
	until := func(js string) {
		t.Helper()
		text(fmt.Sprintf("new Promise((done, fail) => { const look = () => { try { (%s) ? done('') : requestAnimationFrame(look) } catch (e) { fail(e) } }; look(); })", js))
	}

	do(chromedp.Navigate(server.URL+"/"),
		chromedp.SetValue(chromedp.CSS("select[name=backend]"), "redis"),
		chromedp.Click(chromedp.CSS(".filter button")),
		chromedp.WaitReady(chromedp.CSS("select[name=backend] option[selected]")))
	if got := text(`[...document.querySelectorAll('#runs tbody tr')].map(r => r.cells[3].textContent).join()`); got != "redis,redis" {
		t.Errorf("filtered by redis, the list has %q", got)
	}
	do(chromedp.Navigate(server.URL+"/"),
		chromedp.Click(chromedp.CSS("input[value=first]")), chromedp.Click(chromedp.CSS("input[value=second]")),
		chromedp.Click(chromedp.CSS("form[action='/compare'] p button")),
		chromedp.WaitReady(chromedp.CSS(".sides")))
	until(`document.querySelectorAll('iframe').length === 2 && [...document.querySelectorAll('iframe')].every(f => f.contentDocument?.documentElement?.dataset.ready === 'true')`)
	if got := text(`[...document.querySelectorAll('iframe')].map(f => f.contentDocument.querySelector('h1').textContent).join('|')`); !strings.Contains(got, "redis") || !strings.Contains(got, "etcd") {
		t.Errorf("side by side are %q", got)
	}

	do(chromedp.Navigate(server.URL + "/live/running"))
	until(`document.getElementById('grants').textContent === '2'`)
	if got := text(`document.getElementById('both').textContent + document.getElementById('state').textContent`); !strings.HasPrefix(got, "1Going on") {
		t.Errorf("while it goes on, the live view says %q", got)
	}
	f, err := os.OpenFile(filepath.Join(dir, "running", historyFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(ending); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	until(`document.getElementById('state').textContent.startsWith('The run is over')`)
	if got := text(`String(window.pwned) + document.querySelectorAll('img').length`); got != "undefined0" {
		t.Errorf("a value of the history became markup: %s", got)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, p := range problems {
		t.Errorf("the browser complains: %s", p)
	}
}

// writeRun writes the page of a run's folder.
func writeRun(w io.Writer, dir string) error {
	h, err := history.Open(filepath.Join(dir, historyFile), history.ReadOptions{})
	if err != nil {
		return err
	}
	r := &reports.Run{Scenario: "gc-pause", Backend: map[bool]string{true: "redis", false: "etcd"}[filepath.Base(dir) == "first"], Status: reports.Violation}
	r.SetReport(checker.Check(h, checker.Options{}))
	return page.Write(w, r, h, nil)
}
