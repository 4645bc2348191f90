package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockcheck/lockcheck/internal/harness"
	"github.com/lockcheck/lockcheck/reports"
	"github.com/lockcheck/lockcheck/scenarios"
)

func (a *app) verifyCommand() *cobra.Command {
	var f runFlags
	var how pace
	c := &cobra.Command{
		Use:   "verify NAME|FILE|SUITE...",
		Short: "Check that scenarios come out as their files expect, violations included",
		Long: `Run scenarios and compare each verdict with what the scenario's file expects of
that backend and resource. The exit status is 0 if all came out as expected.
Without --backend, every backend whose servers are found is used.`,
		Example: `  lockcheck verify gc-pause no-fault
  lockcheck verify gc-pause --backend etcd --resource fenced`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := newPlan("verify", f, args, true)
			if err == nil {
				err = p.setPace(how)
			}
			if err != nil {
				return err
			}
			out := a.output(p, asExpected)
			err = out.make(c.Context())
			return finally(out.assertion(statusNotReproduced), err)
		},
	}
	f.add(c)
	f.endpoints.add(c)
	how.add(c)
	return c
}

// asExpected compares a run with what its scenario expects.
func asExpected(sc *scenarios.Scenario, r *reports.Run) (bool, string) {
	if wrong := harness.Unexpected(sc, r); len(wrong) > 0 {
		return false, "not as expected: " + strings.Join(wrong, ", ")
	}
	return true, "as expected"
}
