package deploy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbyOf is the option of a standby that names its primary.
const standbyOf = "primary"

const standbySoftware = "postgres-standby"

// A standby is a PostgreSQL server that is cloned from another and
// streams from it, asynchronously unless that one's options say otherwise.
func init() {
	Register(Software{
		Name:     standbySoftware,
		find:     findPostgres,
		binary:   "postgres",
		needs:    named(standbyOf),
		programs: postgresPrograms,
	})
}

// clone copies the primary's data while that runs.
func (p *postgres) clone(ctx context.Context) error {
	primary, ok := p.primary.program.(*postgres)
	if !ok {
		return errors.New("its primary is no Postgres server")
	}
	p.password = primary.password
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	if p.owner != nil {
		if err := os.Chown(p.dir, int(p.owner.Uid), int(p.owner.Gid)); err != nil {
			return err
		}
	}
	host, port, err := net.SplitHostPort(p.primary.address)
	if err != nil {
		return err
	}
	bin, err := p.besides("pg_basebackup")
	if err != nil {
		return err
	}
	cmd := p.cmd(bin,
		"--pgdata", p.dir, "--host", host, "--port", port, "--username", superuser, "--no-password",
		"--checkpoint", "fast", "--wal-method", "stream", "--no-sync", "--no-manifest", "--write-recovery-conf")
	cmd.Env = append(cmd.Env, "PGPASSWORD="+p.password, "PGAPPNAME="+p.name)
	cmd.Dir = p.dir
	if err := p.run(ctx, cmd, p.dir); err != nil {
		return fmt.Errorf("clone it from its primary: %w", err)
	}
	// What says that the primary uses its socket is cloned too. In a container of its own
	// the clone would listen at one of the same name, and another process may have the
	// number that the primary has in its container.
	locks, err := filepath.Glob(filepath.Join(p.dir, ".s.PGSQL.*.lock"))
	if err != nil {
		return err
	}
	for _, lock := range locks {
		if err := os.Remove(lock); err != nil {
			return err
		}
	}
	// A killed primary is noticed at once, and its return soon.
	return appendTo(filepath.Join(p.dir, "postgresql.auto.conf"), "wal_retrieve_retry_interval = '100ms'\n")
}

// besides returns a program that comes with the server: next to it, or next to
// what it is a link to.
func (p *postgres) besides(name string) (string, error) {
	if p.contained != nil {
		return name, nil // on the image's PATH
	}
	found, err := exec.LookPath(filepath.Join(filepath.Dir(p.bin.Path), name))
	if err == nil {
		return found, nil
	}
	real, linkErr := filepath.EvalSymlinks(p.bin.Path)
	if linkErr != nil {
		return "", linkErr
	}
	if found, realErr := exec.LookPath(filepath.Join(filepath.Dir(real), name)); realErr == nil {
		return found, nil
	}
	return "", fmt.Errorf("next to %s: %w", p.bin.Path, err)
}

// streams returns an error as long as a standby is not connected to its
// primary for the first time.
func (p *postgres) streams(ctx context.Context) error {
	if p.primary == nil || p.streamed {
		return nil
	}
	return p.with(ctx, func(c *pgx.Conn) error {
		var n int
		err := c.QueryRow(ctx, `SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'`).Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("it does not stream from its primary yet")
		}
		p.streamed = err == nil
		return err
	})
}

func (p *postgres) connect(ctx context.Context) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(p.url())
	if err != nil {
		return nil, err
	}
	if p.dial != nil {
		c.DialFunc = p.dial
	}
	return pgx.ConnectConfig(ctx, c)
}

// with runs f on a connection to the server.
func (p *postgres) with(ctx context.Context, f func(*pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(ctx))
}

func (p *postgres) role(ctx context.Context) (role string, err error) {
	err = p.with(ctx, func(c *pgx.Conn) error {
		var standby bool
		if err := c.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby); err != nil {
			return err
		}
		role = Primary
		if standby {
			role = Replica
		}
		return nil
	})
	return role, err
}

// promoteLimit is how long Postgres may take to become a primary, in seconds.
const promoteLimit = 20

func (p *postgres) promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, (promoteLimit+5)*time.Second)
	defer cancel()
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var standby, done bool
	if err := c.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby); err != nil {
		return err
	}
	if standby {
		if err := c.QueryRow(ctx, `SELECT pg_promote(true, $1)`, promoteLimit).Scan(&done); err != nil {
			return err
		}
		if !done {
			return fmt.Errorf("it is still in recovery after %d s", promoteLimit)
		}
	}
	p.primary = nil
	return nil
}

func (p *postgres) follow(to peer) error {
	p.primary, p.streamed = &to, false
	return os.RemoveAll(p.dir) // its history may have parted from the primary's
}

// EndSessions ends the sessions of an application, as pg_terminate_backend
// does, and returns the processes that served them once they are gone.
func (n *Node) EndSessions(ctx context.Context, application string) ([]int, error) {
	p, ok := n.program().(*postgres)
	if !ok {
		return nil, fmt.Errorf("%s is %s, not postgres", n.Name(), n.Software())
	}
	var pids []int
	err := p.with(ctx, func(c *pgx.Conn) error {
		rows, err := c.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE application_name = $1`, application)
		if err != nil {
			return err
		}
		if pids, err = pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM unnest($1::int[]) AS pid`, pids); err != nil {
			return err
		}
		for {
			var left int
			err := c.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1)`, pids).Scan(&left)
			if err != nil || left == 0 {
				return err
			}
			select {
			case <-time.After(poll):
			case <-ctx.Done():
				return fmt.Errorf("%d of the processes %v are still there: %w", left, pids, context.Cause(ctx))
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("end the sessions of %s at %s: %w", strconv.Quote(application), n.Name(), err)
	}
	return pids, nil
}
