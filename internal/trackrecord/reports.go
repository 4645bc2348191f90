package trackrecord

import "maps"

// Reports returns the public reports, by the kind of failure that they are examples of.
func Reports() []Report {
	return []Report{
		{
			Public: "minhle.xyz GC pause versus a Redis TTL", Kind: "K1", Scenario: "bug-minhle-gc-pause",
			URL:     "https://minhle.xyz/blog/distributed-lock-gc-pause-ttl-fencing-tokens",
			Wrong:   "a holder that is frozen past its lease wakes up and writes after the next one",
			Subject: library("bsm/redislock, no token", "redis", "redislock", "go/redislock").with("unfenced"),
			Control: correct("redis", "correct-redis").with("fenced").says("`correct-redis`, whose tokens the resource compares"),
		},
		{
			Public: "hashicorp/consul#18271", Kind: "K2", Scenario: "bug-consul-18271",
			URL:     "https://github.com/hashicorp/consul/issues/18271",
			Wrong:   "a holder that is cut off is told of its loss by nobody, and acts on beside the next one",
			Subject: mutant("redis", "loss-only-logged"),
			Control: correct("redis", "correct-redis"),
		},
		{
			Public: "simstudioai/sim#6864", Kind: "K3", Scenario: "bug-sim-6864",
			URL:     "https://github.com/simstudioai/sim/pull/6864",
			Wrong:   "an acquire that got no answer is taken as refused, and its lock keeps everybody out",
			Subject: mutant("redis", "timed-out-acquire-taken-as-refused"),
			Control: correct("redis", "correct-redis"),
		},
		{
			Public: "redis/go-redis#2985", Kind: "K3", Scenario: "bug-go-redis-2985",
			URL:     "https://github.com/redis/go-redis/issues/2985",
			Wrong:   "SetNX is retried after a lost answer, finds its own key, and says that the lock is another's",
			Subject: library("SetNX of go-redis", "redis", "go-redis-setnx", "go/goredis"),
			Control: library("bsm/redislock, whose script accepts its own value", "redis", "redislock", "go/redislock"),
		},
		{
			Public: "etcd-io/etcd#22082", Kind: "K4", Scenario: "bug-etcd-22082",
			URL:     "https://github.com/etcd-io/etcd/issues/22082",
			Wrong:   "an unlock that is retried deletes the newer lock of the same session",
			Subject: library("etcd's mutex, one session, unlock retried", "etcd", "etcd-concurrency -one-session -retry-unlock", "go/etcd", "-one-session", "-retry-unlock"),
			Control: library("etcd's mutex, a session for each acquire, unlock retried", "etcd", "etcd-concurrency -retry-unlock", "go/etcd", "-retry-unlock"),
		},
		{
			Public: "sibson/redbeat#163", Kind: "K5", Scenario: "bug-redbeat-163",
			URL:     "https://github.com/sibson/redbeat/issues/163",
			Wrong:   "the replica that is promoted has no key, and grants the lock again",
			Subject: library("bsm/redislock on a primary and a replica", "redis-replicated", "redislock", "go/redislock"),
			Control: own("backend `redis-wait`, which grants what the replica has", "redis-wait"),
		},
		{
			Public: "go-redsync/redsync#186", Kind: "K6", Scenario: "bug-redsync-186",
			URL:     "https://github.com/go-redsync/redsync/issues/186",
			Wrong:   "a server that forgets what it granted makes a second majority",
			Subject: library("redsync on five servers", "redlock", "redsync", "go/redsync", "-until"),
			Control: library("redsync, the server back after a lease", "redlock", "redsync", "go/redsync", "-until").in("bug-redsync-186-control"),
		},
		{
			Public: "valkey-io/valkey#2651", Kind: "K7", Scenario: "bug-valkey-2651",
			URL:     "https://github.com/valkey-io/valkey/issues/2651",
			Wrong:   "a step of the server's wall clock ends all locks at once",
			Subject: library("bsm/redislock", "redis", "redislock", "go/redislock"),
			Control: own("backend `etcd`, which counts by the monotonic clock", "etcd"),
		},
		{
			Public: "redisson/redisson#7272", Kind: "K8", Scenario: "bug-redisson-7272",
			URL:     "https://github.com/redisson/redisson/issues/7272",
			Wrong:   "a watchdog that outlives the unlock keeps a lock that nobody has",
			Subject: mutant("redis", "watchdog-outlives-unlock"),
			Control: correct("redis", "correct-redis"),
		},
		{
			Public: "leandromoreira/redlock-rb#36", Kind: "K8", Scenario: "bug-redlock-rb-36",
			URL:     "https://github.com/leandromoreira/redlock-rb/issues/36",
			Wrong:   "to extend a lock that has ended makes it again, and says ok",
			Subject: library("redsync with WithSetNXOnExtend", "redis", "redsync -setnx-on-extend", "go/redsync", "-until", "-setnx-on-extend"),
			Control: library("redsync without it", "redis", "redsync", "go/redsync", "-until"),
		},
		{
			Public: "redis/redis-py#1031", Kind: "K9", Scenario: "bug-redis-py-1031",
			URL:     "https://github.com/redis/redis-py/pull/1031",
			Wrong:   "the key becomes another's between the GET and the DEL of a release",
			Subject: mutant("redis", "release-get-then-delete"),
			Control: library("redis-py's Lock, fixed", "redis", "redis-py", "python/redis_lock.py"),
		},
		{
			Public: "lukas-krecan/ShedLock#2583", Kind: "K9", Scenario: "bug-shedlock-2583",
			URL:     "https://github.com/lukas-krecan/ShedLock/issues/2583",
			Wrong:   "the late unlock of a task that took longer than its lease frees the lock of the next one",
			Subject: mutant("redis", "release-without-owner-check"),
			Control: correct("redis", "correct-redis"),
		},
		{
			Public: "SPSCommerce/redlock-py#3", Kind: "K10", Scenario: "bug-redlock-py-3",
			URL:     "https://github.com/SPSCommerce/redlock-py/pull/3",
			Wrong:   "the allowance for drift is added to the validity instead of taken off",
			Subject: mutant("redlock", "drift-added-to-validity"),
			Control: correct("redlock", "drift-taken-off-validity"),
		},
		{
			Public: "SPSCommerce/redlock-py#6", Kind: "K10", Scenario: "bug-redlock-py-6",
			URL:     "https://github.com/SPSCommerce/redlock-py/pull/6",
			Wrong:   "the majority is counted from the servers that can be reached",
			Subject: mutant("redlock", "quorum-of-reachable-nodes"),
			Control: correct("redlock", "correct-redlock"),
		},
		{
			Public: "go-redsync/redsync#126", Kind: "K11", Scenario: "bug-redsync-126",
			URL:     "https://github.com/go-redsync/redsync/issues/126",
			Wrong:   "with one value for all, who is refused deletes the lock of who has it",
			Subject: library("redsync with a constant WithGenValueFunc", "redis", "redsync -constant-value", "go/redsync", "-constant-value"),
			Control: library("redsync with its own values", "redis", "redsync", "go/redsync"),
		},
		{
			Public: "symfony/symfony#58838", Kind: "K11", Scenario: "bug-symfony-58838",
			URL:     "https://github.com/symfony/symfony/issues/58838",
			Wrong:   "two names with the same CRC-32 are one lock",
			Subject: mutant("postgres-session", "lock-name-is-crc32"),
			Control: correct("postgres-session", "correct-postgres"),
		},
		{
			Public: "goauthentik/authentik#23876", Kind: "K12", Scenario: "bug-authentik-23876",
			URL:     "https://github.com/goauthentik/authentik/issues/23876",
			Wrong:   "through PgBouncer the unlock runs on another connection, and the lock stays",
			Subject: own("backend `pgbouncer-transaction-session`", "pgbouncer-transaction-session"),
			Control: own("backend `pgbouncer-transaction-xact`, a lock of the transaction", "pgbouncer-transaction-xact"),
		},
		{
			Public: "SaaSy-Solutions/mockforge#968", Kind: "K12", Scenario: "bug-mockforge-968",
			URL:     "https://github.com/SaaSy-Solutions/mockforge/pull/968",
			Wrong:   "the unlock runs on another connection of the program's pool, and the lock stays",
			Subject: mutant("postgres-session", "unlock-on-another-connection"),
			Control: correct("postgres-session", "correct-postgres"),
		},
		{
			Public: "JasperFx/wolverine#2602", Kind: "K13", Scenario: "bug-wolverine-2602",
			URL:     "https://github.com/JasperFx/wolverine/issues/2602",
			Wrong:   "the server ends the session, and nobody tells the one who has its lock",
			Subject: library("an advisory lock by pgx", "postgres-session", "pgx-advisory", "go/pgx"),
			Control: correct("postgres-session", "correct-postgres"),
		},
		{
			Public: "JasperFx/wolverine#2691", Kind: "K14", Scenario: "bug-wolverine-2691",
			URL:     "https://github.com/JasperFx/wolverine/pull/2691",
			Wrong:   "to renew by locking again takes as many unlocks, and one is done",
			Subject: mutant("postgres-session", "stacked-locks-released-once"),
			Control: correct("postgres-session", "correct-postgres"),
		},
		{
			Public: "redisson/redisson#2183", Kind: "K14", Scenario: "bug-redisson-2183",
			URL:     "https://github.com/redisson/redisson/issues/2183",
			Wrong:   "the commit comes after the unlock, and the next holder reads the old value",
			Subject: mutant("postgres-session", "commit-after-unlock"),
			Control: correct("postgres-session", "correct-postgres"),
		},
		{
			Public: "etcd-io/etcd#11456", Kind: "K15", Scenario: "bug-etcd-11456",
			URL:     "https://github.com/etcd-io/etcd/issues/11456",
			Wrong:   "a waiter whose lease ended in the queue is told that it has the lock",
			Subject: library("the lock service of the installed etcd", "etcd", "etcd-v3lock", "go/etcdservice"),
			Control: library("the same of a later etcd", "etcd", "etcd-v3lock", "go/etcdservice").bin("etcd", "embedded"),
		},
		{
			Public: "etcd-io/etcd#9395", Kind: "K15", Scenario: "bug-etcd-9395",
			URL:     "https://github.com/etcd-io/etcd/issues/9395",
			Wrong:   "each new leader gives the lock of a dead holder its full time again",
			Subject: library("etcd's mutex, two new leaders", "etcd", "etcd-concurrency", "go/etcd"),
			Control: library("etcd's mutex, no new leader", "etcd", "etcd-concurrency", "go/etcd").in("bug-etcd-9395-control"),
		},
		{
			Public: "yugabyte/yugabyte-db#26105", Kind: "K16", Scenario: "bug-yugabyte-26105",
			URL:     "https://github.com/yugabyte/yugabyte-db/issues/26105",
			Wrong:   "a wait that timed out is granted the lock all the same",
			Subject: mutant("postgres-session", "timed-out-wait-goes-on"),
			Control: library("PostgreSQL itself, by pgx and lock_timeout", "postgres-session", "pgx-advisory", "go/pgx"),
		},
		{
			Public: "redisson/redisson#4595", Kind: "K16", Scenario: "bug-redisson-4595",
			URL:     "https://github.com/redisson/redisson/issues/4595",
			Wrong:   "a waiter that dies at the head of the queue keeps everybody out",
			Subject: mutant("redis", "dead-waiter-stays-in-queue"),
			Control: correct("etcd", "correct-etcd"),
		},
		{
			Public: "kent8192/reinhardt-web#2719", Kind: "K17", Scenario: "bug-reinhardt-2719",
			URL:     "https://github.com/kent8192/reinhardt-web/issues/2719",
			Wrong:   "a lease of less than a second is cut to none",
			Subject: mutant("redis", "ttl-truncated-to-zero"),
			Control: library("bsm/redislock", "redis", "redislock", "go/redislock"),
		},
		{
			Public: "zoolutions/sidekiq-unique-jobs#488", Kind: "K17", Scenario: "bug-sidekiq-unique-jobs-488",
			URL:     "https://github.com/zoolutions/sidekiq-unique-jobs/issues/488",
			Wrong:   "a reaper takes the lock of a job that runs for an orphan",
			Subject: mutant("redis", "reaper-of-live-locks"),
			Control: correct("redis", "correct-redis"),
		},
		{
			Public: "kubernetes/kubernetes#139991", Kind: "K17", Scenario: "bug-kubernetes-139991",
			URL:     "https://github.com/kubernetes/kubernetes/pull/139991",
			Wrong:   "a leader releases the lease while its work goes on",
			Subject: mutant("redis", "hands-over-before-work-ends"),
			Control: correct("redis", "correct-redis"),
		},
	}
}

