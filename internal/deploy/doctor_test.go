package deploy

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctorSaysWhatToDo(t *testing.T) {
	checks := Doctor(t.Context())
	seen := map[string]Check{}
	for _, c := range checks {
		t.Logf("%+v", c)
		seen[c.Name] = c
		if !c.Found && (c.Problem == "" || c.Disables == "" || c.Install == "") {
			t.Errorf("%s is missing, and it is not said why, what for and what to do: %+v", c.Name, c)
		}
	}
	if c := seen["etcd"]; !c.Found || c.Version == "" {
		t.Errorf("etcd is always there: %+v", c)
	}
}

func TestDoctorWithNothingInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	w := wanted{name: "x", disables: "all", hint: "install x", find: wants()[0].find}
	if p, err := locate("", "redis-server", usual("redis-server")...); err == nil {
		t.Skipf("%s is found whatever PATH says", p)
	}
	if c := w.check(t.Context()); c.Found || c.Install != "install x" {
		t.Errorf("check = %+v", c)
	}
}

func TestDoctorSaysWhereNoEngineAnswers(t *testing.T) {
	none := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	t.Setenv("DOCKER_HOST", none)
	t.Setenv("PATH", t.TempDir())
	seen := map[string]Check{}
	for _, w := range wants() {
		if w.name == "container engine" || w.name == "docker compose" {
			seen[w.name] = w.check(t.Context())
		}
	}
	for name, want := range map[string]string{"container engine": none, "docker compose": "no docker command"} {
		c := seen[name]
		if c.Found || !strings.Contains(c.Problem, want) || c.Disables != "the docker runtime" || c.Install == "" {
			t.Errorf("%s: %+v, want %q in its problem, and what to do", name, c, want)
		}
	}
}

func TestCompareNumbers(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/15/bin", -1},
		{"/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/15/bin", 1},
		{"7.0.15", "7", 1},
		{"6.2", "7", -1},
		{"7", "7", 0},
	}
	for _, tt := range tests {
		if got := compareNumbers(tt.a, tt.b); got != tt.want {
			t.Errorf("compareNumbers(%s, %s) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
