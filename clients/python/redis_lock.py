"""Tests redis-py's Lock."""

import redis

import adapter


class Lock:
    def open(self, servers, ttl):
        self.ttl, self.held = ttl, {}
        self.redis = redis.Redis.from_url(servers[0]["url"], socket_timeout=5)
        self.redis.ping()

    def acquire(self, key, wait):
        lock = self.redis.lock(key, timeout=self.ttl, sleep=0.01)  # a new random value
        if not lock.acquire(blocking_timeout=wait):
            raise adapter.Busy("held by another")
        self.held[key] = lock
        return {"lease_ms": int(self.ttl * 1000)}

    def renew(self, key):
        self.call(self.held.get(key), "reacquire")
        return {"lease_ms": int(self.ttl * 1000)}

    def release(self, key):
        self.call(self.held.pop(key, None), "release")

    def call(self, lock, method):
        if lock is None:
            raise adapter.NotHeld("never acquired")
        try:
            getattr(lock, method)()
        except redis.exceptions.LockError as e:
            raise adapter.NotHeld(repr(e)) from e


adapter.main(Lock(), "redis-py", redis.__version__, ["wait", "lease", "renew"])
