"""Opens a pipeline's database connections, with their time-outs, and limits how many a batch may use at once.

A task holds one connection while it writes. A cluster of 500 cores would open 500, but a server allows 100 by default
and is no faster with more than a few. So only a few tasks write a batch, however many computed it.
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

# Kept because a Python worker of Spark runs one task after another; it exits a minute after its last one.
_kept: dict[str, psycopg.Connection] = {}

# More tasks would hold connections only to wait, because writing is limited by the server's cores.
MOST_WRITERS = 32

# A task that waits longer than this waits for a stuck writer; it may fail, because the batch is then retried.
SESSION = {
    "statement_timeout": "10min",
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "10min",
    "work_mem": "64MB",  # a task's rows are sorted by key before they are merged
    "idle_session_timeout": "0",  # never, because an idle driver's session holds its pipeline's lock
    "timezone": "UTC",
}

# A setting that only this session is opened with. It detects a pooler, because a pooler lends sessions of its own to
# its clients without the options that they connect with: PgBouncer refuses those, or is told to ignore them.
MARK = "tidegauge.session"
NOT_HANDED_ON = "unsupported startup parameter"
POOLED = (
    "the database's address leads to a connection pooler, such as PgBouncer, whose clients share sessions, but drivers "
    "and tasks need sessions of their own for their locks and settings; give the address of the server itself "
    "(TIDEGAUGE_MAX_WRITERS limits the connections of a pipeline)"
)


def connect(dsn: str, name: str) -> psycopg.Connection:
    """Open a connection in autocommit mode. name: shown after `tidegauge` in pg_stat_activity.application_name.

    If either host vanishes, the other notices within 30 s (see state_backends/session.py).
    Raises PoolerError if a connection pooler is in between.
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
    # Also turns synchronous_commit on if it is off, because committed batches must be durable.
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
def lent(dsn: str, name: str, *, in_transaction: bool = False) -> Iterator[psycopg.Connection]:
    """Lend the connection that this process keeps from task to task, or open one. See `connect`.

    in_transaction: lend it in a transaction, which is committed at the end. It begins in the round trip that finds out
    whether the connection is still open.
    Closes it if the task fails with any error, because the cause may be the connection itself, for example after a
    failover; the next attempt then opens another.
    """
    conn = _still_open(dsn, name, in_transaction)
    if conn is None:
        conn = connect(dsn, name)
        if in_transaction:
            conn.execute("BEGIN")
    try:
        yield conn
        conn.commit()
    except BaseException:
        conn.close()
        raise
    if _kept.setdefault(dsn, conn) is not conn:
        conn.close()  # because another thread has kept one in the meantime


def _still_open(dsn: str, name: str, in_transaction: bool) -> psycopg.Connection | None:
    conn = _kept.pop(dsn, None)
    if conn is None:
        return None
    try:
        with conn.pipeline():
            if in_transaction:
                conn.execute("BEGIN")
            conn.execute("SELECT set_config('application_name', %s, false)", [f"tidegauge {name}"[:63]])
    except psycopg.OperationalError:
        conn.close()
        return None
    return conn


def session_options(dsn: str) -> str:
    """Return libpq's `options`: those of the address, then ours, because the last value of a setting wins."""
    given = conninfo_to_dict(dsn).get("options") or ""
    return f"{given} {connection_options(**SESSION)}".strip()


@dataclass(frozen=True)
class Writers:
    """states: how many are written at once. partitions: the number of tasks that may write each of them."""

    states: int
    partitions: int


def divide_writers(limit: int, states: int) -> Writers:
    """Divide `limit` connections among the states of a pipeline; all are written at once if there is one for each.

    limit, states: 1 or more. The product of the result's two numbers is at most `limit`.
    """
    at_once = min(states, limit)
    return Writers(at_once, limit // at_once)


def rounds(states: Sequence[T], limit: int) -> Iterator[tuple[Sequence[T], int]]:
    """Yield the states to write at the same time, and the number of partitions in which each of them is written."""
    writers = divide_writers(limit, len(states))
    for first in range(0, len(states), writers.states):
        yield states[first : first + writers.states], writers.partitions


def writer_limit(conn: psycopg.Connection, environ: Mapping[str, str] = os.environ) -> int:
    """Return how many tasks of this pipeline may write at once: `TIDEGAUGE_MAX_WRITERS`, or what the server can spare.

    That is half of the connections it allows for this role and database, at most 32. The other half is for the web
    application, maintenance and another pipeline; set the variable for each pipeline if there are several.
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
