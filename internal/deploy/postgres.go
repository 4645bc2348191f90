package deploy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/lockcheck/lockcheck/internal/guard"
)

// postgres is a PostgreSQL server. Options are its settings. Without them it
// does not fsync: a process that is killed loses nothing by that.
func init() {
	Register(Software{Name: "postgres", find: findPostgres, programs: postgresPrograms})
}

func findPostgres(ctx context.Context, path string) (Binary, error) {
	found, err := locate(path, "postgres", append([]string{
		"/usr/lib/postgresql/*/bin/postgres", // Debian
		"/usr/pgsql-*/bin/postgres",          // PGDG's packages for Red Hat
		"/usr/local/pgsql/bin/postgres",
		"/opt/homebrew/opt/postgresql*/bin/postgres",
		"/usr/local/opt/postgresql*/bin/postgres",
		"/usr/libexec/postgresql*/postgres", // Alpine
		"/Applications/Postgres.app/Contents/Versions/*/bin/postgres",
	}, usual("postgres")...)...)
	if err != nil {
		return Binary{}, err
	}
	if _, err := exec.LookPath(initdb(found)); err != nil {
		return Binary{}, fmt.Errorf("next to %s: %w", found, err)
	}
	v, err := version(ctx, found, "--version", regexp.MustCompile(`\(PostgreSQL\) (\S+)`))
	return Binary{Path: found, Version: v}, err
}

func postgresPrograms(s site) ([]program, error) {
	owner, err := s.owner()
	if err != nil {
		return nil, err
	}
	var all []program
	for i, server := range s.servers {
		err := checkOptions(server, regexp.MustCompile(`^[a-z_.]+$`),
			"port", "listen_addresses", "unix_socket_directories", "data_directory", "logging_collector", "primary_conninfo")
		if err != nil {
			return nil, err
		}
		port, err := s.port()
		if err != nil {
			return nil, err
		}
		p := &postgres{
			bin: s.bin, dir: s.dirs[i], options: server.Options, port: port, owner: owner, cache: s.cache, name: server.Name,
			dial: s.dial, contained: s.contained,
		}
		if p.host, err = s.at(server.Name); err != nil {
			return nil, err
		}
		name, isStandby := server.Options[standbyOf]
		if isStandby != (server.Software == standbySoftware) {
			return nil, fmt.Errorf("server %s: the option %s is for a %s, and is missing or too much", server.Name, standbyOf, standbySoftware)
		}
		if isStandby {
			primary, err := s.reach(server.Name, name)
			if err != nil {
				return nil, err
			}
			p.primary = &primary
		}
		all = append(all, p)
	}
	return all, nil
}

func initdb(server string) string { return filepath.Join(filepath.Dir(server), "initdb") }

// superuser is the name of the one database user.
const superuser = "lockcheck"

type postgres struct {
	bin     Binary
	dir     string
	options map[string]string
	host    string // it listens there, unless it is a container
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	port    int
	owner   *syscall.Credential // nil is the present user
	cache   *Cache

	name      string
	primary   *peer // what this one is a standby of, nil if it is none
	streamed  bool  // it has been connected to it
	password  string
	contained *contained // nil for a process
}

// owner returns the user to run Postgres as; that of a container is its own matter.
func (s site) owner() (*syscall.Credential, error) {
	if s.contained != nil {
		return nil, nil
	}
	return postgresOwner()
}

// postgresOwner returns the user to run as, since Postgres refuses root.
func postgresOwner() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("as root there is nobody to run Postgres as: it refuses root, and there is no user postgres or nobody: add one, or do not run this as root")
}

func (p *postgres) cmd(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	if p.contained == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	if p.owner != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.owner}
	}
	return cmd
}

// template is an initialised cluster that never ran.
type template struct {
	root     string // the temporary folder
	data     string // in it
	password string // of the superuser
}

func (p *postgres) newTemplate(ctx context.Context) (_ *template, err error) {
	root, err := guard.TempDir()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, guard.RemoveDir(root))
		}
	}()
	t := &template{root: root, data: filepath.Join(root, "postgres"), password: rand.Text()}
	secret := filepath.Join(root, "password")
	if err := os.Chmod(root, 0o711); err != nil {
		return nil, err
	}
	if err := os.WriteFile(secret, []byte(t.password), 0o600); err != nil {
		return nil, err
	}
	if err := os.Mkdir(t.data, 0o700); err != nil {
		return nil, err
	}
	if p.owner != nil {
		for _, path := range []string{secret, t.data} {
			if err := os.Chown(path, int(p.owner.Uid), int(p.owner.Gid)); err != nil {
				return nil, err
			}
		}
	}
	cmd := p.cmd(initdb(p.bin.Path), "--pgdata", t.data, "--username", superuser, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync",
		"--wal-segsize", "1") // MB; the standard 16 are most of what is to be copied
	cmd.Dir = t.data
	if err := p.run(ctx, cmd, root); err != nil {
		as := ""
		if p.owner != nil {
			as = fmt.Sprintf(" as the user with id %d (who must get into %s; TMPDIR says where that is)", p.owner.Uid, filepath.Dir(root))
		}
		return nil, fmt.Errorf("%s%s: %w", cmd.Path, as, err)
	}
	return t, nil
}

