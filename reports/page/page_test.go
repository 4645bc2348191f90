package page_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/page"
)

// What is drawn in red is what the checker found, no more and no less.
func TestOverlapsAreTheCheckers(t *testing.T) {
	for name, events := range map[string][]history.Event{
		"gc-pause":        gcPause(plain, false),
		"gc-pause fenced": gcPause(plain, true),
		"a crowd":         crowd(10, 3, 2000),
		"a crowd, 1 key":  crowd(7, 1, 1000),
		"no violation":    crowd(5, 2, 40),
		"late renewals":   lateRenewals(),
	} {
		t.Run(name, func(t *testing.T) {
			h := read(t, events)
			rep := checker.Check(h, checker.Options{})
			holds := page.HoldsOf(h, true)
			grants := 0
			for _, g := range holds {
				if !g.Resumed() {
					grants++
				}
			}
			if grants != rep.Grants {
				t.Errorf("%d grants are drawn, the checker counts %d", grants, rep.Grants)
			}
			mutex := rep.Property(checker.Mutex)
			all := page.OverlapsOf(holds)
			total := int64(0)
			for _, o := range all {
				total += o.Length()
			}
			if len(all) != mutex.Count || total != int64(mutex.Overlap) {
				t.Errorf("%d overlaps of %d ns are drawn, the checker found %d of %d ns", len(all), total, mutex.Count, mutex.Overlap)
			}
			fence := rep.Property(checker.Fence)
			if n := len(page.StaleWrites(h, holds)); n != fence.Count {
				t.Errorf("%d stale writes are drawn, the checker found %d", n, fence.Count)
			}
		})
	}
}

func TestPageNeedsNothingElse(t *testing.T) {
	html := write(t, gcPause(plain, false))
	if !strings.Contains(html, "default-src &#39;none&#39;; script-src &#39;sha256-") {
		t.Error("the policy is missing, or lets more in than the page's own script")
	}
	// Names of XML namespaces are not requests.
	text := strings.ReplaceAll(html, "http://www.w3.org/2000/svg", "")
	for _, bad := range []string{"http://", "https://", "<link", "@import", "url(", "fetch("} {
		if at := strings.Index(text, bad); at >= 0 && !strings.HasPrefix(text[at:], "url(#frozen)") {
			t.Errorf("the page asks for something: ...%.80s", text[at:])
		}
	}
	if regexp.MustCompile(`<[^>]+ on[a-z]+=|<[^>]+ style=`).MatchString(html) {
		t.Error("an inline handler or style, which the policy does not allow")
	}
}

// hostile are texts that would run, or break the page, if they became markup.
var hostile = names{
	a:       `A</script><script>window.pwned=1</script>`,
	b:       `"><img src=x onerror="window.pwned=2">`,
	key:     `k'--><svg onload=window.pwned=3>@@history@@`,
	value:   `{{.}}</title></style><script>window.pwned=4</script>` + "\u2028\u202e\x00",
	fault:   `pause<iframe srcdoc="<script>parent.pwned=5</script>">`,
	failure: "javascript:window.pwned=6 ]]> &lt;script&gt; \\u003cscript\\u003e",
}

func TestHostileTextsStayText(t *testing.T) {
	html := write(t, gcPause(hostile, false))
	for _, tag := range []string{"<img", "<iframe", "<svg onload", "window.pwned=1</script>", "window.pwned=4</script>"} {
		if strings.Contains(html, tag) {
			t.Errorf("%s became markup", tag)
		}
	}
	if got := strings.Count(html, "<script"); got != 2 {
		t.Errorf("%d scripts: want the packed history and ours", got)
	}
}

// The packed history can be unpacked, and names and numbers are in it.
func TestPackedHistory(t *testing.T) {
	html := write(t, gcPause(plain, true))
	m := regexp.MustCompile(`id="history">([A-Za-z0-9+/=]+)</script>`).FindStringSubmatch(html)
	if m == nil {
		t.Fatal("there is no packed history")
	}
	packed, err := base64.StdEncoding.DecodeString(m[1])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"processes":["A"`, `late-of-A`, `"name":"op.call"`, `"kind":"pause"`} {
		if !bytes.Contains(all, []byte(want)) {
			t.Errorf("%s is not in the packed history", want)
		}
	}
}

// Somebody who reads nothing but the three answers must not be misled.
func TestAnswers(t *testing.T) {
	lost := func(r *reports.Run) {
		r.Properties[checker.State] = &checker.Property{Name: checker.State, Verdict: checker.Violated, Why: "an update was lost"}
	}
	for _, c := range []struct {
		name   string
		tokens bool
		change func(*reports.Run)
		want   [3]string
	}{
		{"unfenced", false, nil, [3]string{"Yes, for 2.6 ms", "Yes", "Yes"}},
		{"fenced", true, nil, [3]string{"Yes, for 2.6 ms", "Yes", "No, it rejected 1 write"}},
		{"fenced, but an update was lost", true, lost, [3]string{"Yes, for 2.6 ms", "Yes", "Yes"}},
		{"nothing judged", true, func(r *reports.Run) { r.Properties = nil }, [3]string{"not judged", "not judged", "not judged"}},
		{"unknown", true, func(r *reports.Run) {
			for _, p := range r.Properties {
				p.Verdict, p.Witness = checker.Unknown, nil
			}
		}, [3]string{"Unknown", "Unknown", "Unknown"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := read(t, gcPause(plain, c.tokens))
			r := judged(h)
			if c.change != nil {
				c.change(r)
			}
			var b strings.Builder
			if err := page.Write(&b, r, h, nil); err != nil {
				t.Fatal(err)
			}
			var got [3]string
			for i, m := range regexp.MustCompile(`<p class="short">(?:&#\d+; )?([^<]*)</p>`).FindAllStringSubmatch(b.String(), 3) {
				got[i] = m[1]
			}
			if got != c.want {
				t.Errorf("the answers are %q, want %q", got, c.want)
			}
		})
	}
}
