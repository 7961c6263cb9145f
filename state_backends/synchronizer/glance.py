"""Glance: the current value of a synchronizer for one who looks once, in one statement that writes nothing."""

import json
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from state_backends.synchronizer.copy import Apply, Copy, after
from state_backends.synchronizer.revisioned_stream import Entry


@dataclass(frozen=True)
class Glance:
    """What the log said. idle_seconds: since the last append, by the database's clock."""

    state: Any
    revision: int
    idle_seconds: float


def glance(conn: psycopg.Connection, name: str, apply: Apply) -> Glance | None:
    """Return the newest state, or None where there is no such log or nothing in it.

    One statement sees the log at one moment, whatever is appended or truncated meanwhile.
    """
    rows = conn.execute(_FROM_THE_MARK, {"name": name}).fetchall()
    copy: Copy | None = None
    for revision, record, _ in rows:
        copy = after(copy, Entry(revision, json.loads(record)), apply, name)
    return Glance(copy.state, copy.revision, rows[-1][2]) if copy else None


_FROM_THE_MARK: LiteralString = (
    "SELECT l.revision + 1, l.record::text, extract(epoch FROM clock_timestamp() - s.appended_at)::float8 "
    "FROM tidemark.synchronizer s JOIN tidemark.synchronizer_log l ON l.synchronizer = s.name "
    "AND l.revision >= greatest(s.mark, s.oldest) WHERE s.name = %(name)s ORDER BY l.revision"
)
