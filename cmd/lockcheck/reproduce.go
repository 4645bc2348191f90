package main

import (
	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/checker"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

func (a *app) reproduceCommand() *cobra.Command {
	var f runFlags
	var how pace
	c := &cobra.Command{
		Use:   "reproduce NAME|FILE",
		Short: "Reproduce the violation that a scenario is about",
		Long: `Run a scenario and assert the violation that it names. The exit status is 0 if the
violation came in every run, and 1 if it did not.`,
		Example: `  lockcheck reproduce gc-pause
  lockcheck reproduce gc-pause --backend redis --ttl 200ms --repeat 50
  lockcheck reproduce gc-pause --backend etcd --resource fenced`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := newPlan("reproduce", f, args, false)
			if err == nil {
				err = p.setPace(how)
			}
			if err != nil {
				return err
			}
			for _, u := range p.units {
				if u.scenario.Violates == "" {
					return usagef("%s names no violation to reproduce (it is a control): use `lockcheck run %s`", u.scenario.Name, reference(u.scenario))
				}
			}
			out := a.output(p, reproduced)
			err = out.make(c.Context())
			return finally(out.assertion(statusNotReproduced), err)
		},
	}
	f.add(c)
	f.endpoints.add(c)
	how.add(c)
	return c
}

// reproduced reports whether a run shows the violation that its scenario names.
func reproduced(sc *scenarios.Scenario, r *reports.Run) (bool, string) {
	if r.Verdict(sc.Violates) == checker.Violated {
		return true, "reproduced"
	}
	return false, "not reproduced"
}

// statusNotReproduced is the exit status for a run that does not show what it
// was to show: why it does not decides.
func statusNotReproduced(r *reports.Run) int {
	switch r.Status {
	case reports.Error:
		return exitEnvironment
	case reports.Inconclusive:
		return exitInconclusive
	}
	return exitViolation
}
