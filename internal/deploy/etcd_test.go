package deploy

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func etcdClient(t *testing.T, url string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func etcdPut(t *testing.T) func(url string) error {
	return func(url string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := etcdClient(t, url).Put(ctx, "k", "v")
		return err
	}
}

func etcdGet(t *testing.T) func(url string) (bool, error) {
	return func(url string) (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r, err := etcdClient(t, url).Get(ctx, "k")
		return err == nil && r.Count == 1, err
	}
}

// etcdBinaries are the ways in which etcd can be run here.
func etcdBinaries(t *testing.T, test func(t *testing.T, bin map[string]string)) {
	t.Run("embedded", func(t *testing.T) { test(t, map[string]string{"etcd": embedded}) })
	t.Run("found", func(t *testing.T) {
		path, err := exec.LookPath("etcd")
		if err != nil {
			t.Skipf("needs etcd: %v", err)
		}
		test(t, map[string]string{"etcd": path})
	})
}

func TestEtcdAlone(t *testing.T) {
	etcdBinaries(t, func(t *testing.T, bin map[string]string) {
		l := newLocal(t, bin)
		n := start(t, l, etcds(1))[0]
		if inside := strings.HasSuffix(n.Version(), " (embedded)"); inside != (bin["etcd"] == embedded) {
			t.Errorf("Version = %s", n.Version())
		}
		lifecycle(t, l, n, etcdPut(t), etcdGet(t), true)
	})
}

func TestEtcdCluster(t *testing.T) {
	etcdBinaries(t, func(t *testing.T, bin map[string]string) {
		l := newLocal(t, bin)
		nodes := start(t, l, etcds(3))
		put, get := etcdPut(t), etcdGet(t)
		if err := put(nodes[0].Endpoint().URL); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if ok, err := get(n.Endpoint().URL); !ok || err != nil {
				t.Errorf("%s has the key: %v, %v", n.Name(), ok, err)
			}
		}
		for _, keep := range []bool{true, false} {
			if err := nodes[1].Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if ok, err := get(nodes[0].Endpoint().URL); !ok || err != nil {
				t.Errorf("with one member down: %v, %v", ok, err)
			}
			began := time.Now()
			if err := nodes[1].Restart(t.Context(), keep); err != nil {
				t.Fatal(err)
			}
			t.Logf("restarted, data kept %v, in %v", keep, time.Since(began).Round(time.Millisecond))
			if ok, err := get(nodes[1].Endpoint().URL); !ok || err != nil {
				t.Errorf("restarted, data kept %v: %v, %v", keep, ok, err)
			}
		}
		members, err := etcdClient(t, nodes[0].Endpoint().URL).MemberList(t.Context())
		if err != nil || len(members.Members) != 3 {
			t.Errorf("members: %v, %v", members, err)
		}
	})
}

func TestEtcdIsEmbeddedWhereNoneIsFound(t *testing.T) {
	for _, path := range usual("etcd") {
		if _, err := os.Stat(path); err == nil {
			t.Skipf("%s is found whatever PATH says", path)
		}
	}
	t.Setenv("PATH", t.TempDir())
	bin, err := Find(t.Context(), "etcd", "")
	if err != nil || bin.Path != embedded {
		t.Errorf("Find = %+v, %v", bin, err)
	}
}

// Ports are reused in time, so an address alone says little.
func TestEtcdOfAnotherClusterIsNotReady(t *testing.T) {
	l := newLocal(t, map[string]string{"etcd": embedded})
	n := start(t, l, etcds(1))[0]
	m := n.body.(*process).program.(*etcd)
	if err := m.ready(t.Context(), 0); err != nil {
		t.Errorf("ready = %v", err)
	}
	other := *m
	other.advertised = "http://" + address(other.peer+1)
	if err := other.ready(t.Context(), 0); err == nil {
		t.Error("a member at another address is ready")
	}
}
