package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/lockcheck/lockcheck/internal/deploy"
)

// leaderTimeout bounds a question for the leader. A server that is frozen does
// not answer.
const leaderTimeout = 500 * time.Millisecond

// leader returns the server that says that it leads. Servers that do not answer
// are passed over: what is asked is who leads those that are left.
func leader(ctx context.Context, nodes []*deploy.Node) (*deploy.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	errs := []error{errors.New("no server says that it leads")}
	for _, n := range nodes {
		if n.Name() == resourceServer {
			continue
		}
		ok, err := leads(ctx, n.Endpoint())
		if ok {
			return n, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// etcdLeads asks an etcd member, over its JSON gateway, whether it is the leader
// that it knows of.
func etcdLeads(ctx context.Context, at string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/v3/maintenance/status", strings.NewReader("{}"))
	if err != nil {
		return false, err
	}
	req.Close = true // a kept connection would be one to a server that may be killed
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	var status struct {
		Header struct {
			MemberID string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&status); err != nil {
		return false, fmt.Errorf("status of %s: %w", at, err)
	}
	return status.Leader != "" && status.Leader == status.Header.MemberID, nil
}
