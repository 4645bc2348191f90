package checker

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/history"
)

// The histories that docs/findings.md links to must say what it says of them: that
// the client outlived its lease, and the service kept its promise.
func TestPublishedHistories(t *testing.T) {
	files, err := filepath.Glob("../docs/histories/*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			h, err := history.Open(file, history.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r := Check(h, Options{})
			for property, want := range map[string]Verdict{Mutex: Violated, Lease: Held, Fence: Held} {
				i := slices.IndexFunc(r.Properties, func(p Property) bool { return p.Name == property })
				if i < 0 || r.Properties[i].Verdict != want {
					t.Errorf("%s: %+v, want %s", property, r.Properties, want)
				}
			}
		})
	}
	want := []string{"etcd-cut-holder", "ioredis-slow-grant", "redis-py-slow-grant", "redislock-slow-grant"}
	if !slices.Equal(names, want) {
		t.Errorf("histories %q, want %q", names, want)
	}
}
