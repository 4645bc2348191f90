package mutants

import (
	"context"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
	"github.com/lockcheck/lockcheck/backends/resource"
)

// Flaws that were reported of libraries, and that show in a story of their own: the
// suite ci does not tell it, since a lock of another kind, or a shorter bound, would
// not pass there either.
const (
	timeoutIsRefusal  = "timed-out-acquire-taken-as-refused"
	deadWaiterQueued  = "dead-waiter-stays-in-queue"
	driftAdded        = "drift-added-to-validity"
	driftSubtracted   = "drift-taken-off-validity" // no flaw: the correct twin of driftAdded
	commitAfterUnlock = "commit-after-unlock"
	waitGoesOn        = "timed-out-wait-goes-on"
	keyCRC32          = "lock-name-is-crc32"
	handsOver         = "hands-over-before-work-ends"
)

// Published returns the mutants that exist for one public report each. They are
// caught by the scenario of that report.
func Published() []Mutant {
	m := func(kind, name, property, scenario, flaw, report string, of strategy, twin string) Mutant {
		return Mutant{Name: name, Kind: kind, Flaw: flaw, Reports: []string{report}, Twin: twin, Property: property, Scenario: scenario, strategy: of}
	}
	return []Mutant{
		m("K3", timeoutIsRefusal, "", "bug-sim-6864", "an acquire without an answer is taken as refused, and nobody cleans up", "simstudioai/sim#6864", redisStrategy, "correct-redis"),
		m("K10", driftAdded, "mutex", "bug-redlock-py-3", "the allowance for drift is added to the validity", "SPSCommerce/redlock-py#3", redlockStrategy, driftSubtracted),
		m("K11", keyCRC32, "liveness", "bug-symfony-58838", "the number of a lock is the CRC-32 of its name", "symfony/symfony#58838", postgresStrategy, "correct-postgres"),
		m("K14", commitAfterUnlock, "state", "bug-redisson-2183", "the transaction that the lock protects is committed after the unlock", "redisson/redisson#2183", postgresStrategy, "correct-postgres"),
		m("K17", handsOver, "fence", "bug-kubernetes-139991", "the lock is handed over while the work goes on", "kubernetes/kubernetes#139991", redisStrategy, "correct-redis"),
		m("K16", waitGoesOn, "liveness", "bug-yugabyte-26105", "a wait that timed out goes on at the server, and is granted the lock", "yugabyte/yugabyte-db#26105", postgresStrategy, "correct-postgres"),
		m("K16", deadWaiterQueued, "liveness", "bug-redisson-4595", "a waiter that dies stays in the queue, at its head in the end", "redisson/redisson#4595", redisStrategy, "correct-redis"),
	}
}

// queued is an acquire of a fair lock: a client joins a list, and may set the key when
// it is at its head. Nothing takes out those that do not come back.
//
// KEYS are the lock and its queue, ARGV the value, the lease and the client.
var queued = redis.NewScript(`
local at = redis.call("lpos", KEYS[2], ARGV[3])
if not at then at = redis.call("rpush", KEYS[2], ARGV[3]) - 1 end
if at > 0 or not redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2]) then return 0 end
redis.call("lpop", KEYS[2])
return redis.call("incr", KEYS[1] .. ":fence")`)

// drift is what a Redlock client allows for clocks that drift apart, much more than
// usual, so that its sign shows.
func drift(ttl time.Duration) time.Duration { return ttl / 5 }

// crc32Key is the number of a lock by its name.
func crc32Key(key string) string {
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(key))), 10)
}

// transaction is what a client does under a lock, if what is protected is in the
// database too. It is committed later than the lock is unlocked.
type transaction struct {
	url  string
	conn *pgx.Conn // nil before the first write
	open bool
}

// write writes in a transaction, which it begins. The statement was done: that is what
// its caller, somewhere below the one that commits, sees.
func (t *transaction) write(ctx context.Context, w backends.Write) error {
	if t.conn == nil {
		conn, err := pgx.Connect(ctx, t.url)
		if err != nil {
			return backends.Failed(err)
		}
		t.conn = conn
	}
	if !t.open {
		if _, err := t.conn.Exec(ctx, "BEGIN"); err != nil {
			return backends.Failed(err)
		}
		t.open = true
	}
	if _, err := t.conn.Exec(ctx, resource.WriteSQL, w.Key, w.Value, w.Token, w.Process, w.Op); err != nil {
		return backends.Failed(err)
	}
	return nil
}

// commit commits what was written, if anything was.
func (t *transaction) commit(ctx context.Context) error {
	if !t.open {
		return nil
	}
	t.open = false
	_, err := t.conn.Exec(ctx, "COMMIT")
	return err
}

func (t *transaction) close(ctx context.Context) {
	if t.conn != nil {
		t.conn.Close(ctx)
	}
}