func (p *postgres) prepare(ctx context.Context, _ bool) error {
	if p.primary != nil {
		return p.clone(ctx)
	}
	t, err := p.cache.template(p.templateOf(), func() (*template, error) { return p.newTemplate(ctx) })
	if err != nil {
		return err
	}
	p.password = t.password
	if err := p.copyTree(t.data, p.dir); err != nil {
		return fmt.Errorf("copy an initialised cluster: %w", err)
	}
	var conf strings.Builder
	conf.WriteString("fsync = off\n" +
		// Files in the data folder are removed with it, those in /dev/shm are not.
		"dynamic_shared_memory_type = mmap\n")
	for _, k := range sortedKeys(p.options) {
		if k == standbyOf {
			continue
		}
		fmt.Fprintf(&conf, "%s = '%s'\n", k, strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(p.options[k]))
	}
	if p.contained != nil {
		if err := appendTo(filepath.Join(p.dir, "pg_hba.conf"), "host all,replication all all scram-sha-256\n"); err != nil {
			return err
		}
	} else if p.host != "127.0.0.1" {
		// Its clients are on the same network, and not on the same machine.
		if err := appendTo(filepath.Join(p.dir, "pg_hba.conf"), "host all all samenet scram-sha-256\n"); err != nil {
			return err
		}
	}
	return appendTo(filepath.Join(p.dir, "postgresql.conf"), conf.String())
}

// templateOf is what a template is kept under.
func (p *postgres) templateOf() string {
	if p.contained != nil {
		return p.contained.image
	}
	return p.bin.Path
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// copyTree copies a folder of files and folders, which then belong to the
// owner.
func (p *postgres) copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if d.IsDir() {
			err = os.Mkdir(target, 0o700)
		} else {
			err = copyFile(path, target)
		}
		if err != nil || p.owner == nil {
			return err
		}
		return os.Lchown(target, int(p.owner.Uid), int(p.owner.Gid))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(in)
	return errors.Join(err, out.Close())
}

func (p *postgres) command() (*exec.Cmd, error) {
	// The path of a socket has at most 103 bytes on macOS, 107 on Linux.
	sockets := p.dir
	if len(sockets) > 80 {
		sockets = ""
	}
	// What a server that was killed left in it is not this one's.
	if err := os.Remove(p.pidFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return p.cmd(p.bin.Path, "-D", p.dir,
		"-c", "port="+strconv.Itoa(p.port),
		"-c", "listen_addresses="+p.binding(),
		"-c", "unix_socket_directories="+sockets), nil
}

func (p *postgres) binding() string {
	if p.contained != nil {
		return "*"
	}
	return p.host
}

// run runs one of its other programs, which fills a folder, to its end.
func (p *postgres) run(ctx context.Context, cmd *exec.Cmd, folder string) error {
	if p.contained != nil {
		return p.contained.run(ctx, cmd, folder)
	}
	_, err := output(ctx, cmd)
	return err
}

func (p *postgres) pidFile() string { return filepath.Join(p.dir, "postmaster.pid") }

// ready reads postmaster.pid, in which the server writes who and where it is
// and, once it takes connections, that it is ready. It has bound its port by
// then, so nobody else can be there.
func (p *postgres) ready(ctx context.Context, pid int) error {
	if p.contained != nil {
		return p.with(ctx, func(c *pgx.Conn) error { return errors.Join(c.Ping(ctx), p.streams(ctx)) })
	}
	lines, err := p.pidLines()
	if err != nil {
		return err
	}
	if lines[0] != strconv.Itoa(pid) || lines[3] != strconv.Itoa(p.port) {
		return fmt.Errorf("postmaster.pid is of process %s on port %s, not of %d on %d", lines[0], lines[3], pid, p.port)
	}
	if id, ok := segment(lines); ok {
		if err := guard.KeepSegment(id); err != nil {
			return err
		}
	}
	if status := strings.TrimSpace(lines[7]); status != "ready" {
		return fmt.Errorf("postmaster.pid says %q", status)
	}
	return p.streams(ctx)
}

// ended removes the shared memory by which Postgres tells whether processes of
// a dead server live on, which here they do not.
func (p *postgres) ended() error {
	lines, err := p.pidLines()
	if err != nil {
		return nil // it ended before it had any, or has cleared away itself
	}
	if id, ok := segment(lines); ok {
		return guard.RemoveSegment(id)
	}
	return nil
}

// pidLines returns the lines of postmaster.pid, eight at least; see
// LOCK_FILE_LINE_* in Postgres' src/include/utils/pidfile.h.
func (p *postgres) pidLines() ([]string, error) {
	b, err := os.ReadFile(p.pidFile())
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 8 {
		return nil, errors.New("postmaster.pid is incomplete")
	}
	return lines, nil
}

// segment returns the id of the shared memory segment: the second number of
// the seventh line.
func segment(lines []string) (int, bool) {
	var key, id int
	n, err := fmt.Sscan(lines[6], &key, &id)
	return id, n == 2 && err == nil
}

func (p *postgres) url() string { return p.urlAt(net.JoinHostPort(p.host, strconv.Itoa(p.port))) }

func (p *postgres) urlAt(address string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, p.password),
		Host:     address,
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (p *postgres) listens() []int { return []int{p.port} }
