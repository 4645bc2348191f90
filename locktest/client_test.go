package locktest

import (
	"strings"
	"testing"

	"github.com/lockcheck/lockcheck/backends"
)

func TestClientsGetTheUsersArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-test.paniconexit0 -test.timeout=10m0s -test.v=true", ""},
		{"-test.run TestX -test.v -dsn postgres://a -n=3 rest", "-dsn postgres://a -n=3 rest"},
		{"--test.run=TestX --dsn=x", "--dsn=x"},
		{"-test.short=true -test.count 2", "-test.short=true"},
		{"-test.run", ""},
	} {
		if got := strings.Join(ownArgs(strings.Fields(c.args)), " "); got != c.want {
			t.Errorf("of %q: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestOnly(t *testing.T) {
	if got, want := only("TestX/a_b/c[1]"), `^TestX$/^a_b$/^c\[1\]$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestALockCanDoWhatItsMethodsSay(t *testing.T) {
	type renews struct{ Renewer }
	type checks struct{ Checker }
	type notifies struct{ Notifier }
	type lock struct{ Lock }
	for want, l := range map[string]Lock{
		"": lock{},
		"renew": struct {
			lock
			renews
		}{},
		"check": struct {
			lock
			checks
		}{},
		"lost": struct {
			lock
			notifies
		}{},
		"renew check": struct {
			lock
			renews
			checks
		}{},
		"renew lost": struct {
			lock
			renews
			notifies
		}{},
		"check lost": struct {
			lock
			checks
			notifies
		}{},
		"renew check lost": struct {
			lock
			renews
			checks
			notifies
		}{},
	} {
		if got := strings.Join(powers(adapt(l, 0)), " "); got != want {
			t.Errorf("it can %q, want %q", got, want)
		}
	}
}

// powers are what the client protocol sees of a lock.
func powers(c backends.Client) []string {
	var all []string
	if _, ok := c.(backends.Renewer); ok {
		all = append(all, "renew")
	}
	if _, ok := c.(backends.Checker); ok {
		all = append(all, "check")
	}
	if _, ok := c.(backends.Notifier); ok {
		all = append(all, "lost")
	}
	return all
}
