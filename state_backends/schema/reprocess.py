"""The record of a reprocess: how far it is, kept in the ledger, so that the next start finishes what was cut short.

    feeding ──> swapped ──> settled
       └──────> aborted

A reprocess feeds shadow tables (feeding) until one transaction puts them in the place of the states (swapped). Spark's
checkpoint is a folder, which no transaction covers: it is moved afterwards (settled). Each phase is entered in the same
transaction as what it says, so a process may be killed anywhere and the next one sees what is left to do.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import psycopg
from psycopg.rows import class_row

from state_backends.errors import SwapError


class Phase(StrEnum):
    """feeding: the shadow is fed, or waits to be. swapped: its checkpoint is not in place yet. aborted: it is gone."""

    FEEDING = "feeding"
    SWAPPED = "swapped"
    SETTLED = "settled"
    ABORTED = "aborted"


@dataclass(frozen=True)
class ReprocessRecord:
    """One reprocess of a pipeline. checkpoint: Spark's folder of the pipeline, as the reprocess was given it."""

    id: int
    pipeline: str
    phase: Phase
    checkpoint: str
    started_at: datetime
    swapped_at: datetime | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "phase", Phase(self.phase))


def newest(conn: psycopg.Connection, pipeline: str) -> ReprocessRecord | None:
    """Return the pipeline's newest reprocess, None if there was none; locked until the caller's transaction ends."""
    with conn.cursor(row_factory=class_row(ReprocessRecord)) as cursor:
        return cursor.execute(
            "SELECT id, pipeline, phase, checkpoint, started_at, swapped_at FROM tidemark.reprocess "
            "WHERE pipeline = %s ORDER BY id DESC LIMIT 1 FOR UPDATE",
            [pipeline],
        ).fetchone()


def begin(conn: psycopg.Connection, pipeline: str, checkpoint: str) -> None:
    conn.execute("INSERT INTO tidemark.reprocess (pipeline, checkpoint) VALUES (%s, %s)", [pipeline, checkpoint])


def enter(conn: psycopg.Connection, pipeline: str, before: Phase, after: Phase) -> None:
    """Take the pipeline's reprocess from one phase to the next. Raises SwapError if it is in another one."""
    moved = conn.execute(
        "UPDATE tidemark.reprocess SET phase = %(after)s, "
        "swapped_at = CASE WHEN %(after)s = 'swapped' THEN clock_timestamp() ELSE swapped_at END, "
        "ended_at = CASE WHEN %(after)s IN ('settled', 'aborted') THEN clock_timestamp() END "
        "WHERE pipeline = %(pipeline)s AND phase = %(before)s",
        {"pipeline": pipeline, "before": before, "after": after},
    ).rowcount
    if not moved:
        raise SwapError(f"pipeline {pipeline!r}: no reprocess is under way; begin one with --reprocess")
