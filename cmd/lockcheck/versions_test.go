package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/internal/deploy"
)

func TestParseVersions(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		want  string // part of the error, "" for none
	}{
		{nil, ""},
		{[]string{"etcd=3.4.23,3.6.16", "redis=7"}, ""},
		{[]string{"etcd"}, "want a software"},
		{[]string{"mysql=8"}, "want a software"},
		{[]string{"etcd="}, "want a software"},
		{[]string{"etcd=1,,2"}, "is empty"},
		{[]string{"etcd=1,2", "etcd=2"}, "twice"},
	} {
		got, err := parseVersions(tt.flags)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("parseVersions(%q) = %v, %v; want %q", tt.flags, got, err, tt.want)
		}
	}
}

func TestVersionsOfProgramsHere(t *testing.T) {
	f := runFlags{backends: []string{"etcd", "redis"}, repeat: 1, out: t.TempDir(), runtime: runtimeFlags{name: "local"}}
	embedded, err := deploy.Find(t.Context(), "etcd", "embedded")
	if err != nil {
		t.Fatal(err)
	}
	number, _, _ := strings.Cut(embedded.Version, " ")
	f.runtime.matrix = []string{"etcd=" + number + ",embedded"}
	p, err := newPlan("run", f, []string{"no-fault"}, false)
	if err != nil {
		t.Skip(err) // no Redis here
	}
	if len(p.units) != 2 {
		t.Fatalf("%d units, want one for each version of etcd and none for Redis", len(p.units))
	}
	for _, u := range p.units {
		if u.backend.Name != "etcd" || !maps.Equal(u.bin, map[string]string{"etcd": "embedded"}) {
			t.Errorf("unit of %s with %v, want the embedded etcd", u.backend.Name, u.bin)
		}
		if replay := p.replay(u, 0); !strings.Contains(replay, "--bin etcd=embedded") {
			t.Errorf("replay %q does not say which etcd", replay)
		}
	}
	f.runtime.matrix = []string{"etcd=0.0.1"}
	if _, err := newPlan("run", f, []string{"no-fault"}, false); err == nil || exitStatus(err) != exitEnvironment || !strings.Contains(err.Error(), "no etcd 0.0.1 here") {
		t.Errorf("with a version that is not here: %v", err)
	}
}
