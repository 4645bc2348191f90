package deploy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

// SentinelMaster is the name under which Sentinels know the primary that they
// watch.
const SentinelMaster = "lockcheck"

// Options of a Sentinel: monitor is the name of the primary, replicas has those
// of its replicas, separated by commas; the others are Sentinel's own.
const (
	monitorOption  = "monitor"
	replicasOption = "replicas"
)

// redis-sentinel is the Redis server as a Sentinel. Those that are started
// together know each other from the start, and agree by majority.
func init() {
	Register(Software{
		Name:    "redis-sentinel",
		cluster: true,
		find:    findRedis,
		binary:  "redis",
		needs: func(s backends.Server) []string {
			return append(named(monitorOption)(s), replicasOf(s)...)
		},
		programs: sentinelPrograms,
	})
}

func replicasOf(s backends.Server) []string {
	if s.Options[replicasOption] == "" {
		return nil
	}
	return strings.Split(s.Options[replicasOption], ",")
}

func sentinelPrograms(s site) ([]program, error) {
	var group []*sentinel
	for i, server := range s.servers {
		if err := checkOptions(server, regexp.MustCompile(`^(monitor|replicas|down-after-milliseconds|failover-timeout)$`)); err != nil {
			return nil, err
		}
		if server.Options[monitorOption] == "" || len(replicasOf(server)) == 0 {
			return nil, fmt.Errorf("server %s: a Sentinel needs the options %s and %s", server.Name, monitorOption, replicasOption)
		}
		port, err := s.port()
		if err != nil {
			return nil, err
		}
		x := &sentinel{bin: s.bin, dir: s.dirs[i], port: port, replicas: len(replicasOf(server)), timing: map[string]string{}, contained: s.contained != nil}
		if x.host, err = s.at(server.Name); err != nil {
			return nil, err
		}
		for k, v := range server.Options {
			if k != monitorOption && k != replicasOption {
				x.timing[k] = v
			}
		}
		id := make([]byte, 20)
		_, _ = rand.Read(id) // never fails
		x.id = hex.EncodeToString(id)
		p, err := s.reach(server.Name, server.Options[monitorOption])
		if err != nil {
			return nil, err
		}
		monitored, ok := p.program.(*redis)
		if !ok {
			return nil, fmt.Errorf("server %s: %s is no Redis server", server.Name, server.Options[monitorOption])
		}
		// Not as this one would reach it through a proxy of its own: Sentinels
		// mean a primary by its address when they agree that it is down.
		x.primary = monitored.address()
		group = append(group, x)
	}
	var all []program
	for _, x := range group {
		x.group = group
		all = append(all, x)
	}
	return all, nil
}

type sentinel struct {
	bin       Binary
	dir       string
	host      string // where clients reach it
	port      int
	contained bool
	id        string // 40 hexadecimal digits
	primary   string // address
	replicas  int
	timing    map[string]string
	group     []*sentinel // with this one
}

func (x *sentinel) prepare(context.Context, bool) error {
	if err := os.Mkdir(x.dir, 0o700); err != nil {
		return err
	}
	var conf strings.Builder
	host, port, err := net.SplitHostPort(x.primary)
	if err != nil {
		return err
	}
	fmt.Fprintf(&conf, "%sport %d\ndir %q\nsentinel myid %s\n", x.binding(), x.port, x.dir, x.id)
	fmt.Fprintf(&conf, "sentinel monitor %s %s %s %d\n", SentinelMaster, host, port, len(x.group)/2+1)
	for _, k := range sortedKeys(x.timing) {
		fmt.Fprintf(&conf, "sentinel %s %s %s\n", k, SentinelMaster, x.timing[k])
	}
	// Else it takes seconds until they have found each other.
	for _, other := range x.group {
		if other != x {
			fmt.Fprintf(&conf, "sentinel known-sentinel %s %s %d %s\n", SentinelMaster, other.host, other.port, other.id)
		}
	}
	return os.WriteFile(x.conf(), []byte(conf.String()), 0o600)
}

// binding returns the lines of the configuration that say where it listens.
func (x *sentinel) binding() string {
	if x.contained {
		return "bind 0.0.0.0\nprotected-mode no\n"
	}
	return "bind 127.0.0.1\n"
}

func (x *sentinel) conf() string { return filepath.Join(x.dir, "sentinel.conf") }

func (x *sentinel) command() (*exec.Cmd, error) {
	return exec.Command(x.bin.Path, x.conf(), "--sentinel"), nil
}

// ready asks for the process id, and whether the Sentinel sees the primary, its
// replicas and the other Sentinels.
func (x *sentinel) ready(ctx context.Context, pid int) error {
	return withRedis(ctx, x.address(), func(c *goredis.Client) error {
		process, err := info(ctx, c, "server", "process_id")
		if err != nil {
			return err
		}
		if pid != 0 && process != int64(pid) {
			return fmt.Errorf("the server on port %d is process %d, not %d", x.port, process, pid)
		}
		state := goredis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", SentinelMaster)
		if err := c.Process(ctx, state); err != nil {
			return err
		}
		replicas, others := state.Val()["num-slaves"], state.Val()["num-other-sentinels"]
		if replicas != strconv.Itoa(x.replicas) || others != strconv.Itoa(len(x.group)-1) {
			return fmt.Errorf("it sees %s replicas and %s other Sentinels, not %d and %d", replicas, others, x.replicas, len(x.group)-1)
		}
		return nil
	})
}

func (x *sentinel) ended() error    { return nil }
func (x *sentinel) url() string     { return "redis://" + x.address() }
func (x *sentinel) address() string { return net.JoinHostPort(x.host, strconv.Itoa(x.port)) }
func (x *sentinel) listens() []int  { return []int{x.port} }
