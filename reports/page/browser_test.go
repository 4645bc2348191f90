package page_test

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// shots is where screenshots are kept, for people to look at.
const shots = "testdata/screenshots"

// browser is a page in a real browser, and what it complained of or asked for.
type browser struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
	requests []string
}

// open opens a page in a browser of its own.
func open(t testing.TB, html string, width, height int64) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: scripts/install-servers tests installs it")
	}
	t.Setenv("TMPDIR", t.TempDir()) // what the browser leaves behind goes with the test
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, []byte(html), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.WindowSize(int(width), int(height)),
	)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{TB: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	b.do(
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, network.Enable, network.EnableParams{})
			return err
		}),
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
				Width: width, Height: height, DeviceScaleFactor: 1,
			})
			return err
		}),
		chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()),
		chromedp.WaitReady(chromedp.CSS(`html[data-ready]`)),
	)
	if got := text(b, `document.documentElement.dataset.ready`); got != "true" {
		t.Fatalf("the page did not draw: %s", text(b, `document.getElementById('detail').textContent`))
	}
	return b
}

// heard takes an event of the browser.
func (b *browser) heard(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded: // what the policy refuses, among others
		if e.Entry.Level == log.EntryLevelError {
			b.problems = append(b.problems, e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "a dialog: "+e.Message)
	}
}

// limit is how long one action may take: more than ever needed, so that a page
// that hangs fails its test.
const limit = time.Minute

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	for _, a := range actions {
		// The first action starts the browser, which lives as long as its context.
		stop := time.AfterFunc(limit, func() { _ = chromedp.Cancel(b.ctx) })
		err := chromedp.Do(b.ctx, a)
		stop.Stop()
		if err != nil {
			b.Fatal(err)
		}
	}
}

// eval returns what a script returns.
func eval[T any](b *browser, js string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%v in %.200s", err, js)
	}
	return v
}

// tell runs a script.
func (b *browser) tell(js string) { b.Helper(); eval[bool](b, "("+js+", true)") }

// until waits, frame by frame, until a condition holds.
func (b *browser) until(js string) {
	b.Helper()
	eval[bool](b, "new Promise((done, fail) => { const look = () => { try { ("+js+") ? done(true) : requestAnimationFrame(look) } catch (e) { fail(e) } }; look(); })")
}

// press moves focus to the main chart and presses keys.
func (b *browser) press(keys string) {
	b.Helper()
	b.do(chromedp.Focus(chromedp.CSS("#main canvas")), chromedp.KeyEvent(keys))
}

func text(b *browser, js string) string    { b.Helper(); return eval[string](b, js) }
func number(b *browser, js string) float64 { b.Helper(); return eval[float64](b, js) }
func (b *browser) click(id string)         { b.Helper(); b.do(chromedp.Click(chromedp.CSS("#" + id))) }
func (b *browser) view() (from, to float64) {
	return number(b, `lockcheck.main.from`), number(b, `lockcheck.main.to`)
}

// shot keeps a picture of the whole page.
func (b *browser) shot(name string) {
	b.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(shots, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shots, name+".png"), png, 0o644); err != nil {
		b.Fatal(err)
	}
}

// quiet fails if the page complained, or asked for anything but itself.
func (b *browser) quiet() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.Errorf("the browser complains: %s", p)
	}
	for _, r := range b.requests {
		if !strings.HasPrefix(r, "file://") && !strings.HasPrefix(r, "blob:") {
			b.Errorf("the page asked for %s", r)
		}
	}
}

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

// pixel returns the colour on the main chart at a time and a place of a lane.
func pixel(b *browser, ns float64, lane int, part string) [3]int {
	b.Helper()
	return eval[[3]int](b, fmt.Sprintf(`(() => {
		const m = lockcheck.main, p = lockcheck.layout[%q], d = devicePixelRatio || 1;
		m.draw();
		const y = m.top + %d * lockcheck.layout.LANE + p.y + p.h - 2;
		return [...m.canvas.getContext('2d').getImageData(m.x(%f) * d, y * d, 1, 1).data].slice(0, 3);
	})()`, part, lane, ns))
}

