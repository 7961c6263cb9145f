"""Pinned batch: one batch of a state that several readers agree on, each with a connection and a time of its own.

A program that reads a state in parts, as Spark's tasks do, has no transaction that covers them. So the parts agree on a
batch beforehand, each reads the state as of it, and each sees that it still is what it was: not replayed, not replaced
by a reprocess, not of another ledger. What can no longer be read at that batch is an error, never another batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

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
    "SELECT p.name, p.committed_txid FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline "
    "WHERE s.name = %s"
)

# The last batch whose time is not after %(at)s, and the time of the first on record.
BY_TIME = """
SELECT max(b.txid) FILTER (WHERE b.batch_time <= %(at)s), min(b.batch_time) FROM tidegauge.batch b
WHERE b.pipeline = %(pipeline)s AND b.txid <= %(newest)s
"""

# What must not change under a reader: the batch and its attempt, whose ledger it is, what the state is declared to be.
SAME = sql.SQL(
    "SELECT p.committed_txid, p.committed_attempt, p.committed_time, p.epoch, s.version, s.ttl, s.created_at, now() "
    "FROM {} WHERE s.name = %s"
).format(STATE_AND_LEDGER_THEN)


@dataclass(frozen=True)
class PinnedBatch:
    """txid, attempt, at, epoch: as a Snapshot has them, `at` being its `as_of`. version, ttl, created_at: the state's.

    live_at: the time at which ttl is evaluated, that of the pinning; None: the batch's own, as for other reads in the
    past.
    """

    state: str
    txid: int
    attempt: int
    at: datetime | None
    epoch: str
    version: int
    ttl: timedelta | None
    created_at: datetime
    live_at: datetime | None = None


def pin(conn: psycopg.Connection, state: str, as_of: int | datetime | None = None) -> PinnedBatch:
    """Pin the committed batch; or the one that `as_of` names; or the last one whose batch time is not after `as_of`.

    Raises UnknownStateError, NotCommittedError, OutOfReachError, FindingError where the state is not served.
    """
    if found := findings.recorded_finding(conn, state):
        raise FindingError(found, state)
    row = conn.execute(COMMITTED, [state]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {state!r} is not registered with any pipeline")
    pipeline, newest = row
    if isinstance(as_of, datetime):
        as_of = _at(conn, state, as_of, {"pipeline": pipeline, "newest": newest})
    if as_of is not None and not 0 <= as_of <= newest:
        raise NotCommittedError(state, as_of, newest)
    return _pinned(conn, state, newest if as_of is None else as_of, is_now=as_of is None)


def export_pinned(
    reader: Reader, conn: psycopg.Connection, batch: PinnedBatch, bounds: KeyRange, measures: Sequence[str]
) -> Export:
    """Begin an export at a pinned batch. reader: over `conn`, which is the export's. bounds: without a search.

    Raises MovedOnError where the batch is not what it was, OutOfReachError where the state cannot be told as of it any
    more, and what `Reader.export` raises.
    """
    export = reader.export(
        prefix=bounds.prefix,
        start=bounds.start,
        stop=bounds.stop,
        measures=measures,
        as_of=batch.txid,
        live_at=batch.live_at,
    )
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
        # Rows in another store are not read under a snapshot of the ledger.
        check_same(conn, batch)


def check_same(conn: psycopg.Connection, batch: PinnedBatch) -> None:
    """Raise MovedOnError unless the batch is still what it was when it was pinned."""
    if _pinned(conn, batch.state, batch.txid, is_now=False) != replace(batch, live_at=None):
        raise MovedOnError(
            f"state {batch.state!r}: batch {batch.txid} is not what it was when this read began: it was replayed, the "
            "state was reprocessed or declared anew, or the ledger went back; read the state again"
        )


def ranges(spec: StateSpec, keys: Sequence[Key], bounds: KeyRange) -> list[KeyRange]:
    """Divide a range at these keys, which are in key order; parts without keys of the range are left out."""
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
    txid, attempt, at, epoch, version, ttl, created_at, now = row
    return PinnedBatch(state, txid, attempt, at, epoch, version, ttl, created_at, now if is_now else None)


def _at(conn: psycopg.Connection, state: str, at: datetime, ledger: dict[str, Any]) -> int:
    row = conn.execute(BY_TIME, {"at": at, **ledger}).fetchone()
    assert row is not None
    txid, first = row
    if txid is None:
        raise OutOfReachError.before(state, at, first)
    return int(txid)
