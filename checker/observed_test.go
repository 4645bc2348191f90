package checker

import (
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

func TestObservedHolder(t *testing.T) {
	const holderA = `{"index":2,"time":30,"process":"observer","type":"info","f":"holder","key":"k","value":{"holder":"A"}}`
	acquire := func(outcome string) string {
		return `{"index":0,"time":10,"process":"A","type":"invoke","f":"acquire","key":"k"}
{"index":1,"time":20,"process":"A","type":"` + outcome + `","f":"acquire","key":"k"}
`
	}
	release := func(outcome string) string { return strings.ReplaceAll(acquire(outcome), "acquire", "release") }
	tests := []struct {
		name, history, code string
	}{
		{"acquire without an answer was granted", acquire("info") + holderA, Ghost},
		{"acquire refused was granted", acquire("fail") + holderA, False},
		{"acquire that was granted is no news", acquire("ok") + holderA, ""},
		{"release without an answer did nothing", release("info") + holderA, Unreleased},
		{"release answered ok did nothing", release("ok") + holderA, False},
		{"somebody else holds", acquire("info") + strings.Replace(holderA, `"A"`, `"B"`, 1), ""},
		{"nobody holds", acquire("info") + strings.Replace(holderA, `"A"`, `null`, 1), ""},
		{"a token that nobody was told", acquire("info") + strings.Replace(holderA, `"holder":"A"`, `"token":7`, 1), Ghost},
		{"acquire still under way", strings.SplitAfter(acquire("info"), "\n")[0] + strings.Replace(holderA, `"index":2`, `"index":1`, 1), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := history.Decode(strings.NewReader(tt.history+"\n"), history.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var codes []string
			for _, f := range Check(h, Options{}).Findings {
				codes = append(codes, f.Code)
			}
			if got := strings.Join(codes, ","); got != tt.code {
				t.Errorf("findings are %q, want %q", got, tt.code)
			}
		})
	}
}
