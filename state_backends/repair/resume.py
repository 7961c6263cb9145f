"""Resume point: the position of a pipeline's sources after a committed batch, as recorded in the ledger.

The ledger stores the source offsets of every batch, and the files that it read. So a checkpoint that is lost, or older
or newer than the ledger, can be written again (pipelines/repair/checkpoint_writer.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tidegauge.state_backends.errors import ResumeError
from tidegauge.state_backends.ledger.backfill import check_txid
from tidegauge.state_backends.schema.catalog import Catalog

# The source offsets after a batch, one JSON value per source; None if nothing was read from it yet.
Offsets = Sequence[Any]

# Path in the source's folder to time of modification, in ms since 1970.
Files = dict[str, int]

BATCH = "SELECT txid, batch_id, batch_time, offsets FROM tidegauge.batch WHERE pipeline = %s AND txid = %s"

# Finds the newest batch whose input is not on record. Batches up to `fed_after` do not matter, because the present
# states have not counted them.
UNRECORDED = """
SELECT greatest(CASE WHEN p.files_since > p.fed_after THEN p.files_since END, (
    SELECT max(b.txid) FROM tidegauge.batch b
    WHERE b.pipeline = p.name AND b.txid > p.fed_after AND b.txid <= %(txid)s AND b.input IS NULL))
FROM tidegauge.pipeline p WHERE p.name = %(pipeline)s
"""


STEPS = """
SELECT txid, rows_in FROM tidegauge.batch
WHERE pipeline = %s AND txid > %s AND txid <= %s AND committed_at IS NOT NULL AND offsets IS NOT NULL ORDER BY txid
"""


@dataclass(frozen=True)
class ResumePoint:
    """The batch that a pipeline resumes after.

    batch_id: Spark's number of it; -1: before the first batch. before: the offsets of the batch before it; the same as
    `offsets` if those are unknown. opened: the offsets of the next batch, if it was begun and must have the same input
    again.
    """

    pipeline: str
    checkpoint_id: str
    txid: int
    batch_id: int
    batch_time: datetime
    offsets: Offsets
    before: Offsets
    opened: Offsets | None = None

    def moved(self, offsets: Offsets) -> "ResumePoint":
        """Return the point with other offsets, from which the next batch is planned."""
        return replace(self, offsets=offsets, before=offsets, opened=None)


def resume_point(conn: psycopg.Connection, pipeline: str, txid: int | None = None) -> ResumePoint:
    """Return where the sources stood at batch `txid`; None: at the committed one, with the open batch if there is one.

    Raises ResumeError if the ledger does not have the offsets.
    """
    with conn.cursor(row_factory=dict_row) as cursor:
        ledger = cursor.execute("SELECT * FROM tidegauge.pipeline WHERE name = %s", [pipeline]).fetchone()
    if ledger is not None and not ledger["checkpoint_id"]:
        check_txid(conn, pipeline, ledger["committed_txid"])
    if ledger is None or not ledger["checkpoint_id"] or not ledger["committed_txid"]:
        raise ResumeError(f"pipeline {pipeline!r}: has committed no batch, so it can start with any checkpoint")
    last = ledger["committed_txid"] if txid is None else txid
    check_txid(conn, pipeline, last)
    batch, before = _batch(conn, pipeline, last), _batch(conn, pipeline, last - 1)
    if batch is None or batch["offsets"] is None:
        raise _unknown(pipeline, f"does not have the source offsets of batch {last}")
    follows = before is not None and before["offsets"] is not None and before["batch_id"] == batch["batch_id"] - 1
    return ResumePoint(
        pipeline,
        ledger["checkpoint_id"],
        last,
        batch["batch_id"],
        batch["batch_time"],
        batch["offsets"],
        before["offsets"] if before is not None and follows else batch["offsets"],
        _opened(conn, pipeline, ledger["open_txid"]) if txid is None else None,
    )


def committed_range(conn: psycopg.Connection, pipeline: str) -> tuple[int, int]:
    """Return the first and the last txid that the present states have counted; if there is none, last < first."""
    row = conn.execute("SELECT fed_after + 1, committed_txid FROM tidegauge.pipeline WHERE name = %s", [pipeline])
    first, last = row.fetchone() or (1, 0)
    return first, last


def steps(conn: psycopg.Connection, pipeline: str, after: int, last: int, rows: int) -> list[int]:
    """Return the txids after which to split the input of the batches from `after` (excluded) to `last`.

    Each part has at least `rows` rows, except that the last two batches are always separate, so that the last one can
    be reverted.
    """
    found, since = list[int](), 0
    for txid, counted in conn.execute(STEPS, [pipeline, after, last]):
        since += counted or 0
        if since >= rows or txid >= last - 1:
            found.append(txid)
            since = 0
    return found


def files_up_to(conn: psycopg.Connection, pipeline: str, txid: int, place: int) -> dict[int, Files]:
    """Return the files that each batch up to `txid` has read from the source at `place`, by txid.

    Raises ResumeError if some of these batches are older than the record of files.
    """
    row = conn.execute(UNRECORDED, {"pipeline": pipeline, "txid": txid}).fetchone()
    if row is not None and row[0] is not None:
        raise _unknown(pipeline, f"does not have the names of all files that were read up to batch {row[0]}")
    return _files(conn, pipeline, place, 0, txid)


def files_after(conn: psycopg.Connection, pipeline: str, txid: int, place: int) -> set[str]:
    """Return the files that batches after `txid` have read from the source at `place`, by path in its folder."""
    later = _files(conn, pipeline, place, txid, None)
    return {path for files in later.values() for path in files}


def _files(conn: psycopg.Connection, pipeline: str, place: int, after: int, last: int | None) -> dict[int, Files]:
    rows = conn.execute(
        "SELECT f.txid, f.files FROM tidegauge.input_file f JOIN tidegauge.pipeline p ON p.name = f.pipeline "
        "WHERE p.name = %s AND f.source = %s AND f.txid > greatest(p.fed_after, %s) "
        "AND f.txid <= coalesce(%s, f.txid) ORDER BY f.txid",
        [pipeline, place, after, last],
    )
    return dict(rows.fetchall())


def _batch(conn: psycopg.Connection, pipeline: str, txid: int) -> dict[str, Any] | None:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(BATCH, [pipeline, txid]).fetchone()


def _opened(conn: psycopg.Connection, pipeline: str, open_txid: int | None) -> Offsets | None:
    """Return the offsets of the open batch; None if it may be planned again: it was not begun, or can be reverted."""
    batch = None if open_txid is None else _batch(conn, pipeline, open_txid)
    if batch is None:
        return None
    fixed = [spec.name for spec in Catalog(conn).specs(pipeline) if spec.kind != "opaque"]
    if batch["offsets"] is None and fixed:
        raise _unknown(
            pipeline,
            f"does not have the source offsets of batch {open_txid}, which has begun to write state {fixed[0]!r}, "
            "which cannot be reverted",
        )
    opened: Offsets | None = batch["offsets"]
    return opened


def _unknown(pipeline: str, lack: str) -> ResumeError:
    return ResumeError(
        f"pipeline {pipeline!r}: the ledger {lack}; restore the checkpoint from a backup, or run with --reprocess"
    )
