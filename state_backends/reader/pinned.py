"""Pinned batch: one batch of a state that several readers agree on, each over its own connection at its own time.

A program that reads a state in parts, as Spark's tasks do, has no transaction that covers all parts. So they agree on a
batch beforehand. Each part reads the state as of that batch, and checks that the batch was not replayed, that no
reprocess replaced the state, and that the ledger is the same. If the state can no longer be read as of the batch, that
is an error; no other batch is read instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from tidegauge.state_backends.committed import STATE_AND_LEDGER_THEN
from tidegauge.state_backends.errors import (
    FindingError,
    MovedOnError,
    NotCommittedError,
    OutOfReachError,
    UnknownStateError,
)
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.reader.bounds import KeyRange
from tidegauge.state_backends.reader.reader import Export, Reader
from tidegauge.state_backends.spec.key_bytes import KeyBytes, after_prefix
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

if TYPE_CHECKING:
    import pyarrow as pa

COMMITTED = (
    "SELECT p.committed_txid FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline WHERE s.name = %s"
)

# The last committed batch whose time is not after %(at)s, the time of the first on record, the newest batch, and
# whether this is a standby whose newest batch is of an earlier time, so that the primary may have a later one.
BY_TIME = """
SELECT max(b.txid) FILTER (WHERE b.batch_time <= %(at)s), min(b.batch_time), p.committed_txid,
       pg_is_in_recovery() AND coalesce(max(b.batch_time) <= %(at)s, true)
FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline
LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid <= p.committed_txid
WHERE s.name = %(state)s GROUP BY p.committed_txid
"""

# What must not change while parts are read: the batch and its attempt, the ledger's epoch, the state's declaration.
SAME = sql.SQL(
    "SELECT p.committed_txid, p.committed_attempt, p.committed_time, p.epoch, s.version, s.ttl, s.created_at, now() "
    "FROM {} WHERE s.name = %s"
).format(STATE_AND_LEDGER_THEN)


@dataclass(frozen=True)
class PinnedBatch:
    """txid, attempt, batch_time, epoch: as in Snapshot. version, ttl, created_at: the state's.

    live_at: the time at which ttl is evaluated: when the batch was pinned, or None for the batch's own time, as for
    other reads of the past.
    """

    state: str
    txid: int
    attempt: int
    batch_time: datetime | None
    epoch: str
    version: int
    ttl: timedelta | None
    created_at: datetime
    live_at: datetime | None = None


def pin(
    conn: psycopg.Connection, state: str, *, at_txid: int | None = None, at_time: datetime | None = None
) -> PinnedBatch:
    """Pin the batch `at_txid`, or the last one whose batch time is not after `at_time`, or else the committed one.

    Raises UnknownStateError, NotCommittedError, OutOfReachError, and FindingError if the state is not served.
    """
    if found := findings.recorded_finding(conn, state):
        raise FindingError(found, state)
    if at_time is not None:
        return _pinned(conn, state, txid_at(conn, state, at_time), is_now=False)
    row = conn.execute(COMMITTED, [state]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    (newest,) = row
    if at_txid is not None and not 0 <= at_txid <= newest:
        raise NotCommittedError(state, at_txid, newest)
    return _pinned(conn, state, newest if at_txid is None else at_txid, is_now=at_txid is None)


def txid_at(conn: psycopg.Connection, state: str, at_time: datetime) -> int:
    """Return the last committed batch whose time is not after `at_time`.

    Raises UnknownStateError; OutOfReachError for a time before the first batch on record; NotCommittedError on a
    standby that may not have the batch yet.
    """
    row = conn.execute(BY_TIME, {"at": at_time, "state": state}).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    txid, first, newest, is_behind = row
    if is_behind:
        raise NotCommittedError(state, newest + 1, newest)
    if txid is None:
        raise OutOfReachError.before(state, at_time, first)
    return int(txid)


def export_pinned(
    reader: Reader, conn: psycopg.Connection, batch: PinnedBatch, bounds: KeyRange, measures: Sequence[str]
) -> Export:
    """Begin an export at a pinned batch. reader: over `conn`, which the export uses. bounds: without a search.

    Raises MovedOnError if the batch has changed, OutOfReachError if the state can no longer be read as of it, and what
    `Reader.export` raises.
    """
    export = reader.export(
        prefix=bounds.prefix,
        start=bounds.start,
        stop=bounds.stop,
        measures=measures,
        at_txid=batch.txid,
        live_at=batch.live_at,
    )
    # Checked after the export has begun, so that the check sees the snapshot from which the rows are read.
    try:
        check_same(conn, batch)
    except BaseException:
        export.close()
        raise
    return export


def record_batches(
    export: Export, conn: psycopg.Connection, batch: PinnedBatch, schema: "pa.Schema"
) -> Iterator["pa.RecordBatch"]:
    """Yield the Arrow batches of an export at a pinned batch. Raises MovedOnError as `export_pinned` does."""
    with export:
        yield from export.record_batches(schema)
        # Check again, because rows in another store are not read under a snapshot of the ledger.
        check_same(conn, batch)


def check_same(conn: psycopg.Connection, batch: PinnedBatch) -> None:
    """Raise MovedOnError if the batch has changed since it was pinned."""
    if _pinned(conn, batch.state, batch.txid, is_now=False) != replace(batch, live_at=None):
        raise MovedOnError(
            f"state {batch.state!r}: batch {batch.txid} has changed since this read began: it was replayed, the state "
            "was reprocessed or redeclared, or the ledger went back; read the state again"
        )


def ranges(spec: StateSpec, keys: Sequence[Key], bounds: KeyRange) -> list[KeyRange]:
    """Divide a range at these keys, which are in key order. Keys outside of the range are ignored."""
    encoded = KeyBytes(spec).encode
    low = max(encoded(bounds.prefix), encoded(bounds.start))
    ends = [after_prefix(encoded(bounds.prefix)), encoded(bounds.stop) if bounds.stop else None]
    high = min((end for end in ends if end is not None), default=None)
    inside = [key for key in keys if low < encoded(key) and (high is None or encoded(key) < high)]
    starts, stops = [bounds.start, *inside], [*inside, bounds.stop]
    return [KeyRange(bounds.prefix, start, stop) for start, stop in zip(starts, stops, strict=True)]


def _pinned(conn: psycopg.Connection, state: str, txid: int, *, is_now: bool) -> PinnedBatch:
    row = conn.execute(SAME, [txid, state]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    txid, attempt, batch_time, epoch, version, ttl, created_at, now = row
    return PinnedBatch(state, txid, attempt, batch_time, epoch, version, ttl, created_at, now if is_now else None)
