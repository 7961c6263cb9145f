"""Marks: what an answer depends on besides the question, read at the cost of one row.

While the mark of a state stays the same, so do its rows as a reader of whole batches sees them, but for those that
expire meanwhile.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from state_backends.committed import ledger_sql

# A row of the catalog has another xmin after every change to it: the definition, ttl, a table made anew.
CATALOG = "SELECT xmin::text, created_at FROM tidemark.state WHERE name = %s"

BATCH = ledger_sql(
    "p.committed_txid, p.committed_attempt, p.committed_time, s.xmin::text, s.created_at, now()"
).as_bytes()


@dataclass(frozen=True)
class Mark:
    """txid, attempt, at: of the committed batch. made: of the catalog's row. clock: what a reader takes for now."""

    txid: int
    attempt: int
    at: datetime | None
    made: tuple[Any, ...]
    clock: datetime


def of_catalog(conn: psycopg.Connection, name: str) -> tuple[Any, ...] | None:
    """Return what changes in the catalog whenever a state does; None where there is no such state."""
    return conn.execute(CATALOG, [name]).fetchone()


def of_batch(conn: psycopg.Connection, name: str) -> Mark | None:
    row = conn.execute(BATCH, [name]).fetchone()
    return None if row is None else Mark(row[0], row[1], row[2], (row[3], row[4]), row[5])
