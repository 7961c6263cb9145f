"""The roster: which driver serves a pipeline, since when, and how it is.

Apart from the ledger's row, which nobody may touch while a batch is open. A table and not a synchronizer: a pipeline
has one driver at a time, which writes twice a second what replaces the last, so there is nothing to agree upon and
nothing to look back to. Who is alive at all, drivers and workers, stands in synchronizer/membership.py.
"""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

import psycopg


def introduce(conn: psycopg.Connection, pipeline: str) -> None:
    """Name this process as the pipeline's driver."""
    conn.execute(
        "INSERT INTO tidemark.driver (pipeline, host, pid, since, status, updated_at) "
        "VALUES (%s, %s, %s, clock_timestamp(), 'starting', clock_timestamp()) ON CONFLICT (pipeline) DO UPDATE "
        "SET host = excluded.host, pid = excluded.pid, since = excluded.since, status = excluded.status, "
        "message = '', updated_at = excluded.updated_at",
        [pipeline, socket.gethostname(), os.getpid()],
    )


def report(
    conn: psycopg.Connection, pipeline: str, status: str, message: str = "", progress: Mapping[str, Any] | None = None
) -> None:
    """Say how the driver is: its status, a message for people, and figures (None keeps the last ones).

    status: starting, running, restarting, stopped, finished or failed.
    """
    conn.execute(
        "UPDATE tidemark.driver SET status = %s, message = %s, progress = coalesce(%s::jsonb, progress), "
        "updated_at = clock_timestamp() WHERE pipeline = %s",
        [status, message, None if progress is None else json.dumps(progress), pipeline],
    )


def holder(conn: psycopg.Connection, pipeline: str) -> str:
    """Return who drives the pipeline, for people: host, pid and since when."""
    row = conn.execute("SELECT host, pid, since FROM tidemark.driver WHERE pipeline = %s", [pipeline]).fetchone()
    return f"host {row[0]!r}, pid {row[1]}, since {row[2]:%Y-%m-%d %H:%M:%S %Z}" if row else "an unknown driver"
