"""The record of a reprocess: its phase, stored in the ledger so that the next start can finish an interrupted one.

    feeding ──> swapped ──> settled ──> rolling_back ──> rolled_back
       └──────> aborted

A reprocess feeds shadow tables (feeding) until one transaction puts them in the place of the states (swapped). Spark's
checkpoint is a folder, which no transaction covers, so it is moved afterwards (settled). While the old tables are kept,
one transaction can put them back (rolling_back), and the old checkpoint follows (rolled_back). Each phase is entered in
the same transaction as its changes, so that after a crash the next process sees what is left to do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import psycopg
from psycopg.rows import class_row

from tidegauge.state_backends.errors import SwapError
from tidegauge.state_backends.schema.table_locks import RETRIED, TableLocks

# How long a swap waits for running tasks of the pipeline before it tries again, and how often it tries.
SWAP_LOCK_MS, SWAP_TRIES = 2_000, 30


class Phase(StrEnum):
    """feeding: the shadow is fed, or waits to be. swapped, rolling_back: the checkpoint is not in its place yet."""

    FEEDING = "feeding"
    SWAPPED = "swapped"
    SETTLED = "settled"
    ABORTED = "aborted"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"


# The phase that is entered once the checkpoint of a phase is in its place.
AFTER_MOVE = {Phase.SWAPPED: Phase.SETTLED, Phase.ROLLING_BACK: Phase.ROLLED_BACK}


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


def current(conn: psycopg.Connection, pipeline: str) -> ReprocessRecord | None:
    """Return the pipeline's unfinished reprocess, else its newest one, None if there was none.

    Locked until the caller's transaction ends.
    """
    with conn.cursor(row_factory=class_row(ReprocessRecord)) as cursor:
        return cursor.execute(
            "SELECT id, pipeline, phase, checkpoint, started_at, swapped_at FROM tidegauge.reprocess "
            "WHERE pipeline = %s ORDER BY phase IN ('feeding', 'swapped', 'rolling_back') DESC, id DESC LIMIT 1 "
            "FOR UPDATE",
            [pipeline],
        ).fetchone()


def begin(conn: psycopg.Connection, pipeline: str, checkpoint: str) -> None:
    conn.execute("INSERT INTO tidegauge.reprocess (pipeline, checkpoint) VALUES (%s, %s)", [pipeline, checkpoint])


def accept(conn: psycopg.Connection, pipeline: str, lacks: str) -> None:
    """Record, as accepted, what the reprocess under way lacks of the input that was counted before; empty if none."""
    conn.execute(
        "UPDATE tidegauge.reprocess SET accepted = %s WHERE pipeline = %s AND phase = 'feeding'", [lacks, pipeline]
    )


def enter(conn: psycopg.Connection, pipeline: str, before: Phase, after: Phase) -> None:
    """Move the pipeline's reprocess from phase `before` to `after`. Raises SwapError if it is in another phase."""
    moved = conn.execute(
        "UPDATE tidegauge.reprocess SET phase = %(after)s, "
        "swapped_at = CASE WHEN %(after)s = 'swapped' THEN clock_timestamp() ELSE swapped_at END, "
        "ended_at = CASE WHEN %(after)s IN ('settled', 'aborted', 'rolled_back') THEN clock_timestamp() END "
        "WHERE id = (SELECT max(id) FROM tidegauge.reprocess WHERE pipeline = %(pipeline)s AND phase = %(before)s)",
        {"pipeline": pipeline, "before": before, "after": after},
    ).rowcount
    if not moved:
        raise SwapError(f"pipeline {pipeline!r}: no reprocess is under way; begin one with --reprocess")


def in_swap_transaction(conn: psycopg.Connection, states: Sequence[str], change: Callable[[TableLocks], None]) -> None:
    """Run `change` in a transaction once these states have no long reads, and retry until it gets every lock.

    change: locks the ledger's row, which waits for the pipeline's tasks, and then takes the locks of the tables.
    """
    locks = TableLocks(conn, states)
    for attempt in range(1, SWAP_TRIES + 1):
        locks.await_readers()
        try:
            with conn.transaction():
                conn.execute("SELECT set_config('lock_timeout', %s, true)", [f"{SWAP_LOCK_MS}ms"])
                return change(locks)
        except RETRIED:
            if attempt == SWAP_TRIES:
                raise
