package page_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/history"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/reports/page"
)

func TestDev(t *testing.T) {
	for _, d := range []string{"1", "2", "3", "4"} {
		dir := os.Getenv("DEV" + d)
		var r reports.Run
		b, _ := os.ReadFile(dir + "/run.json")
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		h, err := history.Open(dir+"/history.jsonl", history.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.SetReport(checker.Check(h, checker.Options{}))
		var events []history.Event
		in, _ := os.Open(dir + "/history.jsonl")
		s, _ := history.NewScanner(in, history.ReadOptions{})
		for s.Scan() {
			events = append(events, s.Event())
		}
		f, _ := os.Create("/tmp/mk/" + d + ".html")
		if err := page.Write(f, &r, h, events); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}
