// Package all registers every lock system, with the servers that it needs.
package all

import (
	_ "github.com/lockcheck/lockcheck/backends/alternative"
	_ "github.com/lockcheck/lockcheck/backends/etcd"
	_ "github.com/lockcheck/lockcheck/backends/memory"
	_ "github.com/lockcheck/lockcheck/backends/partitioned"
	_ "github.com/lockcheck/lockcheck/backends/postgres"
	_ "github.com/lockcheck/lockcheck/backends/redis"
	_ "github.com/lockcheck/lockcheck/backends/redlock"
)
