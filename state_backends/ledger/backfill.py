"""The record of a backfill: a pipeline counts history from another source first, then goes on with its own.

Both are fed into the same states by batches of one ledger, so each counts once. What is different is the checkpoint:
the history has one of its own, and once it is exhausted the ledger is ready for that of the pipeline's source, whose
batches begin at 0 again. Batches of the history have offsets that the pipeline's source cannot read, so nothing is
resumed there.
"""

import json
from dataclasses import dataclass

import psycopg

from tidegauge.state_backends.errors import BackfillError


@dataclass(frozen=True)
class BackfillRecord:
    """source: what the history is read from, as the operator named it. upto: its last batch; None: it is under way."""

    source: str
    upto: int | None = None


def backfill_of(conn: psycopg.Connection, pipeline: str) -> BackfillRecord | None:
    """Return the backfill of a pipeline that its present states hold; None if there was none."""
    row = conn.execute(
        "SELECT backfill::text FROM tidegauge.pipeline WHERE name = %s AND backfill IS NOT NULL "
        "AND coalesce((backfill ->> 'upto')::bigint, committed_txid + 1) > fed_after",
        [pipeline],
    ).fetchone()
    found = json.loads(row[0]) if row else None
    return BackfillRecord(found["from"], found.get("upto")) if found else None


def begin(conn: psycopg.Connection, pipeline: str, source: str) -> None:
    """Begin a backfill, or go on with it. The caller holds the pipeline.

    Raises BackfillError where the pipeline has counted batches of its own, or has been backfilled.
    """
    found = backfill_of(conn, pipeline)
    if found is not None and found.upto is not None:
        raise BackfillError(
            f"pipeline {pipeline!r}: its history was counted from {found.source!r} up to batch {found.upto}, and its "
            "own source goes on since; history cannot come after that"
        )
    if found is not None and found.source != source:
        raise BackfillError(
            f"pipeline {pipeline!r}: is being backfilled from {found.source!r}; finish that, with `tidegauge backfill "
            f"{pipeline} --from {found.source}`"
        )
    row = conn.execute(
        "SELECT committed_txid, fed_after FROM tidegauge.pipeline WHERE name = %s", [pipeline]
    ).fetchone()
    assert row is not None
    if found is None and row[0] > row[1]:
        raise BackfillError(
            f"pipeline {pipeline!r}: has counted {row[0] - row[1]} batches of its own source, so history cannot come "
            f"before them; retire it (`tidegauge retire --pipeline {pipeline} --drop`), or backfill one of another name"
        )
    if found is None:
        conn.execute(
            "UPDATE tidegauge.pipeline SET backfill = jsonb_build_object('from', %s::text) WHERE name = %s",
            [source, pipeline],
        )


def hand_over(conn: psycopg.Connection, pipeline: str) -> int:
    """Let the pipeline's own source go on after the history; return the last batch of that. The caller holds it.

    Raises BackfillError while a batch of the history is open.
    """
    row = conn.execute(
        "UPDATE tidegauge.pipeline SET checkpoint_id = NULL, committed_batch_id = -1, "
        "backfill = backfill || jsonb_build_object('upto', committed_txid) WHERE name = %s AND open_txid IS NULL "
        "RETURNING committed_txid",
        [pipeline],
    ).fetchone()
    if row is None:
        raise BackfillError(f"pipeline {pipeline!r}: a batch of its history is open; run the backfill again")
    return int(row[0])


def check_live(conn: psycopg.Connection, pipeline: str) -> None:
    """Raise BackfillError where a driver of the pipeline's own source starts before the history has been counted."""
    found = backfill_of(conn, pipeline)
    if found is not None and found.upto is None:
        raise BackfillError(
            f"pipeline {pipeline!r}: its history is being counted from {found.source!r}; finish that first, with "
            f"`tidegauge backfill {pipeline} --from {found.source}`"
        )


def check_txid(conn: psycopg.Connection, pipeline: str, txid: int) -> None:
    """Raise BackfillError for a batch of the history, whose offsets are not those of the pipeline's own source."""
    found = backfill_of(conn, pipeline)
    if found is not None and (found.upto is None or txid <= found.upto):
        what = "is being" if found.upto is None else f"up to batch {found.upto} was"
        raise BackfillError(
            f"pipeline {pipeline!r}: {what} backfilled from {found.source!r}, where its own source cannot resume; "
            f"to count again, retire it (`tidegauge retire --pipeline {pipeline} --drop`) and backfill it again"
        )
