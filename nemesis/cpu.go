package nemesis

import (
	"errors"
	"fmt"
	"strconv"
)

func init() {
	Register(Kind{
		Name:      "cpu",
		Summary:   "give processes next to no processor time",
		Available: cpuAvailable,
		Params: map[string]string{
			"share": "of one processor that is left to each target, from 0.001 to 0.5: 0.01 by default; with a crowd to all together, 0.05 at least and by default",
			"by":    "quota of a control group, or crowd of busy processes on the one processor that the targets then run on; the first that works here by default",
		},
		New: newCPU,
	})
}

const (
	byQuota = "quota"
	byCrowd = "crowd"

	leastShare = 0.001
	mostShare  = 0.5
	leastCrowd = 0.05 // one beside nineteen
)

// cpuAvailable tries the mechanisms. The scheduling class SCHED_IDLE is none of
// them: without CAP_SYS_NICE or RLIMIT_NICE a thread never comes back from it.
func cpuAvailable() error {
	quota := quotaAvailable()
	if quota == nil {
		return nil
	}
	if crowd := crowdAvailable(); crowd != nil {
		return errors.Join(fmt.Errorf("no quota: %w", quota), fmt.Errorf("no crowd: %w", crowd))
	}
	return nil
}

func newCPU(params map[string]string) (Fault, error) {
	by, given := params["by"]
	if !given {
		by = byQuota
		if quotaAvailable() != nil {
			by = byCrowd
		}
	}
	share := map[string]float64{byQuota: 0.01, byCrowd: leastCrowd}[by]
	if share == 0 {
		return nil, fmt.Errorf("cpu: by is %q, want %s, %s or nothing", by, byQuota, byCrowd)
	}
	if text, given := params["share"]; given {
		var err error
		if share, err = strconv.ParseFloat(text, 64); err != nil || !(share >= leastShare && share <= mostShare) {
			return nil, fmt.Errorf("cpu: share is %q, want a number from %v to %v", text, leastShare, mostShare)
		}
	}
	switch {
	case by == byQuota:
		return &quota{share: share}, nil
	case share < leastCrowd:
		return nil, fmt.Errorf("cpu: share is %v, but a crowd leaves no less than %v; less is for a quota, which needs control groups", share, leastCrowd)
	}
	return &crowd{share: share}, nil
}
