package redis

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/lockcheck/lockcheck/backends"
)

var setCalls = regexp.MustCompile(`(?m)^cmdstat_set:calls=(\d+),`)

// Counts asks the server how often it has executed SET, which a client of the lock
// sends for each try. What it refused counts too: it was executed.
func (o observer) Counts(ctx context.Context) (backends.Counts, error) {
	info, err := o.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		return backends.Counts{}, fmt.Errorf("INFO commandstats: %w", err)
	}
	n, err := sets(info)
	return backends.Counts{Tries: n}, err
}

// sets finds the number of SET commands, 0 if there were none so far.
func sets(info string) (int64, error) {
	m := setCalls.FindStringSubmatch(info)
	if m == nil {
		return 0, nil
	}
	return strconv.ParseInt(m[1], 10, 64)
}
