package starve

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/internal/guard"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

func TestMain(m *testing.M) {
	selfexec.Main()
	os.Exit(m.Run())
}

// machine is a root folder with the files that find reads: of process 7, and
// of the control groups below ROOT.
func machine(t *testing.T, cgroup, mountinfo string, controllers map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "ROOT", root)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/7/cgroup", cgroup)
	write("proc/self/mountinfo", mountinfo)
	for group, has := range controllers {
		write(filepath.Join(group, "cgroup.subtree_control"), has)
	}
	return root
}

func TestFind(t *testing.T) {
	const (
		v1 = "30 20 0:25 / ROOT/cg/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct\n" +
			"31 20 0:26 / ROOT/cg/memory rw,nosuid - cgroup cgroup rw,memory\n"
		v2        = "32 20 0:27 / ROOT/cg rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid    = "33 20 0:27 / ROOT/cg/unified rw - cgroup2 cgroup2 rw\n"
		container = "34 20 0:26 /docker/c1 ROOT/cg/memory ro - cgroup cgroup rw,memory\n"
		spaces    = `35 20 0:27 / ROOT/c\040g rw - cgroup2 cgroup2 rw` + "\n"
	)
	systemd := map[string]string{
		"cg":                              "cpuset cpu io memory pids\n",
		"cg/user.slice":                   "memory pids\n",
		"cg/user.slice/app.slice":         "memory pids\n",
		"cg/user.slice/app.slice/s.scope": "\n",
	}
	for _, tt := range []struct {
		name, cgroup, mounts string
		controllers          map[string]string
		controller           string
		home, parent         string // below ROOT
		v2                   bool
		want                 string // in the error
	}{
		{name: "version 1", cgroup: "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/\n", mounts: v1 + hybrid,
			controller: "memory", home: "cg/memory/a/b", parent: "cg/memory/a/b"},
		{name: "version 1, two controllers in one", cgroup: "4:memory:/a/b\n1:cpu,cpuacct:/\n", mounts: v1,
			controller: "cpu", home: "cg/cpu,cpuacct", parent: "cg/cpu,cpuacct"},
		{name: "version 1 in a container", cgroup: "4:memory:/docker/c1\n", mounts: container,
			controller: "memory", home: "cg/memory", parent: "cg/memory"},
		{name: "version 1 out of sight", cgroup: "4:memory:/docker/c2\n", mounts: container,
			controller: "memory", want: "no control groups with the memory controller can be seen here"},
		{name: "version 2, a sibling", cgroup: "0::/user.slice/app.slice/s.scope\n", mounts: v2, controllers: systemd,
			controller: "memory", home: "cg/user.slice/app.slice/s.scope", parent: "cg/user.slice/app.slice", v2: true},
		{name: "version 2, as near as there is the controller", cgroup: "0::/user.slice/app.slice/s.scope\n", mounts: v2, controllers: systemd,
			controller: "cpu", home: "cg/user.slice/app.slice/s.scope", parent: "cg", v2: true},
		{name: "version 2, the root", cgroup: "0::/\n", mounts: v2, controllers: systemd,
			controller: "cpu", home: "cg", parent: "cg", v2: true},
		{name: "version 2 without the controller", cgroup: "0::/\n", mounts: v2, controllers: map[string]string{"cg": "\n"},
			controller: "cpu", want: "no control group above / gives the cpu controller to those in it; as root: echo +cpu > "},
		{name: "version 2, a controller of a similar name", cgroup: "0::/\n", mounts: v2, controllers: map[string]string{"cg": "cpuset\n"},
			controller: "cpu", want: "gives the cpu controller"},
		{name: "version 2 out of sight", cgroup: "0::/../other\n", mounts: v2, controllers: systemd,
			controller: "cpu", want: "can be seen here"},
		{name: "version 2, gone", cgroup: "0::/gone/group\n", mounts: v2, controllers: systemd,
			controller: "cpu", want: "processes of /gone/group can be moved to"},
		{name: "spaces", cgroup: "0::/\n", mounts: spaces, controllers: map[string]string{"c g": "cpu"},
			controller: "cpu", home: "c g", parent: "c g", v2: true},
		{name: "none", cgroup: "\n", mounts: "\n", controller: "cpu", want: "no control groups with the cpu controller"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := machine(t, tt.cgroup, tt.mounts, tt.controllers)
			got, err := find(filepath.Join(root, "proc"), tt.controller, 7)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%+v, %v; want %q", got, err, tt.want)
				}
				return
			}
			want := place{v2: tt.v2, home: filepath.Join(root, tt.home), parent: filepath.Join(root, tt.parent)}
			if err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
	if _, err := find(filepath.Join(machine(t, "", "", nil), "proc"), "cpu", 8); !Gone(err) {
		t.Errorf("of a process that is gone: %v", err)
	}
}

