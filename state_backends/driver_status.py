"""The roster: which driver serves a pipeline, since when, how it is, and what people wish of it.

Apart from the ledger's row, which nobody may touch while a batch is open. A table and not a synchronizer: a pipeline
has one driver at a time, which writes twice a second what replaces the last, so there is nothing to agree upon and
nothing to look back to. Who is alive at all, drivers and workers, stands in synchronizer/membership.py.
"""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg


@dataclass(frozen=True)
class DesiredState:
    """What a driver must heed between two batches.

    fence: the ledger's, None where the pipeline is gone. held: whether any session holds the pipeline's lock.
    paused: whether people wish it to rest; by: who said so last, since: when (None: nobody ever did).
    """

    fence: int | None
    held: bool
    paused: bool
    by: str = ""
    since: datetime | None = None


def introduce(conn: psycopg.Connection, pipeline: str) -> None:
    """Name this process as the pipeline's driver."""
    conn.execute(
        "INSERT INTO tidemark.driver (pipeline, host, pid, since, status, updated_at) "
        "VALUES (%s, %s, %s, clock_timestamp(), 'starting', clock_timestamp()) ON CONFLICT (pipeline) DO UPDATE "
        "SET host = excluded.host, pid = excluded.pid, since = excluded.since, status = excluded.status, "
        "message = '', failures = 0, max_failures = NULL, next_try_at = NULL, updated_at = excluded.updated_at",
        [pipeline, socket.gethostname(), os.getpid()],
    )


def report(
    conn: psycopg.Connection,
    pipeline: str,
    status: str,
    message: str = "",
    progress: Mapping[str, Any] | None = None,
    *,
    failures: int = 0,
    max_failures: int | None = None,
    next_try_at: datetime | None = None,
) -> None:
    """Say how the driver is: its status, a message for people, and figures (None keeps the last ones).

    status: starting, running, paused, restarting, stopped, finished or failed. failures: in a row; max_failures: how
    many of them end it. next_try_at: while it restarts.
    """
    conn.execute(
        "UPDATE tidemark.driver SET status = %s, message = %s, progress = coalesce(%s::jsonb, progress), "
        "failures = %s, max_failures = %s, next_try_at = %s, updated_at = clock_timestamp() WHERE pipeline = %s",
        [
            status,
            message,
            None if progress is None else json.dumps(progress),
            failures,
            max_failures,
            next_try_at,
            pipeline,
        ],
    )


def wish(conn: psycopg.Connection, pipeline: str, *, paused: bool, by: str) -> None:
    """Wish that the pipeline's driver, this one and any later, rests or runs. by: who says so, for people.

    A wish that stands already stays as it is, with whom it was of. Raises psycopg.errors.ForeignKeyViolation where no
    such pipeline is registered.
    """
    conn.execute(
        "INSERT INTO tidemark.pipeline_wish AS w (pipeline, paused, requested_by, requested_at) "
        "VALUES (%s, %s, %s, clock_timestamp()) "
        "ON CONFLICT (pipeline) DO UPDATE SET paused = excluded.paused, requested_by = excluded.requested_by, "
        "requested_at = excluded.requested_at WHERE w.paused <> excluded.paused",
        [pipeline, paused, by],
    )


def orders(conn: psycopg.Connection, pipeline: str) -> DesiredState:
    """Return what the pipeline's driver must heed. A plain look, which locks nothing."""
    row = conn.execute(
        "SELECT p.fence, tidemark.has_driver(p.name), coalesce(w.paused, false), coalesce(w.requested_by, ''), "
        "w.requested_at FROM tidemark.pipeline p LEFT JOIN tidemark.pipeline_wish w ON w.pipeline = p.name "
        "WHERE p.name = %s",
        [pipeline],
    ).fetchone()
    return DesiredState(*row) if row else DesiredState(fence=None, held=False, paused=False)


def holder(conn: psycopg.Connection, pipeline: str) -> str:
    """Return who drives the pipeline, for people: host, pid and since when."""
    row = conn.execute("SELECT host, pid, since FROM tidemark.driver WHERE pipeline = %s", [pipeline]).fetchone()
    return f"host {row[0]!r}, pid {row[1]}, since {row[2]:%Y-%m-%d %H:%M:%S %Z}" if row else "an unknown driver"
