package deploy

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// redis is a Redis server without persistence, unless its options, which are
// the directives of its configuration file, say otherwise. The option replicaof
// is the name of another server.
func init() {
	Register(Software{
		Name:  "redis",
		find:  findRedis,
		needs: named(replicaOf),
		programs: func(s site) ([]program, error) {
			var all []program
			for i, server := range s.servers {
				err := checkOptions(server, regexp.MustCompile(`^[a-z-]+$`), "bind", "port", "dir", "daemonize", "logfile", "requirepass")
				if err != nil {
					return nil, err
				}
				port, err := s.port()
				if err != nil {
					return nil, err
				}
				r := &redis{bin: s.bin, dir: s.dirs[i], options: server.Options, port: port, contained: s.contained != nil}
				if r.host, err = s.at(server.Name); err != nil {
					return nil, err
				}
				if name := server.Options[replicaOf]; name != "" {
					primary, err := s.reach(server.Name, name)
					if err != nil {
						return nil, err
					}
					r.primary = primary.address
				}
				all = append(all, r)
			}
			return all, nil
		},
	})
}

func findRedis(ctx context.Context, path string) (Binary, error) {
	path, err := locate(path, "redis-server", usual("redis-server")...)
	if err != nil {
		return Binary{}, err
	}
	v, err := version(ctx, path, "--version", regexp.MustCompile(`\bv=(\S+)`))
	return Binary{Path: path, Version: v}, err
}

type redis struct {
	bin       Binary
	dir       string
	options   map[string]string
	host      string // where clients reach it
	port      int
	primary   string // the address of the server that this one replicates, or ""
	synced    bool   // it has been a replica with all of the primary's data
	contained bool   // it is a container
}

func (r *redis) prepare(context.Context, bool) error {
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "%sport %d\ndir %q\nsave \"\"\nappendonly no\n", r.binding(), r.port, r.dir)
	if compareNumbers(r.bin.Version, "7") >= 0 {
		conf.WriteString("enable-debug-command local\n")
	}
	for _, k := range sortedKeys(r.options) {
		v := r.options[k]
		if k == replicaOf {
			continue
		}
		if v == "" {
			v = `""`
		}
		fmt.Fprintf(&conf, "%s %s\n", k, v)
	}
	conf.WriteString(r.replication())
	return os.WriteFile(r.conf(), []byte(conf.String()), 0o600)
}

// binding returns the lines of the configuration that say where it listens. A
// container is on networks of its own, with nobody to protect it from.
func (r *redis) binding() string {
	if r.contained {
		return "bind 0.0.0.0\nprotected-mode no\nreplica-announce-ip " + r.host + "\n"
	}
	return "bind 127.0.0.1\n"
}

func (r *redis) conf() string { return filepath.Join(r.dir, "redis.conf") }

func (r *redis) command() (*exec.Cmd, error) { return exec.Command(r.bin.Path, r.conf()), nil }

// ready asks for a PONG, which a server that still loads its data refuses, and
// for the process id.
func (r *redis) ready(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.address())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := fmt.Fprint(conn, "PING\r\nINFO server\r\n"); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	if !lines.Scan() {
		return fmt.Errorf("no answer to PING: %v", lines.Err())
	}
	if pong := lines.Text(); pong != "+PONG" {
		return fmt.Errorf("the answer to PING is %q", pong)
	}
	for lines.Scan() {
		if id, ok := strings.CutPrefix(lines.Text(), "process_id:"); ok {
			if pid != 0 && id != strconv.Itoa(pid) {
				return fmt.Errorf("the server on port %d is process %s, not %d", r.port, id, pid)
			}
			return r.linked(ctx)
		}
	}
	return fmt.Errorf("no process_id in the answer to INFO: %v", lines.Err())
}

func (r *redis) ended() error    { return nil }
func (r *redis) url() string     { return "redis://" + r.address() }
func (r *redis) address() string { return net.JoinHostPort(r.host, strconv.Itoa(r.port)) }
func (r *redis) listens() []int  { return []int{r.port} }
