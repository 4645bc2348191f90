"""An adapter to copy, with adapter.py: a lock that is a file, which exists while
somebody holds it. Replace what has to do with files."""

import os, tempfile, urllib.parse

import adapter


class Lock:
    def open(self, servers, ttl):
        # Connect to servers[0]["url"]; ttl is the lease to ask for, in seconds.
        self.dir, self.held = os.path.join(tempfile.gettempdir(), "my-locks"), set()
        os.makedirs(self.dir, exist_ok=True)

    def acquire(self, key, wait):
        try:
            os.close(os.open(self.path(key), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise adapter.Busy("held by another")  # certainly not granted
        self.held.add(key)
        return {}  # or "token", "lease_ms", "valid_ms": what the lock has of these

    def release(self, key):
        if key not in self.held:
            raise adapter.NotHeld("never acquired")
        self.held.discard(key)
        os.remove(self.path(key))

    def path(self, key):
        return os.path.join(self.dir, urllib.parse.quote(key, safe=""))


# What the lock can do: wait, token, lease, renew, check, lost, deadline, reentrant.
adapter.main(Lock(), "template", "1", [])
