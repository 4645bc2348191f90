package mutants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockcheck/lockcheck/backends"
)

// redisStrategy is a lock on one Redis server with what a careful team would
// give it: a random value for each attempt, a fencing token from the server, a
// watchdog that renews, a notice of loss, and each step atomic.
var redisStrategy = strategy{backend: "redis", tokens: true, leased: true, open: openRedis}

// Flaws of it. Each is the name of a mutant.
const (
	releaseAnyone     = "release-without-owner-check"
	releaseGetDel     = "release-get-then-delete"
	releaseAlwaysOK   = "release-ok-after-loss"
	releaseLate       = "release-retried-after-new-acquire"
	setThenExpire     = "setnx-then-expire"
	noTTL             = "acquire-without-ttl"
	constantValue     = "constant-value"
	ttlToZero         = "ttl-truncated-to-zero"
	ttlHalved         = "ttl-shorter-than-stated"
	lossLogged        = "loss-only-logged"
	watchdogRecreates = "watchdog-recreates-lost-lock"
	renewAnyone       = "renew-without-owner-check"
	renewErrorOK      = "renew-refusal-taken-as-success"
	watchdogOutlives  = "watchdog-outlives-unlock"
	errorAsSuccess    = "acquire-error-taken-as-success"
	successAsError    = "acquire-success-taken-as-error"
	setWithoutNX      = "set-without-nx"
	getThenSet        = "acquire-get-then-set"
	tokenLocal        = "token-from-local-counter"
	tokenClock        = "token-from-wall-clock"
	tokenPerClient    = "token-per-client"
	tokenConstant     = "constant-token"
	elapsedIgnored    = "elapsed-time-not-counted"
	reaper            = "reaper-of-live-locks"
	namePerClient     = "lock-name-per-client"
	expiryByClock     = "expiry-by-client-clock"
	getEqualsMine     = "get-equals-client-name"
)

func redisMutants() []Mutant {
	m := func(kind, name, property, scenario, flaw string, reports ...string) Mutant {
		return Mutant{Name: name, Kind: kind, Flaw: flaw, Reports: reports, Twin: "correct-redis", Property: property, Scenario: scenario, strategy: redisStrategy}
	}
	return []Mutant{
		m("K9", releaseAnyone, "release", "frozen-holder", "release deletes the key, whoever has it", "lukas-krecan/ShedLock#2583", "sibson/redbeat#223"),
		m("K9", releaseGetDel, "lease", "slow-release", "release gets, compares, and deletes in a step of its own", "redis/redis-py#1031"),
		m("K9", releaseAlwaysOK, "release", "frozen-holder", "release is answered ok whether anything was deleted or not", "SaaSy-Solutions/mockforge#968"),
		m("K4", releaseLate, "lease", "lost-release-reply", "a release that got no answer is done again after the client's next acquire, by the client's name", "etcd-io/etcd#22082"),
		m("K17", setThenExpire, "liveness", "dead-acquirer", "SETNX, and then EXPIRE: who dies between them leaves the lock for good", "jefferyjob/go-redislock#35"),
		m("K17", noTTL, "liveness", "dead-acquirer", "the key has no time to live"),
		m("K11", constantValue, "lease", "no-fault", "all attempts of all clients have one value, and failed ones clean up by it", "go-redsync/redsync#126"),
		m("K17", ttlToZero, "lease", "frozen-holder", "a lease of less than a second is cut to whole seconds, which is none", "kent8192/reinhardt-web#2719"),
		m("K17", ttlHalved, "lease", "cut-holder", "the server is asked for half of the lease that is stated", "jefferyjob/go-redislock#35"),
		m("K2", lossLogged, "mutex", "cut-holder", "renewals that fail are logged, and nobody is told of the loss", "hashicorp/consul#18271", "hashicorp/consul#1843"),
		m("K8", watchdogRecreates, "lease", "frozen-holder", "the watchdog sets the key again when it has expired", "leandromoreira/redlock-rb#36", "go-redsync/redsync#149"),
		m("K8", renewAnyone, "lease", "frozen-holder", "a renewal extends the key, whoever has it", "lukas-krecan/ShedLock#2593"),
		m("K8", renewErrorOK, "lease", "frozen-holder", "a renewal that is refused is taken as done", "linagora/cozy-stack#4911"),
		m("K8", watchdogOutlives, "liveness", "contention", "the watchdog goes on after the release, and sets the key", "redisson/redisson#7272"),
		m("K3", errorAsSuccess, "mutex", "cut-acquirer", "an acquire that failed with an error is taken as granted"),
		m("K3", successAsError, "liveness", "lost-acquire-reply", "an acquire without an answer is taken as failed, and its watchdog goes on", "simstudioai/sim#6864", "redis/go-redis#2985"),
		m("K9", setWithoutNX, "mutex", "no-fault", "SET without NX: who comes last has the lock"),
		m("K9", getThenSet, "mutex", "contention", "the key is looked for, and then set in a step of its own"),
		m("K1", tokenLocal, "token", "no-fault", "fencing tokens are counted by each client", "minhle.xyz GC pause versus a Redis TTL"),
		m("K7", tokenClock, "token", "no-fault", "fencing tokens are the second of the day"),
		m("K11", tokenPerClient, "token", "contention", "a client has one fencing token for all its grants"),
		m("K11", tokenConstant, "token", "no-fault", "all grants have the same fencing token"),
		m("K10", elapsedIgnored, "mutex", "slow-grant", "the lease is counted from the answer, not from the request", "SPSCommerce/redlock-py#3", "redisson/redisson#624"),
		m("K17", reaper, "lease", "cut-holder", "clients that wait delete what has been locked for half a lease", "zoolutions/sidekiq-unique-jobs#488", "mmnto-ai/totem#2576"),
		m("K11", namePerClient, "mutex", "no-fault", "each client has a name of its own for the lock", "ClosureTree/with_advisory_lock#6"),
		m("K7", expiryByClock, "lease", "clock-jump", "the value is the wall-clock time of expiry, which others compare with their clocks", "valkey-io/valkey#2651"),
		m("K14", getEqualsMine, "mutex", "no-fault", "a key that is there is taken as the client's own, since the value is the service's name", "redis/go-redis#2985"),
	}
}

