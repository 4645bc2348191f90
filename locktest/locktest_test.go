package locktest_test

import (
	"testing"
	"time"

	"github.com/lockcheck/lockcheck/locktest"
)

func TestALockOnRedis(t *testing.T) {
	t.Parallel()
	locktest.Run(t, locktest.Config{
		Lock:      newRedisLock,
		Servers:   locktest.Redis,
		Scenarios: []string{"no-fault", "frozen-holder", "slow-grant"},
	})
}

func TestALockOnEtcd(t *testing.T) {
	t.Parallel()
	locktest.Run(t, locktest.Config{
		Lock:      newEtcdLock,
		Servers:   locktest.Etcd,
		Scenarios: []string{"no-fault", "frozen-holder"},
		TTL:       2 * time.Second,
	})
}

func TestALockOnPostgres(t *testing.T) {
	t.Parallel()
	locktest.Run(t, locktest.Config{
		Lock:      newPostgresLock,
		Servers:   locktest.Postgres,
		NoLease:   true,
		Scenarios: []string{"no-fault", "two-locks"},
	})
}
