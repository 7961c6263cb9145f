"""A connection to the database that gives up on stuck statements, locks and peers."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psycopg

from pipelines.errors import RuntimeSetupError

# A task that waits longer has met a stuck writer; failing it lets the batch be tried again. They travel with the
# connection's first message, so they cost no round trip.
SESSION = {
    "statement_timeout": "10min",
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "10min",
    "work_mem": "64MB",  # a task's rows are sorted by key before they are merged
    "timezone": "UTC",
}


def connect(dsn: str, name: str) -> psycopg.Connection:
    """Open a connection in autocommit mode. name: what the server's list of connections shows after `tidemark`."""
    options = " ".join(f"-c {setting}={value}" for setting, value in SESSION.items())
    return psycopg.connect(
        dsn,
        autocommit=True,
        application_name=f"tidemark {name}"[:63],
        options=options,
        connect_timeout=10,
        keepalives_idle=30,
    )


# Writers: how many tasks of a batch may write at once, so that a large cluster does not use up the database.
#
# A task holds one connection while it writes. A cluster of 500 cores would open 500, and a server takes 100 unless
# told otherwise; long before that more of them gain nothing. So a batch is written by few tasks, however many
# computed it.


T = TypeVar("T")

# A server writes on its own cores; what waits for one of them need not hold a connection meanwhile.
MOST_WRITERS = 32


@dataclass(frozen=True)
class Writers:
    """states: how many are fed at once. partitions: tasks of each that write, at most. Their product is the bound."""

    states: int
    partitions: int


def share_out(limit: int, states: int) -> Writers:
    """Share `limit` connections out among the states of a pipeline: all of them at once, while there is one for each.

    limit, states: 1 or more.
    """
    at_once = min(states, limit)
    return Writers(at_once, limit // at_once)


def rounds(states: Sequence[T], limit: int) -> Iterator[tuple[Sequence[T], int]]:
    """Yield the states of a pipeline to feed side by side, and into how many partitions each of them is written."""
    shared = share_out(limit, len(states))
    for first in range(0, len(states), shared.states):
        yield states[first : first + shared.states], shared.partitions


def writer_limit(conn: psycopg.Connection, environ: Mapping[str, str] = os.environ) -> int:
    """Return how many tasks of this pipeline may write at once: `TIDEMARK_MAX_WRITERS`, or what the server can spare.

    That is half of the connections it has for this role and database, at most 32: the other half is for the web,
    maintenance and other pipelines, which want to be told their shares where there are several of them.
    Raises RuntimeSetupError where the variable holds no number from 1 on.
    """
    given = environ.get("TIDEMARK_MAX_WRITERS", "")
    if given:
        if not (given.isdecimal() and int(given)):
            raise RuntimeSetupError(f"TIDEMARK_MAX_WRITERS: {given!r} is no number of writers; set it to 1 or more")
        return int(given)
    return max(1, min(MOST_WRITERS, _connections(conn) // 2))


def _connections(conn: psycopg.Connection) -> int:
    row = conn.execute(
        # reserved_connections came with PostgreSQL 16. A limit of -1 is none.
        "SELECT least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
        "- coalesce(current_setting('reserved_connections', true)::int, 0), nullif(r.rolconnlimit, -1), "
        "nullif(d.datconnlimit, -1)) FROM pg_roles r, pg_database d "
        "WHERE r.rolname = current_user AND d.datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])
