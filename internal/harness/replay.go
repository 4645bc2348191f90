package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

// optionsFile has what was asked for of a run and is not in the run's report.
const optionsFile = "options.json"

// asked is what is in optionsFile.
type asked struct {
	Nodes       int               `json:"nodes,omitempty"`
	Client      []string          `json:"client,omitempty"`
	Bin         map[string]string `json:"bin,omitempty"`
	Gate        []string          `json:"gate,omitempty"`
	Network     string            `json:"network,omitempty"`
	Versions    map[string]string `json:"versions,omitempty"`
	ClientImage string            `json:"client_image,omitempty"`
	// Servers may have passwords in them: the folder is private.
	Servers []backends.Endpoint `json:"servers,omitempty"`
}

// saveOptions writes what Reload reads.
func saveOptions(dir string, o Options) error {
	return writeJSON(filepath.Join(dir, optionsFile), asked{o.Nodes, o.Client, o.Bin, o.Gate, o.Network, o.Versions, o.ClientImage, o.Servers})
}

// Recorded is a run as its folder tells of it.
type Recorded struct {
	Scenario *scenarios.Scenario // as it was run: with the schedule, if that was a random one
	Options  Options             // without Cache, Out, Replay and Watch
	Run      *reports.Run
}

// Reload reads from a run's folder all that is needed to run the same again.
// An error that is ErrNoRun says that the folder is not a run's.
func Reload(dir string) (*Recorded, error) {
	run, err := CheckRun(dir, CheckOptions{})
	if err != nil {
		return nil, err
	}
	var a asked
	b, err := os.ReadFile(filepath.Join(dir, optionsFile))
	if err == nil {
		err = json.Unmarshal(b, &a)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil // of an older run: nothing special was asked for
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", filepath.Join(dir, optionsFile), ErrNoRun, err)
	}
	if len(a.Gate) > 0 {
		if run, err = CheckRun(dir, CheckOptions{Gate: a.Gate}); err != nil {
			return nil, err
		}
	}
	backend, err := backends.Find(run.Backend)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	sc, err := scenarios.Load(filepath.Join(dir, sourceFile))
	if err != nil {
		return nil, err
	}
	return &Recorded{sc, Options{
		Backend: backend, Resource: run.Resource, Nodes: a.Nodes, TTL: run.TTL, Seed: run.Seed, Repeat: 1,
		Client: a.Client, Bin: a.Bin, Gate: a.Gate, Known: run.Known, Network: a.Network,
		Runtime: run.Runtime, Versions: a.Versions, ClientImage: a.ClientImage, Servers: a.Servers,
	}, run}, nil
}

// Violated returns the properties that a run violates: those of gate, or all. Those
// that are known to be violated are among them.
func Violated(r *reports.Run, gate []string) []string {
	asked := len(gate) > 0
	if !asked {
		gate = scenarios.Properties()
	}
	var all []string
	for _, p := range gate {
		if r.Verdict(p) == checker.Violated && (asked || !slices.Contains(r.Excused, p)) {
			all = append(all, p)
		}
	}
	return all
}
