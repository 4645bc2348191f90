package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/lockcheck/lockcheck/backends"
)

// web is for writes to a resource on the loopback interface.
var web = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// write writes under the lock: by the client itself if lock and resource are in one
// database, else to the resource.
func (w *worker) write(ctx context.Context, token *int64) error {
	w.writes++
	value := w.name + "-" + strconv.Itoa(w.writes)
	if own, ok := w.client.(backends.Writer); ok && w.resource.DSN() != "" {
		err := own.Write(ctx, backends.Write{Key: w.key, Value: value, Process: w.name, Token: token})
		if errors.Is(err, backends.ErrPending) {
			return nil // the release commits it
		}
		return err
	}
	url := w.resource.WriteURL(w.name, w.key, value)
	if token != nil {
		url += "&token=" + strconv.FormatInt(*token, 10)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}
