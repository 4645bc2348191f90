"""Tests PostgreSQL's advisory locks as one uses them with psycopg2."""

import psycopg2

import adapter


class Lock:
    def open(self, servers, ttl):
        self.url, self.ttl, self.conn, self.held = servers[0]["url"], ttl, None, set()
        self.connect()

    def connect(self):
        if self.conn is None or self.conn.closed:
            self.conn, self.held = psycopg2.connect(self.url), set()
            self.conn.autocommit = True

    def query(self, sql, *args):
        with self.conn.cursor() as c:
            c.execute(sql, args)
            return c.fetchone()[0] if c.description else None

    def acquire(self, key, wait):
        self.connect()
        adapter.poll(lambda: self.query("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", key), wait)
        self.held.add(key)
        # Frees the lock of a client that hangs. Else the server waits for ever.
        self.query("SET idle_session_timeout = %s", int(self.ttl * 1000))

    def release(self, key):
        if key not in self.held:
            raise adapter.NotHeld("never acquired")
        self.held.discard(key)
        try:
            had = self.query("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", key)
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as e:
            if self.conn.closed:  # and with it the session and all that it held
                raise adapter.NotHeld(repr(e)) from e
            raise
        if not had:
            raise adapter.NotHeld("the session does not hold it")
        self.query("SET idle_session_timeout = 0")


adapter.main(Lock(), "psycopg2-advisory", psycopg2.__version__.split()[0], ["wait"])
