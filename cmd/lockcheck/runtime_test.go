package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/lockcheck/lockcheck/internal/deploy"
)

// needContainers skips a test where servers cannot be containers.
func needContainers(t *testing.T, software ...string) {
	t.Helper()
	if err := deploy.CheckContainers(t.Context(), nil, software...); err != nil {
		t.Skip(err)
	}
}

// clientImage is an image of lockcheck's own clients, as scripts/docker-images makes it.
func clientImage(t *testing.T) string {
	t.Helper()
	image := os.Getenv("LOCKCHECK_CLIENT_IMAGE")
	if image == "" {
		t.Skip("LOCKCHECK_CLIENT_IMAGE names no image of clients: see scripts/docker-images")
	}
	return image
}

// TestPausedClientContainer has the engine freeze a client in a container, by which two
// clients hold the lock.
func TestPausedClientContainer(t *testing.T) {
	needContainers(t, "redis")
	out := t.TempDir()
	cmd := lockcheck(t, "run", "gc-pause", "--runtime", "docker", "--backend", "redis",
		"--client-image", clientImage(t), "--ttl", "500ms", "--out", out)
	text, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != exitViolation {
		t.Fatalf("exit status is %d, want %d:\n%s", got, exitViolation, text)
	}
	history := only(t, filepath.Join(out, "*", "history.jsonl"))
	if !regexp.MustCompile(`"proof":"container lockcheck-[0-9a-f]+-client-A is paused: process \d+ is FROZEN"`).MatchString(history) {
		t.Errorf("there is no proof that the client's container was frozen:\n%s", history)
	}
	for _, want := range []string{`"runtime": "docker"`, `"image redis": "`} {
		if run := only(t, filepath.Join(out, "*", "run.json")); !strings.Contains(run, want) {
			t.Errorf("run.json does not say %s:\n%s", want, run)
		}
	}
	noneLeft(t, out)
}

// TestPartitionedContainers has a member in a container that is cut off from the others
// by the harness's proxies.
func TestPartitionedContainers(t *testing.T) {
	needContainers(t, "etcd")
	out := t.TempDir()
	cmd := lockcheck(t, "verify", "e5-minority", "--runtime", "docker", "--backend", "etcd", "--out", out)
	text, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != exitOK {
		t.Fatalf("exit status is %d, want %d:\n%s", got, exitOK, text)
	}
	noneLeft(t, out)
}

// TestContainerOffItsNetworks takes the server off its networks while clients contend, and
// has the kernel say that it was.
func TestContainerOffItsNetworks(t *testing.T) {
	needContainers(t, "redis")
	out := t.TempDir()
	scenario := filepath.Join(t.TempDir(), "off.yaml")
	if err := os.WriteFile(scenario, []byte(`name: off
summary: the server's container is off its networks for a while
why: to see that the fault has an effect
workload: {clients: 2, work: 0.2 ttl, think: 10ms, for: 4 ttl}
ttl: 500ms
nemesis:
  - {fault: disconnect, on: redis, with: {network: both}, at: 1 ttl, for: 1 ttl}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := lockcheck(t, "run", scenario, "--runtime", "docker", "--backend", "redis", "--out", out)
	text, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != exitOK && got != exitViolation {
		t.Fatalf("exit status is %d:\n%s", got, text)
	}
	history := only(t, filepath.Join(out, "*", "history.jsonl"))
	for _, want := range []string{
		`"proof":"container lockcheck-[0-9a-f]+-redis is off the network lockcheck-[0-9a-f]+_clients, [^"]*had the network interfaces \[lo eth\d eth\d\], and has \[lo\]"`,
		`"proof":"container lockcheck-[0-9a-f]+-redis is on its networks"`,
	} {
		if !regexp.MustCompile(want).MatchString(history) {
			t.Errorf("the history has no %s:\n%s", want, history)
		}
	}
	noneLeft(t, out)
}

// TestFaultsInContainers has every fault take effect, or be unavailable with a reason. It
// takes a while: make docker-test.
func TestFaultsInContainers(t *testing.T) {
	needAll(t)
	for _, backend := range []string{"redis", "etcd", "postgres-session"} {
		t.Run(backend, func(t *testing.T) {
			software, _, _ := strings.Cut(backend, "-")
			needContainers(t, software)
			cmd := lockcheck(t, "faults", "--verify", "--runtime", "docker", "--backend", backend, "--out", t.TempDir())
			text, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			for _, fault := range []string{"clock jump=10s", "disk fsync=slow50ms", "disconnect", "kill", "pause", "partition", "restart"} {
				effective := regexp.MustCompile(`(?m)^` + fault + ` +` + backend + ` +` + software + `\S* +effective `)
				if !effective.Match(text) {
					t.Errorf("no effective %s on a server:\n%s", fault, text)
				}
			}
		})
	}
}

// needAll skips tests that take long, unless all are asked for: see make docker-test.
func needAll(t *testing.T) {
	t.Helper()
	if os.Getenv("LOCKCHECK_DOCKER_TESTS") == "" {
		t.Skip("takes long: run by make docker-test")
	}
}

