package etcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/lockcheck/lockcheck/backends"
)

// eventsMetric is how many events a member has sent to those who watch.
const eventsMetric = "etcd_debugging_mvcc_events_total"

// Counts reads the metrics of all members at once, and fails if one of them does not
// answer.
func (o observer) Counts(ctx context.Context) (backends.Counts, error) {
	urls := o.cli.Endpoints()
	events, errs := make([]int64, len(urls)), make([]error, len(urls))
	var wg sync.WaitGroup
	for i, url := range urls {
		wg.Go(func() {
			var err error
			if events[i], err = metric(ctx, url, eventsMetric); err != nil {
				errs[i] = fmt.Errorf("metrics of %s: %w", url, err)
			}
		})
	}
	wg.Wait()
	var all backends.Counts
	for _, n := range events {
		all.Events += n
	}
	return all, errors.Join(errs...)
}

// metric reads a counter without labels of the member at url.
func metric(ctx context.Context, url, name string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, errors.New(resp.Status)
	}
	return find(resp.Body, name)
}

// find finds a counter in the text form of metrics.
func find(r io.Reader, name string) (int64, error) {
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return 0, err
			}
			return 0, fmt.Errorf("there is no %s", name)
		}
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			f, err := strconv.ParseFloat(value, 64) // large ones have an exponent
			return int64(f), err
		}
	}
}
