package deploy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func postgresConn(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(t.Context()) })
	return c
}

func TestPostgres(t *testing.T) {
	need(t, "postgres")
	l := newLocal(t, nil)
	began := time.Now()
	n := start(t, l, one("postgres", "max_connections", "17", "application_name", `it's \ quoted`))[0]
	t.Logf("the first with its initdb: %v", time.Since(began).Round(time.Millisecond))
	c := postgresConn(t, n.Endpoint().URL)
	for setting, want := range map[string]string{
		"max_connections": "17", "fsync": "off", "data_directory": n.body.(*process).dir, "listen_addresses": "127.0.0.1",
	} {
		var got string
		if err := c.QueryRow(t.Context(), "select current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", setting, got, err, want)
		}
	}
	if got := pids(t, n); len(got) < 3 {
		t.Errorf("PIDs = %v, want the server's children too", got)
	}
	c.Close(t.Context())

	lines, err := n.body.(*process).program.(*postgres).pidLines()
	if err != nil {
		t.Fatal(err)
	}
	segment := strings.Fields(lines[6])[1]
	if all := sharedMemory(t); len(all) > 0 && !slices.Contains(all, segment) {
		t.Fatalf("segment %s is not among %v", segment, all)
	}
	lifecycle(t, l, n, func(url string) error {
		_, err := postgresConn(t, url).Exec(t.Context(), "create table if not exists k ()")
		return err
	}, func(url string) (bool, error) {
		var ok bool
		err := postgresConn(t, url).QueryRow(t.Context(), "select to_regclass('k') is not null").Scan(&ok)
		return ok, err
	}, true)
	if slices.Contains(sharedMemory(t), segment) {
		t.Errorf("segment %s of shared memory was left behind", segment)
	}
}

func TestPostgresWantsThePassword(t *testing.T) {
	need(t, "postgres")
	l := newLocal(t, nil)
	n := start(t, l, one("postgres"))[0]
	p := n.body.(*process).program.(*postgres)
	if c, err := pgx.Connect(t.Context(), strings.Replace(n.Endpoint().URL, p.password, "guess", 1)); err == nil {
		c.Close(t.Context())
		t.Error("a wrong password was accepted")
	}
}

func TestPostgresTemplateIsMadeOnce(t *testing.T) {
	need(t, "postgres")
	cache := NewCache()
	t.Cleanup(func() {
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		l, err := NewLocal(Options{Dir: t.TempDir(), Cache: cache})
		if err != nil {
			t.Fatal(err)
		}
		start(t, l, one("postgres"))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(cache.templates) != 1 {
		t.Errorf("%d templates", len(cache.templates))
	}
}
