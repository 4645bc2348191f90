"""An adapter to copy, with adapter.py: a lock that is a locked file. The system
unlocks it when its process ends. Replace what has to do with files."""

import fcntl, os, tempfile, urllib.parse

import adapter


class Lock:
    def open(self, servers, ttl):
        # Connect to servers[0]["url"]; ttl is the lease to ask for, in seconds.
        # All clients do this at the same time.
        self.dir, self.held = os.path.join(tempfile.gettempdir(), "my-locks"), {}
        os.makedirs(self.dir, exist_ok=True)

    def acquire(self, key, wait):
        # Try once; a lock that can wait by itself waits for so many seconds.
        file = open(self.path(key), "w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise adapter.Busy("held by another")  # certainly not granted
        self.held[key] = file
        return {}  # or "token", "lease_ms", "valid_ms": what the lock has of these

    def release(self, key):
        if key not in self.held:
            raise adapter.NotHeld("never acquired")  # certainly not held
        self.held.pop(key).close()

    def path(self, key):
        return os.path.join(self.dir, urllib.parse.quote(key, safe=""))


# What the lock can do: wait, token, lease, renew, check, lost, deadline, reentrant.
adapter.main(Lock(), "template", "1", [])
