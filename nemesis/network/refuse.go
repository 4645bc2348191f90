package network

import (
	"maps"

	"github.com/lockcheck/lockcheck/nemesis"
)

func init() {
	nemesis.Register(nemesis.Kind{
		Name:    "refuse",
		Summary: "reset the connections of nodes and refuse new ones, as a closed port does",
		Needs:   []string{nemesis.Links},
		Params: map[string]string{
			"peers": "the nodes that the targets are cut off from, such as n2,n3; all by default",
		},
		New: func(of map[string]string) (nemesis.Fault, error) {
			isolate := map[string]string{"mode": "refuse"}
			maps.Copy(isolate, of)
			return partition("refuse", isolate)
		},
	})
}