// redisLock is one client of it.
type redisLock struct {
	flaw    string
	process string
	ttl     time.Duration
	rdb     *redis.Client
	held    map[string]*redisHold
	stray   map[string][]string // values that an acquire of unknown outcome may have left
	undone  map[string]string   // value of a release of unknown outcome; flaw releaseLate
	counter int64               // flaw tokenLocal
	seen    map[string]sighting // flaw reaper
}

type redisHold struct {
	value string
	dog   *watchdog
}

// sighting is the value that a client has seen, and since when.
type sighting struct {
	value string
	since time.Time
}

func openRedis(ctx context.Context, c backends.Config, flaw string) (backends.Client, error) {
	urls := c.URLs("redis")
	if len(urls) == 0 {
		return nil, errors.New("it needs a redis server")
	}
	rdb, err := dialRedis(ctx, urls[0])
	if err != nil {
		return nil, err
	}
	return &redisLock{
		flaw: flaw, process: c.Process, ttl: c.TTL, rdb: rdb,
		held: map[string]*redisHold{}, stray: map[string][]string{}, undone: map[string]string{}, seen: map[string]sighting{},
	}, nil
}

// newRedis returns a client without the retries of the library, which would turn an
// own success into a failure, and with deadlines that end commands.
func newRedis(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	o.ReadTimeout, o.WriteTimeout, o.PoolSize = -1, -1, 1000
	return redis.NewClient(o), nil
}

// dialRedis is newRedis of a server that answers.
func dialRedis(ctx context.Context, url string) (*redis.Client, error) {
	rdb, err := newRedis(url)
	if err != nil {
		return nil, err
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		rdb.Close()
		return nil, err
	}
	return rdb, nil
}

// The scripts of the lock. Each is one step at the server.
var (
	grant = redis.NewScript(`
if redis.call("set", KEYS[1], ARGV[1], "nx", "px", ARGV[2]) then return redis.call("incr", KEYS[1] .. ":fence") end
return 0`)
	compareDelete = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0`)
	compareExtend = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end
return 0`)
)

func (l *redisLock) name(key string) string {
	if l.flaw == namePerClient {
		return key + "/" + l.process
	}
	return key
}

func (l *redisLock) value() string {
	switch l.flaw {
	case constantValue, getEqualsMine:
		return "locked"
	case releaseLate:
		return l.process + ":"
	case expiryByClock:
		return strconv.FormatInt(time.Now().Add(l.ttl).UnixMilli(), 10)
	}
	return l.process + ":" + rand.Text()
}

func (l *redisLock) Acquire(ctx context.Context, key string, wait time.Duration) (backends.Grant, error) {
	return backends.Poll(ctx, wait, func(ctx context.Context) (backends.Grant, error) { return l.try(ctx, key) })
}