// TestKilledHarnessIsCleanedUpAfter kills the program while a client is frozen, and has
// nothing left after a cleanup: no container, network, volume, interface, or rule.
func TestKilledHarnessIsCleanedUpAfter(t *testing.T) {
	needContainers(t, "redis")
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprintf("clients in containers %v", inside), func(t *testing.T) {
			out := t.TempDir()
			args := []string{"run", "gc-pause", "--runtime", "docker", "--backend", "redis", "--ttl", "60s", "--out", out}
			if inside {
				args = append(args, "--client-image", clientImage(t))
			}
			cmd := lockcheck(t, args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			waitForFreeze(t, out)
			traces := tracesOf(t, out)
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			// Another run, or test, may remove it first.
			if text, err := lockcheck(t, "cleanup").CombinedOutput(); err != nil {
				t.Fatalf("cleanup: %v:\n%s", err, text)
			}
			noneLeft(t, out)
			await(t, "nothing of the run is left on this machine", func() (bool, string) {
				left := state(t)
				for _, name := range traces {
					if strings.Contains(left, name) {
						return false, name + " is left"
					}
				}
				return true, ""
			})
		})
	}
}

// tracesOf returns the names of what a run that goes on has on this machine: volumes, and
// the bridges of its networks, which rules of the packet filter name too. It checks
// that they are there.
func tracesOf(t *testing.T, out string) (names []string) {
	t.Helper()
	label := "label=org.lockcheck.run=" + projectIn(t, out)
	containers := strings.Fields(docker(t, "ps", "-aq", "--filter", label))
	names = strings.Fields(docker(t, append([]string{"inspect", "-f", "{{range .Mounts}}{{.Name}} {{end}}"}, containers...)...))
	for _, id := range strings.Fields(docker(t, "network", "ls", "-q", "--filter", label)) {
		names = append(names, "br-"+id)
	}
	if len(names) < 3 {
		t.Fatalf("the run has %v, want a volume and two bridges", names)
	}
	now := state(t)
	for _, name := range names {
		if !strings.Contains(now, name) {
			t.Fatalf("there is no %s in:\n%s", name, now)
		}
	}
	return names
}

// state is what an engine leaves traces in, as far as this user may see it.
func state(t *testing.T) string {
	t.Helper()
	all := docker(t, "volume", "ls", "-q")
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		all += l.Name + "\n"
	}
	if rules, err := exec.Command("iptables-save").Output(); err == nil {
		all += string(rules)
	}
	return all
}

// docker runs the docker command and returns its output.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	text, err := exec.Command("docker", args...).Output()
	if err != nil {
		t.Fatalf("docker %s: %v", strings.Join(args, " "), err)
	}
	return string(text)
}

// noneLeft checks that the engine has nothing of the run in out.
func noneLeft(t *testing.T, out string) {
	t.Helper()
	label := "label=org.lockcheck.run=" + projectIn(t, out)
	for _, list := range [][]string{{"ps", "-a"}, {"network", "ls"}, {"volume", "ls"}} {
		args := append(list, "-q", "--filter", label)
		if text := docker(t, args...); text != "" {
			t.Errorf("docker %s: there is left:\n%s", strings.Join(args, " "), text)
		}
	}
}

// projectIn returns the name of the run in out.
func projectIn(t *testing.T, out string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^name: (\S+)$`).FindStringSubmatch(only(t, filepath.Join(out, "*", "compose.yaml")))
	if m == nil {
		t.Fatal("compose.yaml does not name the run")
	}
	return m[1]
}

// only returns the text of the one file that matches.
func only(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s is %v, %v; want one file", pattern, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRuntimeThatIsNotThere has the messages and exit statuses of what is missing.
func TestRuntimeThatIsNotThere(t *testing.T) {
	none := "DOCKER_HOST=unix://" + filepath.Join(t.TempDir(), "none.sock")
	tests := []struct {
		name   string
		engine bool // there has to be one
		env    []string
		args   []string
		status int
		want   string
	}{
		{"no engine", false, []string{none}, nil, exitEnvironment, "no container engine answers"},
		{"no compose", true, []string{"DOCKER_CONFIG=" + t.TempDir(), "HOME=" + t.TempDir()}, nil, exitEnvironment, "has no compose"},
		{"no client", true, []string{"PATH=" + t.TempDir()}, nil, exitEnvironment, "no docker command"},
		{"no image", true, []string{"LOCKCHECK_REDIS_IMAGE=localhost:1/none"}, nil, exitEnvironment, "does not have the image localhost:1/none"},
		{"unknown runtime", false, nil, []string{"--runtime", "cloud"}, exitUsage, "there are local, docker"},
		{"a program", false, nil, []string{"--bin", "redis=/bin/true"}, exitUsage, "--bin is for --runtime local"},
		{"namespaces", false, nil, []string{"--network", "netns"}, exitUsage, "--network netns is for --runtime local"},
		{"a version of what is local", false, nil, []string{"--runtime", "local", "--redis-version", "7"}, exitUsage, "--redis-version is for --runtime docker"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.engine {
				needContainers(t)
			}
			args := append([]string{"run", "no-fault", "--runtime", "docker", "--backend", "redis", "--out", t.TempDir()}, tt.args...)
			cmd := lockcheck(t, args...)
			cmd.Env = append(os.Environ(), tt.env...)
			text, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.Contains(string(text), tt.want) {
				t.Errorf("exit status %d, want %d, and %q in:\n%s", got, tt.status, tt.want, text)
			}
		})
	}
}
