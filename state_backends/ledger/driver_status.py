"""Driver status: which driver runs a pipeline, since when, how it is doing, and whether it should pause.

It is not in the ledger's row, because executors lock that row while they write and an update would wait for them. It
is a table and not a synchronizer, because a pipeline has one driver at a time, and each of its reports (two a second)
replaces the one before. Which drivers and workers are alive at all is in synchronizer/membership.py.
"""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from tidegauge.state_backends.ledger import driver_start


@dataclass(frozen=True)
class DesiredState:
    """What a driver must check between two batches.

    fence, token: the ledger's; fence is None if the pipeline does not exist. held: whether any session holds its lock.
    paused: whether the driver must pause. by, since: who set that last, and when; "" and None if it was never set.
    replay: whether dead letters wait to be replayed.
    """

    fence: int | None
    token: str
    held: bool
    paused: bool
    by: str = ""
    since: datetime | None = None
    replay: bool = False


def register_driver(conn: psycopg.Connection, pipeline: str, waits_for: str = "") -> None:
    """Record this process as the pipeline's driver, and how it was started. waits_for: what for, in words."""
    conn.execute(
        "INSERT INTO tidegauge.driver (pipeline, host, pid, since, status, message, started, updated_at) "
        "VALUES (%s, %s, %s, clock_timestamp(), 'starting', %s, %s, clock_timestamp()) "
        "ON CONFLICT (pipeline) DO UPDATE SET host = excluded.host, pid = excluded.pid, since = excluded.since, "
        "status = excluded.status, message = excluded.message, started = excluded.started, failures = 0, "
        "max_failures = NULL, next_try_at = NULL, updated_at = excluded.updated_at",
        [
            pipeline,
            socket.gethostname(),
            os.getpid(),
            waits_for,
            json.dumps(driver_start.of_pipeline(pipeline).as_json()),
        ],
    )


def describe_holder(conn: psycopg.Connection, pipeline: str) -> str:
    """Return the pipeline's driver for a message: host, pid and since when."""
    row = conn.execute("SELECT host, pid, since FROM tidegauge.driver WHERE pipeline = %s", [pipeline]).fetchone()
    return f"host {row[0]!r}, pid {row[1]}, since {row[2]:%Y-%m-%d %H:%M:%S %Z}" if row else "an unknown driver"


def reported_at(conn: psycopg.Connection, pipeline: str) -> datetime | None:
    """Return when the pipeline's driver reported last; None if it never had one."""
    row = conn.execute("SELECT updated_at FROM tidegauge.driver WHERE pipeline = %s", [pipeline]).fetchone()
    return row[0] if row else None


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
    """Record the driver's status, a message for people, and its progress, any JSON object (None keeps the last one).

    status: starting, running, paused, restarting, stopped, finished or failed. failures: how many in a row.
    max_failures: how many in a row end the driver. next_try_at: when a restarting driver tries again.
    """
    conn.execute(
        "UPDATE tidegauge.driver SET status = %s, message = %s, progress = coalesce(%s::jsonb, progress), "
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


def set_desired_state(conn: psycopg.Connection, pipeline: str, *, paused: bool, by: str) -> None:
    """Set whether the pipeline's driver must pause, the present one and later ones. by: who asks, for people.

    Setting the same value again keeps the first `by`. Raises psycopg.errors.ForeignKeyViolation if the pipeline is not
    registered.
    """
    conn.execute(
        "INSERT INTO tidegauge.pipeline_wish AS w (pipeline, paused, requested_by, requested_at) "
        "VALUES (%s, %s, %s, clock_timestamp()) "
        "ON CONFLICT (pipeline) DO UPDATE SET paused = excluded.paused, requested_by = excluded.requested_by, "
        "requested_at = excluded.requested_at WHERE w.paused <> excluded.paused",
        [pipeline, paused, by],
    )


def read_desired_state(conn: psycopg.Connection, pipeline: str) -> DesiredState:
    """Return what the pipeline's driver must check. Takes no lock, so that it never waits for an open batch."""
    row = conn.execute(
        "SELECT p.fence, p.token, tidegauge.has_driver(p.name), coalesce(w.paused, false), "
        "coalesce(w.requested_by, ''), w.requested_at, EXISTS (SELECT FROM tidegauge.dead_letter l "
        "WHERE l.pipeline = p.name AND l.replay_at IS NOT NULL AND l.replay_txid IS NULL) "
        "FROM tidegauge.pipeline p LEFT JOIN tidegauge.pipeline_wish w ON w.pipeline = p.name WHERE p.name = %s",
        [pipeline],
    ).fetchone()
    return DesiredState(*row) if row else DesiredState(fence=None, token="", held=False, paused=False)
