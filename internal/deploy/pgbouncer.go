package deploy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// poolOf is the option of a pooler that names its database server.
const poolOf = "server"

// pgbouncer is a connection pooler in front of a Postgres server. Its other
// options are settings of PgBouncer, such as pool_mode.
func init() {
	Register(Software{
		Name: "pgbouncer",
		find: func(ctx context.Context, path string) (Binary, error) {
			path, err := locate(path, "pgbouncer", usual("pgbouncer")...)
			if err != nil {
				return Binary{}, err
			}
			v, err := version(ctx, path, "--version", regexp.MustCompile(`PgBouncer (\S+)`))
			return Binary{Path: path, Version: v}, err
		},
		needs: named(poolOf),
		programs: func(s site) ([]program, error) {
			owner, err := s.owner()
			if err != nil {
				return nil, err
			}
			var all []program
			for i, server := range s.servers {
				err := checkOptions(server, regexp.MustCompile(`^[a-z_]+$`),
					"listen_addr", "listen_port", "unix_socket_dir", "auth_type", "pidfile", "logfile", "user")
				if err != nil {
					return nil, err
				}
				if server.Options[poolOf] == "" {
					return nil, fmt.Errorf("server %s: a pooler needs the option %s", server.Name, poolOf)
				}
				database, err := s.reach(server.Name, server.Options[poolOf])
				if err != nil {
					return nil, err
				}
				behind, ok := database.program.(*postgres)
				if !ok {
					return nil, fmt.Errorf("server %s: %s is no Postgres server", server.Name, server.Options[poolOf])
				}
				port, err := s.port()
				if err != nil {
					return nil, err
				}
				// Like Postgres it refuses to be root.
				host, err := s.at(server.Name)
				if err != nil {
					return nil, err
				}
				as := &postgres{owner: owner, contained: s.contained, host: host}
				all = append(all, &pgbouncer{bin: s.bin, dir: s.dirs[i], options: server.Options, host: host, port: port, as: as, behind: behind, at: database.address})
			}
			return all, nil
		},
	})
}

type pgbouncer struct {
	bin     Binary
	dir     string
	options map[string]string
	host    string // it listens there, unless it is a container
	port    int
	as      *postgres
	behind  *postgres // the server
	at      string    // its address
}

func (b *pgbouncer) prepare(context.Context, bool) error {
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return err
	}
	server, err := pgconn.ParseConfig(b.behind.urlAt(b.at))
	if err != nil {
		return err
	}
	var conf strings.Builder
	fmt.Fprintf(&conf, "[databases]\n%s = host=%s port=%d dbname=%s user=%s password=%s\n\n[pgbouncer]\n",
		server.Database, server.Host, server.Port, server.Database, server.User, server.Password)
	fmt.Fprintf(&conf, "listen_addr = %s\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\n"+
		// What clients of Go and Java send, and PgBouncer would refuse.
		"ignore_startup_parameters = extra_float_digits\n", b.as.binding(), b.port)
	if b.as.contained == nil {
		// In a container there is always a process of the same id, so that it
		// would not start over the file of one that was killed.
		fmt.Fprintf(&conf, "pidfile = %s\n", b.pidFile())
	}
	for _, k := range sortedKeys(b.options) {
		if k != poolOf {
			fmt.Fprintf(&conf, "%s = %s\n", k, b.options[k])
		}
	}
	if err := os.WriteFile(b.conf(), []byte(conf.String()), 0o600); err != nil {
		return err
	}
	if b.as.owner == nil {
		return nil
	}
	for _, path := range []string{b.conf(), b.dir} {
		if err := os.Chown(path, int(b.as.owner.Uid), int(b.as.owner.Gid)); err != nil {
			return err
		}
	}
	return nil
}

func (b *pgbouncer) conf() string    { return filepath.Join(b.dir, "pgbouncer.ini") }
func (b *pgbouncer) pidFile() string { return filepath.Join(b.dir, "pgbouncer.pid") }

func (b *pgbouncer) command() (*exec.Cmd, error) {
	// It would not start over the file of one that was killed.
	if err := os.Remove(b.pidFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return b.as.cmd(b.bin.Path, b.conf()), nil
}

// ready reads the process id from the file that is written once the port is
// bound, and makes a connection, all the way to the server.
func (b *pgbouncer) ready(ctx context.Context, pid int) error {
	if pid != 0 {
		text, err := os.ReadFile(b.pidFile())
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(string(text)); got != strconv.Itoa(pid) {
			return fmt.Errorf("its pid file says %q, not %d", got, pid)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := pgconn.Connect(ctx, b.url())
	if err != nil {
		return err
	}
	return errors.Join(c.Exec(ctx, "SELECT 1").Close(), c.Close(ctx))
}

func (b *pgbouncer) ended() error { return nil }
func (b *pgbouncer) url() string {
	return b.behind.urlAt(net.JoinHostPort(b.host, strconv.Itoa(b.port)))
}
func (b *pgbouncer) listens() []int { return []int{b.port} }
