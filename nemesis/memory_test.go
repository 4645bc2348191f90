package nemesis

import (
	"strings"
	"testing"
)

func startMemory(t *testing.T, params map[string]string) *memory {
	t.Helper()
	kind, err := Find("memory")
	if err != nil {
		t.Fatal(err)
	}
	if err := kind.Available(); err != nil {
		t.Skip(err)
	}
	return startFault(t, "memory", params).(*memory)
}

func TestMemoryLimitsWhatIsTaken(t *testing.T) {
	f := startMemory(t, map[string]string{"limit": "8MB"})
	g := startGrowing(t)
	g.ask(t, 0)
	tid, pid := g.grown(t)
	before := where(t, tid)
	proof, err := f.Inject(t.Context(), []Target{g})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(proof)
	if !strings.Contains(string(proof), "with a limit of 8000000 bytes") {
		t.Errorf("proof %q does not tell the limit", proof)
	}
	if where(t, tid) == before || where(t, pid) == before {
		t.Error("the target is not in the control group")
	}
	group := f.held[0].Group
	injected, err := hits(group)
	if err != nil {
		t.Fatal(err)
	}
	g.ask(t, 32e6)
	err = await(t.Context(), "the target hits the limit", func() (bool, error) {
		now, err := hits(group)
		if err == nil && now > injected && !group.V2 {
			waits, err := group.Count("memory.oom_control", "under_oom")
			return waits == 1, err
		}
		return now > injected, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // healing again must be harmless
		healed, err := f.Heal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Log(healed)
	}
	newTID, newPID := g.grown(t) // it has got what it wanted
	expect(t, before, g.cmd.Process.Pid, tid, pid, newTID, newPID)
}

func TestMemoryHealsWhatDied(t *testing.T) {
	f := startMemory(t, nil)
	g := startGrowing(t)
	if _, err := f.Inject(t.Context(), []Target{g}); err != nil {
		t.Fatal(err)
	}
	g.ask(t, 64e6)
	g.kill(t) // while it waits for memory, perhaps
	if _, err := f.Heal(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMemoryFails(t *testing.T) { refuses(t, startFault(t, "memory", nil), "memory") }

func TestMemoryParams(t *testing.T) {
	for text, want := range map[string]int64{
		"32MB": 32e6, "1 gb": 1e9, "2000KB": 2e6, "1000000": 1e6,
		"": 0, "-1": 0, "999KB": 0, "1TB": 0, "lots": 0, "9999999999GB": 0,
	} {
		f, err := newMemory(map[string]string{"limit": text})
		switch {
		case want == 0:
			if err == nil || !strings.Contains(err.Error(), "want bytes from 1MB to 1000GB") {
				t.Errorf("%q: %v", text, err)
			}
		case err != nil:
			t.Errorf("%q: %v", text, err)
		case f.(*memory).limit != want:
			t.Errorf("%q: %d, want %d", text, f.(*memory).limit, want)
		}
	}
}