func (l *redisLock) try(ctx context.Context, key string) (backends.Grant, error) {
	l.clean(ctx, key)
	value, asked := l.value(), time.Now()
	token, err := l.set(ctx, l.name(key), value)
	if l.flaw == elapsedIgnored {
		asked = time.Now()
	}
	switch {
	case err != nil && l.flaw == errorAsSuccess:
		token = asked.UnixMilli()
	case err != nil && l.flaw == timeoutIsRefusal:
		return backends.Grant{}, backends.Failed(err)
	case err != nil && l.flaw == successAsError:
		l.keep(key, value, asked)
		delete(l.held, key)
		return backends.Grant{}, backends.Failed(err)
	case err != nil:
		if backends.NotDialed(err) {
			return backends.Grant{}, backends.Failed(err)
		}
		l.stray[key] = append(l.stray[key], value)
		return backends.Grant{}, err
	case token == 0:
		if l.flaw == constantValue {
			_ = compareDelete.Run(ctx, l.rdb, []string{l.name(key)}, value).Err()
		}
		return backends.Grant{}, backends.ErrBusy
	}
	if time.Since(asked) > l.ttl-margin(l.ttl) {
		l.stray[key] = append(l.stray[key], value)
		return backends.Grant{}, backends.Failed(errors.New("the grant came too late to rely on it"))
	}
	l.keep(key, value, asked)
	token = l.token(token)
	return backends.Grant{TTL: l.ttl, Token: &token}, nil
}

// set sets the key and returns the fencing token, 0 if the lock is another's.
func (l *redisLock) set(ctx context.Context, name, value string) (int64, error) {
	ms := l.ttl.Milliseconds()
	fence := func() (int64, error) { return l.rdb.Incr(ctx, name+":fence").Result() }
	switch l.flaw {
	case setThenExpire, noTTL:
		set, err := l.rdb.SetNX(ctx, name, value, 0).Result()
		if err != nil || !set {
			return 0, err
		}
		if l.flaw == setThenExpire {
			if err := l.rdb.PExpire(ctx, name, l.ttl).Err(); err != nil {
				return 0, err
			}
		}
		return fence()
	case ttlToZero:
		set, err := l.rdb.SetNX(ctx, name, value, 0).Result()
		if err != nil || !set {
			return 0, err
		}
		if err := l.rdb.Do(ctx, "expire", name, int(l.ttl/time.Second)).Err(); err != nil {
			return 0, err
		}
		return fence()
	case ttlHalved:
		ms /= 2
	case setWithoutNX:
		if err := l.rdb.Set(ctx, name, value, l.ttl).Err(); err != nil {
			return 0, err
		}
		return fence()
	case getThenSet:
		n, err := l.rdb.Exists(ctx, name).Result()
		if err != nil || n > 0 {
			return 0, err
		}
		if err := l.rdb.Set(ctx, name, value, l.ttl).Err(); err != nil {
			return 0, err
		}
		return fence()
	case getEqualsMine:
		token, err := grant.Run(ctx, l.rdb, []string{name}, value, ms).Int64()
		if err != nil || token > 0 {
			return token, err
		}
		if has, err := l.rdb.Get(ctx, name).Result(); err != nil || has != value {
			return 0, err
		}
		return fence()
	case expiryByClock:
		has, err := l.rdb.Get(ctx, name).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, err
		}
		if until, err := strconv.ParseInt(has, 10, 64); err == nil && until < time.Now().UnixMilli() {
			_ = compareDelete.Run(ctx, l.rdb, []string{name}, has).Err()
		}
	case reaper:
		l.reap(ctx, name)
	case deadWaiterQueued:
		return queued.Run(ctx, l.rdb, []string{name, name + ":queue"}, value, ms, l.process).Int64()
	}
	return grant.Run(ctx, l.rdb, []string{name}, value, ms).Int64()
}

// reap deletes a lock that was seen for half a lease.
func (l *redisLock) reap(ctx context.Context, name string) {
	has, err := l.rdb.Get(ctx, name).Result()
	if err != nil {
		return
	}
	if s := l.seen[name]; s.value != has {
		l.seen[name] = sighting{has, time.Now()}
	} else if time.Since(s.since) > l.ttl/2 {
		_ = l.rdb.Del(ctx, name).Err()
	}
}

// blind are flaws by which the client relies on its renewals alone: what they are
// answered is not what happened, and it does not look at its clock.
var blind = []string{lossLogged, renewAnyone, renewErrorOK, watchdogRecreates}