func TestPageSaysWhatTheHistorySays(t *testing.T) {
	b := open(t, write(t, gcPause(plain, false)), 1400, 1000)
	if got := text(b, `document.querySelector('.badge').textContent`); !strings.Contains(got, "VIOLATION") {
		t.Errorf("the verdict reads %q", got)
	}
	if got := text(b, `lockcheck.lanes().map(l => l.name).join()`); got != "A,B" {
		t.Errorf("the lanes are %s", got)
	}
	// A believes from 1.7 to 206.8 ms, and B from 203.4 to 206.
	b.tell(`lockcheck.main.view(0, 208e6)`)
	blank := pixel(b, 100e6, 1, "BELIEVED")
	if got := pixel(b, 190e6, 0, "BELIEVED"); got == blank {
		t.Error("A's belief is not drawn at 190 ms")
	}
	if got := pixel(b, 0.7e6, 0, "BELIEVED"); got == pixel(b, 100e6, 0, "BELIEVED") {
		t.Error("A's belief is drawn before its grant")
	}
	b.tell(`lockcheck.main.view(202e6, 208e6)`)
	if got, before := pixel(b, 203.8e6, 1, "BELIEVED"), pixel(b, 202.4e6, 1, "BELIEVED"); got == before {
		t.Error("B's belief is not drawn at 203.8 ms")
	}
	// The service's grant to A ends at 201.2 ms, 200 ms after it was asked for.
	if got := number(b, `lockcheck.data.columns['hold.until'][0]`); !near(got, 201.2e6, 1e3) {
		t.Errorf("A's lease ends at %.1f ms on the page, want 201.2", got/1e6)
	}
	if got := text(b, `lockcheck.main.what(lockcheck.main.x(204e6), lockcheck.main.top + 15).text`); !strings.Contains(got, "A holds") || !strings.Contains(got, "lease ends 201.200 ms") {
		t.Errorf("pointing at A's bar says %q", got)
	}
	if got := text(b, `lockcheck.main.applied(2)`); got != `A's write "late-of-A" ACCEPTED (stale)` {
		t.Errorf("the late write reads %q", got)
	}
	b.shot("gc-pause-unfenced-light")
	b.click("theme")
	b.shot("gc-pause-unfenced-dark")
	b.quiet()
}

func TestFencedPage(t *testing.T) {
	b := open(t, write(t, gcPause(plain, true)), 420, 900)
	if got := text(b, `lockcheck.main.applied(2)`); got != `A's write "late-of-A" #33 REJECTED` {
		t.Errorf("the late write reads %q", got)
	}
	if got := text(b, `document.querySelectorAll('.answer')[2].querySelector('.short').textContent`); !strings.Contains(got, "No, it rejected 1 write") {
		t.Errorf("whether the resource was harmed reads %q", got)
	}
	if w := number(b, `document.documentElement.scrollWidth`); w > 420 {
		t.Errorf("the page is %v pixels wide on a screen of 420", w)
	}
	b.shot("gc-pause-fenced-narrow")
	b.quiet()
}

func TestJumpZoomPanAndLink(t *testing.T) {
	b := open(t, write(t, crowd(10, 3, 2000)), 1300, 900)
	jumps := eval[[]struct {
		At, To   float64
		Property string
	}](b, `lockcheck.jumps()`)
	if len(jumps) < 20 {
		t.Fatalf("%d violations are listed: want 20 at least", len(jumps))
	}
	b.click("first")
	if from, to := b.view(); jumps[0].At < from || jumps[0].To > to {
		t.Errorf("after first, %v to %v is shown, the violation is at %v", from, to, jumps[0].At)
	}
	b.click("next")
	b.click("next")
	if from, to := b.view(); jumps[2].At < from || jumps[2].To > to {
		t.Errorf("after next twice, %v to %v is shown, the violation is at %v", from, to, jumps[2].At)
	}
	if got := text(b, `document.getElementById('where').textContent`); !strings.HasPrefix(got, "3 of ") {
		t.Errorf("it says %q", got)
	}
	b.click("prev")
	if got := text(b, `document.getElementById('where').textContent`); !strings.HasPrefix(got, "2 of ") {
		t.Errorf("it says %q", got)
	}
	from, to := b.view()
	b.click("zoom-in")
	if f, e := b.view(); !near(e-f, (to-from)/2, 1) {
		t.Errorf("zooming in shows %v, want half of %v", e-f, to-from)
	}
	b.click("zoom-out")
	b.press(kb.ArrowRight)
	if f, _ := b.view(); f <= from {
		t.Errorf("the arrow did not pan: %v, before %v", f, from)
	}
	// The wheel zooms around the pointer.
	f0, t0 := b.view()
	at := eval[[]float64](b, `(() => { document.querySelector('#main').scrollIntoView(); const r = document.querySelector('#main canvas').getBoundingClientRect(); return [r.x + 700, r.y + 100, lockcheck.main.t(700)]; })()`)
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, input.DispatchMouseEvent, input.DispatchMouseEventParams{
			Type: input.DispatchMouseEventTypeMouseWheel, X: at[0], Y: at[1], DeltaX: 0.01, DeltaY: -200, // zeros would be left out
		})
		return err
	}))
	b.until(fmt.Sprintf(`lockcheck.main.span < %f`, t0-f0-1))
	if got := number(b, `lockcheck.main.t(700)`); !near(got, at[2], (t0-f0)/500) {
		t.Errorf("what was under the pointer moved from %v to %v", at[2], got)
	}
	// A step through operations says what they are.
	b.press(".")
	if got := text(b, `document.getElementById('detail').textContent`); !strings.Contains(got, "(event ") {
		t.Errorf("stepping says %q", got)
	}
	// A link leads back to what is shown.
	b.until(`location.hash.includes('z=')`)
	b.until(`Math.abs(parseFloat(new URLSearchParams(location.hash.slice(1)).get('z')) * 1e6 - lockcheck.main.span) < 2`)
	f1, t1 := b.view()
	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS(`html[data-ready]`)))
	if f, e := b.view(); !near(f, f1, 10) || !near(e, t1, 10) {
		t.Errorf("the link leads to %v to %v, want %v to %v", f, e, f1, t1)
	}
	b.quiet()
}

