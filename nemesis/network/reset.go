package network

import (
	"context"
	"fmt"
	"maps"

	"github.com/lockcheck/lockcheck/nemesis"
	"github.com/lockcheck/lockcheck/nemesis/network/proxy"
)

func init() {
	nemesis.Register(nemesis.Kind{
		Name:    "reset",
		Summary: "reset the open connections of nodes, once; new ones are welcome",
		Needs:   []string{nemesis.Links},
		Params: map[string]string{
			"peers": "only the connections with these nodes, such as n2,n3; with all by default",
		},
		New: func(of map[string]string) (nemesis.Fault, error) {
			isolate := map[string]string{"mode": "refuse"}
			maps.Copy(isolate, of)
			c, err := partition("reset", isolate)
			if err != nil {
				return nil, err
			}
			return &reset{choice: c}, nil
		},
	})
}

// reset ends connections. It is over at once.
type reset struct {
	choice *cut // only for its choice of links
	watch  *watch
}

// Inject resets, and shows that an open probe was, and that new ones get through.
func (r *reset) Inject(ctx context.Context, targets []nemesis.Target) (nemesis.Proof, error) {
	mesh, names, err := meshOf("reset", targets)
	if err != nil {
		return "", err
	}
	cuts, err := r.choice.choose(mesh, names)
	if err != nil {
		return "", err
	}
	if len(cuts) == 0 {
		return "", fmt.Errorf("reset: no link of %v is concerned", names)
	}
	var links []proxy.Link
	for _, c := range cuts {
		links = append(links, c.Link)
	}
	r.watch, err = newWatch(ctx, mesh, links, nil)
	defer r.watch.close()
	if err != nil {
		return "", fmt.Errorf("reset: %w", err)
	}
	ended := 0
	for _, l := range links {
		n, err := mesh.Reset(l)
		if err != nil {
			return "", err
		}
		ended += n
	}
	err = r.watch.each(ctx, func(ctx context.Context, l *watched) error {
		if l.old == nil {
			return nil
		}
		if err := l.old.Ended(ctx); !proxy.IsCut(err) {
			return fmt.Errorf("an open connection was not reset: %w", err)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("reset did not take effect: %w", err)
	}
	if _, err := r.watch.answers(ctx); err != nil {
		return "", fmt.Errorf("reset: the links do not work: %w", err)
	}
	return nemesis.Proof(fmt.Sprintf("reset: %d real connections on %d links: %s. Open probes were reset; new ones are answered",
		ended, len(links), r.watch.names())), nil
}

// Heal has nothing to undo, and shows that the links work.
func (r *reset) Heal(ctx context.Context) (nemesis.Proof, error) {
	if r.watch == nil {
		return "reset: nothing to heal", nil
	}
	troubled, err := r.watch.answers(ctx)
	if err != nil {
		return "", fmt.Errorf("reset: the links do not work: %w", err)
	}
	return nemesis.Proof(fmt.Sprintf("reset is over: new probes are answered on %d of %d links; %s",
		len(r.watch.links)-len(troubled), len(r.watch.links), r.watch.traffic())), nil
}
