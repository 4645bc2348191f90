// Package mutants is lock clients that are broken on purpose, one flaw each,
// beside the correct client that each is made from. They show whether a suite
// of scenarios finds what it is there to find: `lockcheck mutants`.
//
// All of them run against real servers, as processes that speak the client
// protocol: `lockcheck mutant NAME`. The flaw of a mutant is where its strategy
// asks for it; nothing here knows of verdicts.
package mutants

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/internal/client"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// Mutant is a lock client with one flaw, or with none.
type Mutant struct {
	Name    string
	Kind    string   // of failure, "K9"; docs/mutants.md names them. "" for a correct client
	Flaw    string   // what is wrong with it, in one line
	Reports []string // public reports of locks that failed so
	Twin    string   // name of the correct client that it is made from; "" for a correct client

	// Property is the one whose violation shows the flaw, and Scenario a
	// scenario of the suite in which that comes.
	Property string
	Scenario string

	strategy strategy
}

// Backend is the name of the backend whose servers it needs.
func (m Mutant) Backend() string { return m.strategy.backend }

// strategy makes clients of one kind of lock, correct but for the flaw that is
// named.
type strategy struct {
	backend string // whose servers they need
	tokens  bool
	leased  bool
	open    func(ctx context.Context, c backends.Config, flaw string) (backends.Client, error)
}

// All returns the mutants, by kind and name.
func All() []Mutant {
	all := slices.Concat(redisMutants(), redlockMutants(), etcdMutants(), postgresMutants())
	slices.SortStableFunc(all, func(a, b Mutant) int {
		return cmp.Or(cmp.Compare(len(a.Kind), len(b.Kind)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Twins returns the correct clients.
func Twins() []Mutant {
	return []Mutant{
		{Name: "correct-redis", strategy: redisStrategy},
		{Name: "correct-redlock", strategy: redlockStrategy},
		{Name: "correct-etcd", strategy: etcdStrategy},
		{Name: "correct-postgres", strategy: postgresStrategy},
	}
}

// Find returns the mutant, or the correct client, of that name.
func Find(name string) (Mutant, error) {
	for _, m := range slices.Concat(All(), Published(), Twins(), []Mutant{{Name: driftSubtracted, strategy: redlockStrategy}}) {
		if m.Name == name {
			return m, nil
		}
	}
	return Mutant{}, fmt.Errorf("unknown mutant %q: `lockcheck mutants --list` names them", name)
}

// Command returns the command line of its client process.
func (m Mutant) Command() ([]string, error) { return selfexec.Command(role, m.Name) }

const role = "mutant"

func init() { selfexec.Register(role, serve) }

// serve is the client process.
func serve(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: lockcheck mutant NAME")
		return 2
	}
	m, err := Find(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lockcheck mutant:", err)
		return 2
	}
	flaw := m.Name
	if m.Twin == "" && m.Name != driftSubtracted {
		flaw = ""
	}
	b := backends.Backend{
		Name: m.Name, Leased: m.strategy.leased, Tokens: m.strategy.tokens,
		Open: func(ctx context.Context, c backends.Config) (backends.Client, error) {
			return m.strategy.open(ctx, c, flaw)
		},
	}
	if err := client.Serve(context.Background(), os.Stdin, os.Stdout, b); err != nil {
		fmt.Fprintf(os.Stderr, "lockcheck mutant %s: %v\n", m.Name, err)
		return 1
	}
	return 0
}