func TestSettingsAndCounters(t *testing.T) {
	g := &Group{V2: true, dir: t.TempDir()}
	if err := g.Set("memory.high", "8000000"); err != nil {
		t.Fatal(err)
	}
	if is, err := g.Get("memory.high"); is != "8000000" || err != nil {
		t.Errorf("%q, %v", is, err)
	}
	if err := g.Set("memory.events", "low 0\nhigh 12\nmax 3\n"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file, key string
		want      int64
	}{{"memory.high", "", 8000000}, {"memory.events", "high", 12}, {"memory.events", "max", 3}} {
		if n, err := g.Count(tt.file, tt.key); n != tt.want || err != nil {
			t.Errorf("%s %s: %d, %v", tt.file, tt.key, n, err)
		}
	}
	for _, tt := range [][2]string{{"memory.events", "hig"}, {"memory.events", ""}, {"memory.high", "high"}, {"none", ""}} {
		if n, err := g.Count(tt[0], tt[1]); err == nil {
			t.Errorf("%s %q is %d", tt[0], tt[1], n)
		}
	}
}

// A group with each controller that can be had here, of either version.
func TestGroup(t *testing.T) {
	tried := 0
	for _, controller := range []string{"cpu", "memory", "pids", "hugetlb"} {
		sleep := exec.Command("sleep", "1000")
		if err := guard.Start(sleep); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := end(t.Context(), sleep); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		})
		pid := sleep.Process.Pid
		g, err := NewGroup(controller, pid)
		if err != nil {
			t.Logf("%s: %v", controller, err)
			continue
		}
		tried++
		t.Logf("%s: version 2: %v", controller, g.V2)
		if err := g.Add(pid, 1<<22+1); err != nil { // the latter cannot be
			t.Error(err)
		}
		if in, err := g.Members(); err != nil || !slices.Equal(in, []int{pid}) {
			t.Errorf("%s: %v are in the group, want %d: %v", controller, in, pid, err)
		}
		if home, err := g.IsHome(controller, pid); home || err != nil {
			t.Errorf("%s: home: %v, %v", controller, home, err)
		}
		if _, err := NewGroup(controller, pid); err == nil || !strings.Contains(err.Error(), "already, that of another fault") {
			t.Errorf("%s: a group for what is in another: %v", controller, err)
		}
		for range 2 {
			if err := g.Remove(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if home, err := g.IsHome(controller, pid); !home || err != nil {
			t.Errorf("%s: home after removal: %v, %v", controller, home, err)
		}
		if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", g.dir, err)
		}
	}
	if tried == 0 {
		t.Skip("no control group can be made here")
	}
}

func TestBurners(t *testing.T) {
	if err := CanPin(); err != nil {
		t.Skip(err)
	}
	cpus, err := Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := StartBurners(t.Context(), 2, cpus[0])
	defer func() {
		for range 2 {
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for _, pid := range b.PIDs() {
			if tids, err := Threads(pid); len(tids) > 0 || err != nil {
				t.Errorf("burner %d is still there: %v", pid, err)
			}
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		used, err := b.Used()
		if err != nil {
			t.Fatal(err)
		}
		if used > 100*time.Millisecond {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("they have used %v only", used)
		}
	}
	none, err := StartBurners(t.Context(), 1, 1023)
	if err == nil {
		t.Error("a burner on a processor that is not there")
	}
	if err := none.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
