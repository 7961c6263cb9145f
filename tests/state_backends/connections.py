"""Connections that tests use one after another: the first statements on a new one take 35 ms more than later ones."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.pq import TransactionStatus

# Fail a test that waits longer for a lock: it would never end.
PATIENCE = "-c lock_timeout=10s"

# As DISCARD ALL, but for prepared statements: psycopg counts on those that it has made.
RESET = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP
"""


class Connections:
    """Connections in autocommit mode, per database; idle ones are kept."""

    def __init__(self) -> None:
        self._idle: defaultdict[str, list[psycopg.Connection]] = defaultdict(list)

    @contextmanager
    def lent(self, url: str) -> Iterator[psycopg.Connection]:
        """Lend a connection as good as new; end it where the test has closed it or left a transaction open."""
        idle = self._idle[url]
        conn = idle.pop() if idle else psycopg.connect(url, autocommit=True, options=PATIENCE)
        try:
            yield conn
        finally:
            if _is_reset(conn):
                idle.append(conn)
            else:
                conn.close()

    def close(self) -> None:
        for idle in self._idle.values():
            for conn in idle:
                conn.close()


def _is_reset(conn: psycopg.Connection) -> bool:
    """End what the session holds: settings, locks, temporary tables. Return whether it could."""
    if conn.closed or conn.info.transaction_status != TransactionStatus.IDLE:
        return False
    try:
        conn.autocommit, conn.isolation_level, conn.read_only = True, None, None
        conn.execute(RESET)
    except psycopg.Error:  # the test has ended its session
        return False
    return True
