package protocolcheck_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/conformance"
	_ "github.com/lockcheck/lockcheck/backends/postgres"
	_ "github.com/lockcheck/lockcheck/backends/redlock"
	"github.com/lockcheck/lockcheck/internal/client/protocolcheck"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// The clients that come with lockcheck state what they can do, and can do it: one
// that keeps a deadline, and one whose lock can be taken again.
func TestWorkers(t *testing.T) {
	for _, c := range []struct {
		backend    string
		capability string
		right      string // what must have been asked
	}{
		{"redlock", "deadline", "acquire of a free lock is granted"},
		{"postgres-session-stacked", "reentrant", "acquire of a lock that the client holds is granted"},
	} {
		t.Run(c.backend, func(t *testing.T) {
			t.Parallel()
			b, err := backends.Find(c.backend)
			if err != nil {
				t.Fatal(err)
			}
			command, err := selfexec.Command("worker", c.backend)
			if err != nil {
				t.Fatal(err)
			}
			var right []string
			err = protocolcheck.Run(t.Context(), protocolcheck.Options{
				Command: command, Servers: conformance.Servers(t, b, backends.Options{}), TTL: time.Second,
				Patience: 20 * time.Second, Dir: t.TempDir(),
				Report: func(l protocolcheck.Line) {
					switch l.Result {
					case protocolcheck.Right:
						right = append(right, l.What)
						if l.What == "open connects" && !strings.Contains(l.Why, c.capability) {
							t.Errorf("it states %q, want %s among it", l.Why, c.capability)
						}
					case protocolcheck.Wrong, protocolcheck.Note:
						t.Errorf("%s %s: %s\n%s", l.Result, l.What, l.Why, strings.Join(l.Messages, "\n"))
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(right, c.right) {
				t.Errorf("right are %q, want %q among it", right, c.right)
			}
		})
	}
}