// mutant is a trial of a client of internal/mutants.
func mutant(backend, name string) Trial {
	return Trial{What: "mutant `" + name + "`", Backend: backend, Client: []string{"mutant", name}}
}

// correct is a trial of the client that mutants are made from.
func correct(backend, name string) Trial {
	t := mutant(backend, name)
	t.What = "correct twin `" + name + "`"
	return t
}

// library is a trial of a program of clients/, which says that it tests lock.
func library(what, backend, lock string, client ...string) Trial {
	return Trial{What: what, Backend: backend, Lock: lock, Client: client}
}

// says puts what was run into other words.
func (t Trial) says(what string) Trial {
	t.What = what
	return t
}

// own is a trial of a backend's own client.
func own(what, backend string) Trial { return Trial{What: what, Backend: backend} }

// bin has the trial use another binary of a server.
func (t Trial) bin(software, path string) Trial {
	t.Bin = maps.Clone(t.Bin)
	if t.Bin == nil {
		t.Bin = map[string]string{}
	}
	t.Bin[software] = path
	return t
}

// with has the trial protect another resource.
func (t Trial) with(resource string) Trial {
	t.Resource = resource
	return t
}

// in has the trial run another scenario than the report's.
func (t Trial) in(scenario string) Trial {
	t.Scenario = scenario
	return t
}
