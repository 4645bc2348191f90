package matrix

import (
	"cmp"
	"slices"

	"github.com/lockcheck/lockcheck/scenarios"
)

// Column is one question about a lock, and the scenarios that answer it.
type Column struct {
	Name  string
	Title string
	plans []trialPlan
}

// trialPlan says which runs make a trial of a column.
type trialPlan struct {
	scenario string
	asks     []Question
	// only are the backends that it is run on, where those of the scenario's file
	// are fewer or more; nil is those of the file.
	only []string
	// instead has it run on another backend: the same lock on servers that have
	// what the scenario needs.
	instead map[string]string
	// bare is run with a resource that looks at nothing.
	bare bool
	// full is only run for a full table.
	full bool
}

// Names of columns.
const (
	control    = "control"
	fencing    = "fencing"
	timing     = "timing"
	crash      = "crash"
	partition  = "partition"
	failover   = "failover"
	throughput = "throughput"
)

// Locks that are asked the same: those of Redis with a lease, of PostgreSQL, and
// what stands in for a lock.
var (
	onRedis    = []string{"redis", "redis-aof-everysec", "redis-aof-always", "redis-replicated", "redis-sentinel", "redis-wait"}
	onEtcd     = []string{"etcd", "etcd-election", "etcd-lease"}
	onPostgres = []string{"postgres-session", "postgres-session-bigint", "postgres-session-hashtext", "postgres-xact"}
	tested     = slices.Concat(onRedis, onEtcd, onPostgres, []string{"redlock", "postgres-lease", "partitioned", "memory"})
)

// onStandby are the locks of PostgreSQL that can be run with a standby.
var onStandby = map[string]string{
	"postgres-session": "postgres-replicated-session",
	"postgres-xact":    "postgres-replicated-xact",
}

// Columns returns the columns of a table, in their order.
func Columns() []Column {
	return []Column{
		{control, "without a fault", []trialPlan{
			{scenario: "no-fault", asks: []Question{AnyViolation}, only: tested},
			{scenario: "a-no-fault", asks: []Question{AnyViolation}},
			{scenario: "contention", asks: []Question{AnyViolation}, only: slices.Concat(onRedis, onEtcd, onPostgres, []string{"redlock", "postgres-lease", "memory"}), full: true},
		}},
		{fencing, "fencing", []trialPlan{
			{scenario: "gc-pause", asks: []Question{LateWrite, Tokens}, only: slices.Concat(onRedis, onEtcd, onPostgres, []string{"redlock", "postgres-lease", "memory"})},
			{scenario: "late-write", asks: []Question{LateWrite}},
			{scenario: "e4-keepalive", asks: []Question{LateWrite}},
			{scenario: "p2-terminated", asks: []Question{LateWrite}},
			{scenario: "a1-pause", asks: []Question{LateWrite}},
			{scenario: "a2-pause", asks: []Question{LateWrite}},
			{scenario: "a3-pause", asks: []Question{LateWrite}},
			{scenario: "a4-rebalance", asks: []Question{LateWrite}},
		}},
		{timing, "timing assumption: what breaks it", []trialPlan{
			{scenario: "gc-pause", asks: []Question{TwoHolders}, only: slices.Concat(onRedis, onEtcd, onPostgres, []string{"redlock", "postgres-lease", "memory"}), bare: true},
			{scenario: "r7-clock", asks: []Question{GrantedEarly}, only: onRedis},
			{scenario: "k3-majority", asks: []Question{GrantedEarly}},
			{scenario: "e6-clock", asks: []Question{GrantedEarly}, only: onEtcd},
		}},
		{crash, "holder dies: freed after", []trialPlan{
			{scenario: "r1-crash", asks: []Question{FreedAfter}, only: slices.Concat(onRedis, onPostgres, []string{"redlock", "postgres-lease", "memory"})},
			{scenario: "e1-crash", asks: []Question{FreedAfter}, only: onEtcd},
			{scenario: "a-kill", asks: []Question{RegrantedAfter}},
			{scenario: "a3-kill", asks: []Question{NeverFreed}},
			{scenario: "a4-kill", asks: []Question{FreedAfter}},
		}},
		{partition, "partition", []trialPlan{
			{scenario: "r5-partition", asks: []Question{LateWrite, GrantedEarly, FreedAfter}},
			{scenario: "cut-holder", asks: []Question{TwoHolders, FreedAfter}, only: slices.Concat(onRedis, onEtcd, []string{"redlock"})},
			{scenario: "k6-partition", asks: []Question{GrantedEarly}},
			{scenario: "e5-minority", asks: []Question{GrantedEarly, FreedAfter}, only: onEtcd},
			{scenario: "p6-dead-client", asks: []Question{LateWrite, FreedAfter}},
			{scenario: "e4-keepalive", asks: []Question{LateWrite, FreedAfter}, only: []string{"postgres-xact", "postgres-lease"}},
			{scenario: "a1-retry", asks: []Question{LateWrite}},
			{scenario: "a2-partition", asks: []Question{LateWrite}},
			{scenario: "a3-partition", asks: []Question{LateWrite}},
			{scenario: "a4-partition", asks: []Question{LateWrite, FreedAfter}},
		}},
		{failover, "failover, restart", []trialPlan{
			{scenario: "r4-restart", asks: []Question{GrantedEarly, RegrantedAfter}},
			{scenario: "r3-failover", asks: []Question{GrantedEarly, RegrantedAfter}},
			{scenario: "r3-sentinel", asks: []Question{GrantedEarly, RegrantedAfter}},
			{scenario: "k5-restart", asks: []Question{GrantedEarly, RegrantedAfter}},
			{scenario: "e5-failover", asks: []Question{GrantedEarly}},
			{scenario: "e2-leader-changes", asks: []Question{Tokens}},
			{scenario: "p7-failover", asks: []Question{LateWrite, RegrantedAfter}, only: []string{"postgres-session", "postgres-xact"}, instead: onStandby},
			{scenario: "p7-restart", asks: []Question{LateWrite, RegrantedAfter}},
			{scenario: "a3-restart", asks: []Question{LateWrite}},
		}},
		{throughput, "sections a second, one client", []trialPlan{
			{scenario: "uncontended", asks: []Question{Rate}},
		}},
	}
}

