"""The record of a backfill: a pipeline first counts history from another source, then continues with its own.

Both feed the same states through batches of one ledger, so all input is counted once. The history has a checkpoint of
its own. Once it is exhausted, the ledger accepts the checkpoint of the pipeline's own source, whose batch ids start at
0 again. No checkpoint can be restored at a batch of the history, because the pipeline's own source cannot read the
offsets of that batch.
"""

import json
from dataclasses import dataclass

import psycopg

from tidegauge.state_backends.errors import BackfillError


@dataclass(frozen=True)
class BackfillRecord:
    """source: where the history is read from, as the operator named it. upto: its last batch; None while it runs."""

    source: str
    upto: int | None = None


def backfill_of(conn: psycopg.Connection, pipeline: str) -> BackfillRecord | None:
    """Return the backfill that fed the pipeline's present states; None if there was none."""
    row = conn.execute(
        "SELECT backfill::text FROM tidegauge.pipeline WHERE name = %s AND backfill IS NOT NULL "
        "AND coalesce((backfill ->> 'upto')::bigint, committed_txid + 1) > fed_after",
        [pipeline],
    ).fetchone()
    found = json.loads(row[0]) if row else None
    return BackfillRecord(found["from"], found.get("upto")) if found else None


def begin(conn: psycopg.Connection, pipeline: str, source: str) -> None:
    """Begin a backfill, or continue it. The caller holds the pipeline.

    Raises BackfillError if the pipeline has counted batches of its own source, if a backfill has ended, or if one from
    another source is under way.
    """
    found = backfill_of(conn, pipeline)
    if found is not None and found.upto is not None:
        raise BackfillError(
            f"pipeline {pipeline!r}: its history was counted from {found.source!r} up to batch {found.upto}, and its "
            "own source continues from there, so no more history can be added"
        )
    if found is not None and found.source != source:
        raise BackfillError(
            f"pipeline {pipeline!r}: a backfill from {found.source!r} is under way; finish it with `tidegauge backfill "
            f"{pipeline} --from {found.source}`"
        )
    row = conn.execute(
        "SELECT committed_txid, fed_after FROM tidegauge.pipeline WHERE name = %s", [pipeline]
    ).fetchone()
    assert row is not None
    if found is None and row[0] > row[1]:
        raise BackfillError(
            f"pipeline {pipeline!r}: it has counted {row[0] - row[1]} batches of its own source, so history cannot be "
            f"counted before them; retire it (`tidegauge retire --pipeline {pipeline} --drop`), or backfill a pipeline "
            "with another name"
        )
    if found is None:
        conn.execute(
            "UPDATE tidegauge.pipeline SET backfill = jsonb_build_object('from', %s::text) WHERE name = %s",
            [source, pipeline],
        )


def hand_over(conn: psycopg.Connection, pipeline: str) -> int:
    """End the history, so that the pipeline's own source continues; return the last batch of the history.

    The caller holds the pipeline. Raises BackfillError while a batch of the history is open.
    """
    # One UPDATE, so that the pipeline's own source never starts under the checkpoint of the history.
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
    """Raise BackfillError if the history is not counted yet, so that no driver reads the pipeline's own source."""
    found = backfill_of(conn, pipeline)
    if found is not None and found.upto is None:
        raise BackfillError(
            f"pipeline {pipeline!r}: its history is being counted from {found.source!r}; finish that first, with "
            f"`tidegauge backfill {pipeline} --from {found.source}`"
        )


def check_txid(conn: psycopg.Connection, pipeline: str, txid: int) -> None:
    """Raise BackfillError for a batch of the history, because the pipeline's own source cannot read its offsets."""
    found = backfill_of(conn, pipeline)
    if found is not None and (found.upto is None or txid <= found.upto):
        what = "it is being" if found.upto is None else f"its input up to batch {found.upto} was"
        raise BackfillError(
            f"pipeline {pipeline!r}: {what} backfilled from {found.source!r}, where its own source cannot resume; "
            f"to count again, retire it (`tidegauge retire --pipeline {pipeline} --drop`) and backfill it again"
        )
