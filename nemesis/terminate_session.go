package nemesis

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

func init() {
	Register(Kind{
		Name:    "terminate-session",
		Summary: "have a database server end the sessions of clients, as pg_terminate_backend does; name the server and the clients",
		New:     func(map[string]string) (Fault, error) { return terminateSession{}, nil },
	})
}

// Sessions is a server whose sessions bear the names of its clients.
type Sessions interface {
	Target
	// EndSessions ends the sessions of the named client and returns the
	// processes that served them, once they are gone.
	EndSessions(ctx context.Context, client string) (pids []int, err error)
}

// terminateSession ends the sessions that its targets which are clients have at
// those which are servers. It is over at once.
type terminateSession struct{}

// Inject implements Fault. Every client must have had a session.
func (terminateSession) Inject(ctx context.Context, targets []Target) (Proof, error) {
	var servers []Sessions
	var clients []Target
	for _, t := range targets {
		if s, ok := t.(Sessions); ok {
			servers = append(servers, s)
		} else {
			clients = append(clients, t)
		}
	}
	if len(servers) == 0 || len(clients) == 0 {
		return "", errors.New("terminate-session: name a database server and the clients whose sessions it is to end")
	}
	var proofs []string
	for _, c := range clients {
		n := 0
		for _, s := range servers {
			pids, err := s.EndSessions(ctx, c.Name())
			if err != nil {
				return "", fmt.Errorf("terminate-session: %w", err)
			}
			n += len(pids)
			for _, pid := range pids {
				proofs = append(proofs, fmt.Sprintf("gone from %s: process %d, that served %s", s.Name(), pid, c.Name()))
			}
		}
		if n == 0 {
			return "", fmt.Errorf("terminate-session: %s had no session", c.Name())
		}
	}
	return Proof(strings.Join(proofs, "; ")), nil
}

// Heal does nothing: clients connect again when they want to.
func (terminateSession) Heal(context.Context) (Proof, error) {
	return "clients may connect again", nil
}