// token is the fencing token of a grant that the server has numbered n.
func (l *redisLock) token(n int64) int64 {
	switch l.flaw {
	case tokenLocal:
		l.counter++
		return l.counter
	case tokenClock:
		return int64(time.Now().Hour()*3600 + time.Now().Minute()*60)
	case tokenPerClient:
		for _, c := range l.process {
			l.counter = l.counter*31%1000 + int64(c)
		}
		n, l.counter = l.counter, 0
		return n
	case tokenConstant:
		return 1
	}
	return n
}

// keep remembers a grant, and starts to renew it.
func (l *redisLock) keep(key, value string, asked time.Time) {
	if old := l.held[key]; old != nil {
		old.dog.end()
	}
	l.held[key] = &redisHold{value, watch(l.ttl, asked, slices.Contains(blind, l.flaw), func(ctx context.Context) (bool, error) {
		switch l.flaw {
		case watchdogRecreates, watchdogOutlives:
			return true, l.rdb.Set(ctx, l.name(key), value, l.ttl).Err()
		case noTTL:
			return true, nil
		case ttlHalved, reaper:
			return true, nil // it does not renew, so that its lease ends
		case handsOver:
			// First it says so, to whoever does the work.
			time.AfterFunc(margin(l.ttl), func() { _, _ = l.unlock(context.Background(), l.name(key), value) })
			return false, nil
		}
		return l.extend(ctx, key, value)
	})}
}

func (l *redisLock) extend(ctx context.Context, key, value string) (bool, error) {
	if l.flaw == renewAnyone {
		return l.rdb.PExpire(ctx, l.name(key), l.ttl).Result()
	}
	n, err := compareExtend.Run(ctx, l.rdb, []string{l.name(key)}, value, l.ttl.Milliseconds()).Int()
	return n == 1 || l.flaw == renewErrorOK, err
}

// clean undoes what acquires of unknown outcome may have left.
func (l *redisLock) clean(ctx context.Context, key string) {
	for len(l.stray[key]) > 0 {
		if compareDelete.Run(ctx, l.rdb, []string{l.name(key)}, l.stray[key][0]).Err() != nil {
			return
		}
		l.stray[key] = l.stray[key][1:]
	}
}

func (l *redisLock) Renew(ctx context.Context, key string) (backends.Grant, error) {
	h := l.held[key]
	if h == nil {
		return backends.Grant{}, backends.ErrNotHeld
	}
	asked := time.Now()
	had, err := l.extend(ctx, key, h.value)
	if value, ok := l.undone[key]; ok {
		delete(l.undone, key)
		_ = compareDelete.Run(ctx, l.rdb, []string{l.name(key)}, value).Err()
	}
	if err != nil {
		return backends.Grant{}, err
	}
	if !had {
		return backends.Grant{}, backends.ErrNotHeld
	}
	h.dog.extended(asked)
	return backends.Grant{TTL: l.ttl}, nil
}

func (l *redisLock) Release(ctx context.Context, key string) error {
	h := l.held[key]
	if h == nil {
		return backends.ErrNotHeld
	}
	if l.flaw != watchdogOutlives {
		h.dog.end()
	}
	had, err := l.unlock(ctx, l.name(key), h.value)
	delete(l.held, key)
	if err != nil {
		if l.flaw == releaseLate {
			l.undone[key] = h.value
		} else {
			l.stray[key] = append(l.stray[key], h.value)
		}
		return err
	}
	if !had && l.flaw != releaseAlwaysOK {
		return backends.ErrNotHeld
	}
	return nil
}

func (l *redisLock) unlock(ctx context.Context, name, value string) (bool, error) {
	switch l.flaw {
	case releaseAnyone:
		n, err := l.rdb.Del(ctx, name).Result()
		return n > 0, err
	case releaseGetDel:
		has, err := l.rdb.Get(ctx, name).Result()
		switch {
		case errors.Is(err, redis.Nil) || err == nil && !strings.EqualFold(has, value):
			return false, nil
		case err != nil:
			return false, err
		}
		n, err := l.rdb.Del(ctx, name).Result()
		return n > 0, err
	}
	n, err := compareDelete.Run(ctx, l.rdb, []string{name}, value).Int()
	return n == 1, err
}

func (l *redisLock) Check(_ context.Context, key string) (bool, error) {
	h := l.held[key]
	return h != nil && h.dog.holds(), nil
}

// Lost is closed when the watchdog has noticed the loss.
func (l *redisLock) Lost(key string) <-chan struct{} { return l.held[key].dog.lost }

func (l *redisLock) Close() error {
	for _, h := range l.held {
		h.dog.stop()
	}
	if err := l.rdb.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
