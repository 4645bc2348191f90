package deploy

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// etcdStatus is what a member says of itself. Members are numbers in decimal.
type etcdStatus struct {
	Header struct {
		MemberID string `json:"member_id"`
	} `json:"header"`
	Leader string `json:"leader"` // "" or "0" while there is none
}

func (m *etcd) status(ctx context.Context) (etcdStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var s etcdStatus
	err := call(ctx, http.MethodPost, m.url()+"/v3/maintenance/status", struct{}{}, &s)
	return s, err
}

func (m *etcd) role(ctx context.Context) (string, error) {
	s, err := m.status(ctx)
	switch {
	case err != nil:
		return "", err
	case s.Leader == "" || s.Leader == "0":
		return Electing, nil
	case s.Leader == s.Header.MemberID:
		return Primary, nil
	default:
		return Replica, nil
	}
}

// promote has the leader hand over to this member.
func (m *etcd) promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rejoinLimit)
	defer cancel()
	for {
		s, err := m.status(ctx)
		if err == nil && s.Leader == s.Header.MemberID {
			return nil
		}
		if err == nil {
			err = m.askLeader(ctx, s)
		}
		if err == nil {
			continue // it has handed over: look again
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("it is not the leader: %w", err)
		}
	}
}

// askLeader asks the leader to make the member that said s its successor.
func (m *etcd) askLeader(ctx context.Context, s etcdStatus) error {
	for _, other := range m.cluster.members {
		if other == m {
			continue
		}
		o, err := other.status(ctx)
		if err != nil || o.Header.MemberID != s.Leader {
			continue
		}
		req := map[string]string{"targetID": s.Header.MemberID}
		return call(ctx, http.MethodPost, other.url()+"/v3/maintenance/transfer-leadership", req, nil)
	}
	return fmt.Errorf("the leader, member %q, is not among those that answer", s.Leader)
}

func (m *etcd) follow(peer) error { return nil } // it asks the others
