"""lockcheck's client protocol for lock libraries in Python.

Copy this file next to your adapter. It needs nothing but the standard library.
See docs/client-protocol.md.
"""

import json, sys, time, urllib.error, urllib.request


class Busy(Exception):
    """The lock is held by another: it was certainly not granted."""


class NotHeld(Exception):
    """The client did not hold the lock (any more)."""


def main(lock, name, version, capabilities):
    """Serves requests on standard input with lock, which has the methods

    open(servers, ttl)      connect: a list of {name, software, url}, seconds
    acquire(key, wait)      take the lock within wait seconds; 0: try once
    release(key)            give it up
    renew(key), check(key)  if capabilities name them

    acquire and renew return a dict with what there is of "token", "lease_ms" and
    "valid_ms", or None. Any exception but Busy and NotHeld means that nobody
    knows whether the operation had an effect.
    """
    tokens = {}
    out = sys.stdout
    sys.stdout = sys.stderr  # a print by mistake must not be taken for an answer

    def serve(q):
        f, key = q["f"], q.get("key")
        if f == "open":
            lock.open(q.get("servers", []), q.get("ttl_ms", 0) / 1000)
            return {"protocol": 1, "name": name, "version": version, "capabilities": capabilities}
        if f == "acquire":
            grant = lock.acquire(key, q.get("wait_ms", 0) / 1000) or {}
            tokens[key] = grant.get("token")
            return grant
        if f == "renew" and "renew" in capabilities:
            return lock.renew(key) or {}
        if f == "check" and "check" in capabilities:
            return {"value": lock.check(key)}
        if f == "release":
            tokens.pop(key, None)
            return lock.release(key) or {}
        if f == "write":
            token = tokens.get(key)
            ask("POST", q["url"] if token is None else "%s&token=%d" % (q["url"], token))
            return {} if token is None else {"token": token}
        if f == "read":
            return {"value": ask("GET", q["url"])}
        if f == "close":
            return {}
        raise NotHeld("cannot " + f)

    for line in sys.stdin:
        q = json.loads(line)
        try:
            answer = {"type": "ok", **serve(q)}
        except (Busy, NotHeld, Rejected) as e:
            answer = {"type": "fail", "error": str(e) or type(e).__name__}
        except Exception as e:  # a timeout, a lost connection: it may have happened
            answer = {"type": "info", "error": repr(e)}
        print(json.dumps({"id": q["id"], **answer}), file=out, flush=True)
        if q["f"] == "close":
            return


class Rejected(Exception):
    """The resource certainly did not do it."""


def ask(method, url):
    """Has the resource do what the protocol says of writes and reads."""
    try:
        with direct.open(urllib.request.Request(url, method=method), timeout=5) as r:
            return r.read().decode()
    except urllib.error.HTTPError as e:
        if e.code == 409:
            raise Rejected(e.read().decode()) from e
        raise
    except urllib.error.URLError as e:
        if isinstance(e.reason, ConnectionRefusedError):
            raise Rejected(repr(e.reason)) from e
        raise


direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def poll(attempt, wait, delay=0.01):
    """Calls attempt until it returns something true or wait seconds passed, for
    locks that cannot wait by themselves."""
    end = time.monotonic() + wait
    while True:
        got = attempt()
        if got:
            return got
        if time.monotonic() >= end:
            raise Busy("still held by another")
        time.sleep(delay)