// Subject is what a row is about.
type Subject struct {
	Name     string // of the row: the backend, or the user's client
	Backend  string
	Resource string // what protects the data as well as it can be with this lock
}

// NewRow returns a row without runs for a lock, with the trials that all has
// scenarios for.
func NewRow(s Subject, all []*scenarios.Scenario, mode string) *Row {
	r := &Row{Name: s.Name, Backend: s.Backend, Resource: s.Resource}
	for _, c := range Columns() {
		cell := Cell{Column: c.Name}
		for _, p := range c.plans {
			i := slices.IndexFunc(all, func(sc *scenarios.Scenario) bool { return sc.Name == p.scenario })
			if i < 0 || p.full && mode != Full || !p.meant(all[i], s.Backend) {
				continue
			}
			t := &Trial{Scenario: p.scenario, Backend: cmp.Or(p.instead[s.Backend], s.Backend), Resource: s.Resource, Asks: p.asks}
			if p.bare && s.Resource == "fenced" {
				t.Resource = "unfenced"
			}
			cell.Trials = append(cell.Trials, t)
		}
		r.Cells = append(r.Cells, cell)
	}
	return r
}

// Units returns the trials of the row, with those together that are made of the same
// runs.
func (r *Row) Units() [][]*Trial {
	var all [][]*Trial
	for _, c := range r.Cells {
		for _, t := range c.Trials {
			i := slices.IndexFunc(all, func(u []*Trial) bool { return t.same(u[0]) })
			if i < 0 {
				all = append(all, nil)
				i = len(all) - 1
			}
			all[i] = append(all[i], t)
		}
	}
	return all
}

func (t *Trial) same(o *Trial) bool {
	return t.Scenario == o.Scenario && t.Backend == o.Backend && t.Resource == o.Resource
}

func (p trialPlan) meant(sc *scenarios.Scenario, backend string) bool {
	if p.only != nil {
		return slices.Contains(p.only, backend)
	}
	return sc.Supports(backend)
}

// Scenarios returns the names of all scenarios that a table is filled from.
func Scenarios() []string {
	var all []string
	for _, c := range Columns() {
		for _, p := range c.plans {
			if !slices.Contains(all, p.scenario) {
				all = append(all, p.scenario)
			}
		}
	}
	return all
}