func TestFilter(t *testing.T) {
	events := crowd(10, 3, 2000)
	h := read(t, events)
	b := open(t, write(t, events), 1300, 900)
	b.do(chromedp.SendKeys(chromedp.CSS("#filter"), "3"))
	if got := text(b, `lockcheck.lanes().map(l => l.name).join()`); got != "3" {
		t.Errorf("with the filter 3 the lanes are %s", got)
	}
	b.tell(`(() => { const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input')); const k = document.getElementById('key'); k.value = '1'; k.dispatchEvent(new Event('change')); })()`)
	want := 0
	for i := range h.Ops {
		if h.Ops[i].Key == 1 {
			want++
		}
	}
	if got := number(b, `lockcheck.lanes().reduce((n, l) => n + l.ops.length, 0)`); int(got) != want {
		t.Errorf("of key 1, %v operations are shown, the history has %d", got, want)
	}
	b.quiet()
}

func TestHostilePageRunsNothing(t *testing.T) {
	b := open(t, write(t, gcPause(hostile, false)), 1300, 900)
	b.tell(`document.querySelectorAll('details').forEach(d => d.open = true)`)
	for _, id := range []string{"first", "next", "all", "zoom-in", "theme"} {
		b.click(id)
	}
	b.press("...,")
	for y := 10; y < 330; y += 12 { // point at everything
		b.tell(fmt.Sprintf(`(() => { const c = document.querySelector('#main canvas'), r = c.getBoundingClientRect(); for (let x = 100; x < r.width; x += 40) c.dispatchEvent(new PointerEvent('pointermove', {clientX: r.x + x, clientY: r.y + %d, bubbles: true})); })()`, y))
	}
	b.until(`true`)
	if got := text(b, `String(window.pwned)`); got != "undefined" {
		t.Fatalf("a script from the history ran: %s", got)
	}
	if got := number(b, `document.querySelectorAll('img, iframe, object, embed, link, [onload], [onerror]').length`); got != 0 {
		t.Errorf("%v elements came from the history", got)
	}
	if got := text(b, `lockcheck.lanes()[0].name`); got != hostile.a {
		t.Errorf("client A is called %q on the page", got)
	}
	b.shot("hostile")
	b.quiet()
}

// A million operations open in under three seconds, and are drawn fast enough to
// pan and zoom, from all of them down to single ones. The limit on frames leaves
// room for a machine that is busy with other tests.
func TestMillion(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures: run without -short and -race")
	}
	events := crowd(50, 20, 430_000)
	h := read(t, events)
	start := time.Now()
	html := write(t, events)
	wrote := time.Since(start)
	b := open(t, html, 1400, 900)
	ready := number(b, `performance.timeOrigin ? lockcheck.timing.ready : 0`)
	unpack := number(b, `lockcheck.timing.unpack`)
	frames := map[string]float64{}
	for name, span := range map[string]float64{"whole": 1.04, "tenth": 0.1, "thousandth": 1e-3, "millionth": 1e-6} {
		frames[name] = number(b, fmt.Sprintf(`(() => {
			const m = lockcheck.main, end = lockcheck.data.end, all = [];
			for (let i = 0; i < 40; i++) {
				const from = end * (0.1 + i / 60 * (1 - Math.min(1, %f)));
				m.from = from; m.to = from + end * %f;
				const t = performance.now(); m.draw(); all.push(performance.now() - t);
			}
			return all.sort((a, b) => a - b)[20];
		})()`, span, span))
	}
	nav := number(b, `performance.getEntriesByType('navigation')[0].domComplete`)
	t.Logf("%d operations, %.1f MB, written in %v (with decoding and checking); to complete %.0f ms, of which ready %.0f ms (unpack %.0f); frames in ms (median): %v",
		len(h.Ops), float64(len(html))/1e6, wrote.Round(time.Millisecond), nav, ready, unpack, frames)
	if len(h.Ops) < 900_000 {
		t.Errorf("only %d operations", len(h.Ops))
	}
	if ready > 3000 {
		t.Errorf("opening took %.0f ms", ready)
	}
	for name, ms := range frames {
		if ms > 100 {
			t.Errorf("a frame of %s takes %.1f ms", name, ms)
		}
	}
	b.tell(`lockcheck.main.view(0, lockcheck.data.end)`)
	b.shot("million")
	b.quiet()
}
