"""Connections of a pipeline to the database: their time-outs, and how many of them a batch may hold at once.

A task holds one connection while it writes. A cluster of 500 cores would open 500, while a server allows 100 by default
and gains nothing from more than a few. So few tasks write a batch, however many computed it.
"""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tidegauge.pipelines.errors import PoolerError, RuntimeSetupError
from tidegauge.state_backends.session import CLIENT, DURABLE, connection_options

T = TypeVar("T")

# A Python worker of Spark runs one task after the other, and ends a minute after its last one.
_kept: dict[str, psycopg.Connection] = {}

# A server writes on its own cores; a task that waits for one of them need not hold a connection.
MOST_WRITERS = 32

# A task that waits longer than this waits for a stuck writer; if it fails, the batch is tried again.
SESSION = {
    "statement_timeout": "10min",
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "10min",
    "work_mem": "64MB",  # a task's rows are sorted by key before they are merged
    "idle_session_timeout": "0",  # the session of an idle driver holds its pipeline
    "timezone": "UTC",
}

# A setting that a session is opened with and no other has. A pooler opens sessions of its own, lends them to its
# clients, and does not hand on what these ask for at the start: PgBouncer refuses it, or is told to ignore it.
MARK = "tidegauge.session"
NOT_HANDED_ON = "unsupported startup parameter"
POOLED = (
    "the database's address leads to a connection pooler, such as PgBouncer: a session is then another client's, too, "
    "and the locks and settings of a driver and its tasks are those of a session; give the address of the server "
    "itself (TIDEGAUGE_MAX_WRITERS limits the connections of a pipeline)"
)


def connect(dsn: str, name: str) -> psycopg.Connection:
    """Open a connection in autocommit mode. name: shown after `tidegauge` in pg_stat_activity.application_name.

    If either host vanishes, the other notices within 30 s (see state_backends/session.py).
    Raises PoolerError where a pooler is between the two.
    """
    mark = secrets.token_hex(8)
    with _naming_a_pooler():
        conn = psycopg.connect(
            dsn,
            autocommit=True,
            application_name=f"tidegauge {name}"[:63],
            options=f"{session_options(dsn)} -c {MARK}={mark}",
            connect_timeout=10,
            **CLIENT,
        )
    found = conn.execute(f"SELECT current_setting('{MARK}', true), ({DURABLE})").fetchone()
    if found is None or found[0] != mark:
        conn.close()
        raise PoolerError(POOLED)
    return conn


@contextmanager
def _naming_a_pooler() -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as error:
        if NOT_HANDED_ON not in str(error):
            raise
        raise PoolerError(POOLED) from error


@contextmanager
def lent(dsn: str, name: str) -> Iterator[psycopg.Connection]:
    """Lend the connection that this process keeps from task to task, or open one. See `connect`.

    A task that fails closes it, whatever it has met, as a server that was promoted since: the next attempt opens
    another.
    """
    conn = _still_open(dsn, name) or connect(dsn, name)
    try:
        yield conn
    except BaseException:
        conn.close()
        raise
    if _kept.setdefault(dsn, conn) is not conn:
        conn.close()  # another thread's was faster


def _still_open(dsn: str, name: str) -> psycopg.Connection | None:
    conn = _kept.pop(dsn, None)
    if conn is None:
        return None
    try:
        conn.execute("SELECT set_config('application_name', %s, false)", [f"tidegauge {name}"[:63]])
    except psycopg.OperationalError:
        conn.close()
        return None
    return conn


def session_options(dsn: str) -> str:
    """Return libpq's `options`: those of the address, then ours."""
    given = conninfo_to_dict(dsn).get("options") or ""
    return f"{given} {connection_options(**SESSION)}".strip()


@dataclass(frozen=True)
class Writers:
    """states: how many are fed at once. partitions: at most so many tasks write each of them."""

    states: int
    partitions: int


def divide_writers(limit: int, states: int) -> Writers:
    """Divide `limit` connections among the states of a pipeline: all states at once if there is one for each.

    limit, states: 1 or more. The product of the result's two numbers is at most `limit`.
    """
    at_once = min(states, limit)
    return Writers(at_once, limit // at_once)


def rounds(states: Sequence[T], limit: int) -> Iterator[tuple[Sequence[T], int]]:
    """Yield the states to feed at the same time, and the number of partitions in which each of them is written."""
    writers = divide_writers(limit, len(states))
    for first in range(0, len(states), writers.states):
        yield states[first : first + writers.states], writers.partitions


def writer_limit(conn: psycopg.Connection, environ: Mapping[str, str] = os.environ) -> int:
    """Return how many tasks of this pipeline may write at once: `TIDEGAUGE_MAX_WRITERS`, or what the server can spare.

    That is half of the connections it allows for this role and database, at most 32. The other half is for the web,
    maintenance and another pipeline; set the variable for each pipeline if there are several.
    Raises RuntimeSetupError if the variable is not a number of 1 or more.
    """
    given = environ.get("TIDEGAUGE_MAX_WRITERS", "")
    if given:
        if not (given.isdecimal() and int(given)):
            raise RuntimeSetupError(f"TIDEGAUGE_MAX_WRITERS: {given!r} is not a number of writers; set it to 1 or more")
        return int(given)
    return max(1, min(MOST_WRITERS, _connections(conn) // 2))


def _connections(conn: psycopg.Connection) -> int:
    row = conn.execute(
        # reserved_connections exists since PostgreSQL 16. A limit of -1 means no limit.
        "SELECT least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
        "- coalesce(current_setting('reserved_connections', true)::int, 0), nullif(r.rolconnlimit, -1), "
        "nullif(d.datconnlimit, -1)) FROM pg_roles r, pg_database d "
        "WHERE r.rolname = current_user AND d.datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])
