"""Deltas: the events that bring a client from its cursor to what readers see now. They are read in a thread.

A delta depends only on the subscription and the cursor, so it is read and encoded once for all clients that share them.
A cursor also has the attempt, because a batch that was reverted and committed again with other values must not be taken
for the batch that was sent. For keys of a state without a changelog it has their values, to find changes by comparing.

Events are encoded as server-sent events (WHATWG HTML, 9.2), each with one line of JSON as its data.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import orjson
import psycopg
from django.conf import settings

from tidegauge.state_backends import BACKENDS, Snapshot
from tidegauge.state_backends.reader.changes import ChangedBatch, Changes, changes, other_epoch
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.events.subscriptions import CommitsSubscription, StateSubscription

HEARTBEAT = b": still here\n\n"

# The most batches that one delta reads, because they are held in memory while a client reads slowly.
PAGE_BATCHES = 20

# The largest bigint has 19 digits. One less than it, because the next batch has to be a bigint, too.
MAX_TXID_DIGITS, MAX_TXID = 19, 2**63 - 2

NO_CHANGELOG = "the state keeps no changelog, so the batches since then are not available"

# The commit of each pipeline, and what pages show of its driver, for which there is no notification.
PIPELINES = """
SELECT p.name, p.committed_txid, p.committed_attempt, p.epoch, tidegauge.has_driver(p.name), d.status,
       d.failures, w.paused,
       (SELECT array_agg(s.name) FROM tidegauge.state s WHERE s.pipeline = p.name)
FROM tidegauge.pipeline p
LEFT JOIN tidegauge.driver d ON d.pipeline = p.name
LEFT JOIN tidegauge.pipeline_wish w ON w.pipeline = p.name
WHERE p.reprocesses IS NULL
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event, encoded once for all clients that get it."""

    event: str
    body: bytes


class EventId(NamedTuple):
    """The id of an event: its batch, and the ledger's epoch, because in another epoch the number means another batch.

    As text `42-8a1f0c2e9b7d4653`, or only `0` if no driver has made an epoch yet.
    """

    txid: int
    epoch: str

    def __str__(self) -> str:
        return f"{self.txid}-{self.epoch}" if self.epoch else str(self.txid)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for a text that cannot be the id of an event."""
        txid, _, epoch = text.partition("-")
        if not (txid.isascii() and txid.isdigit() and len(txid) <= MAX_TXID_DIGITS and int(txid) <= MAX_TXID):
            raise ValueError(text)
        return cls(int(txid), epoch)


@dataclass(frozen=True)
class Cursor:
    """The last batch that a client was sent. attempt, catalog_version: None if the client has only named an event.

    results: the values of its keys at that batch, as a lookup encodes them; set only if changes are found by comparing.
    """

    event_id: EventId
    attempt: int | None = None
    catalog_version: str | None = None
    results: bytes = b""

    @property
    def txid(self) -> int:
        return self.event_id.txid


@dataclass(frozen=True)
class CommitsCursor:
    """The pipelines' status that a client was last sent: each name, and the columns of PIPELINES."""

    pipelines: tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Delta:
    """frames: what to send. cursor: the client's cursor afterwards. more: whether to read on at once."""

    frames: Sequence[Frame]
    cursor: Any
    more: bool = False


def frame(event: str, data: dict[str, Any], event_id: EventId | None = None) -> Frame:
    """Return an event. event_id: what a client that reconnects sends as `Last-Event-ID`."""
    id_line = b"" if event_id is None else b"id: %s\n" % str(event_id).encode()
    return Frame(event, b"event: %s\n%sdata: %s\n\n" % (event.encode(), id_line, orjson.dumps(data)))


def last_id(event_id: EventId) -> bytes:
    """Return a block that advances a client's last event id without an event."""
    return b"id: %s\n\n" % str(event_id).encode()


def retry(milliseconds: int) -> bytes:
    return b"retry: %d\n\n" % milliseconds


def first_delta(subscription: StateSubscription, last: EventId | None) -> Delta:
    """Return the first delta of a client. last: the last event it was sent before it reconnected, if any."""
    if last is None:
        return readers.read(lambda conn: _begin(StateReads(conn, subscription), "snapshot", {}))
    return readers.read(lambda conn: _resume(StateReads(conn, subscription), Cursor(last)))


def next_delta(subscription: StateSubscription, cursor: Cursor) -> Delta:
    """Return the delta after a cursor; without frames if readers still see that batch."""
    return readers.read(lambda conn: _follow(StateReads(conn, subscription), cursor))


def commits_delta(subscription: CommitsSubscription, cursor: CommitsCursor | None) -> Delta:
    """Return the pipelines that have changed since `cursor`. cursor: None returns where every pipeline is now."""
    found = readers.read(lambda conn: _pipelines(conn, subscription))
    now = CommitsCursor(tuple(sorted(found.items())))
    if cursor is None:
        return Delta([frame("ready", {"pipelines": {name: status[0] for name, status in found.items()}})], now)
    known = dict(cursor.pipelines)
    changed = [frame("tide", _commit(name, status)) for name, status in found.items() if known.get(name) != status]
    dropped = [frame("tide", _commit(name, None)) for name in known if name not in found]
    return Delta([*changed, *dropped], now)


class StateReads:
    """The two reads of a state subscription, over one connection."""

    def __init__(self, conn: psycopg.Connection, subscription: StateSubscription) -> None:
        self.conn = conn
        self.subscription = subscription
        self.reader: Reader = readers.reader(conn, subscription.state)
        self.spec = self.reader.spec

    @property
    def compares(self) -> bool:
        """Whether changes of the keys can only be found by reading them again."""
        return self.subscription.keys is not None and not self.spec.changelog

    def snapshot(self) -> Snapshot:
        return self.reader.multi_get(self.subscription.keys or (), self.subscription.measures)

    def changes(self, after: int, batches: int = PAGE_BATCHES) -> Changes:
        wanted = self.subscription
        selection: dict[str, Any] = {"keys": wanted.keys, "prefix": wanted.prefix, "measures": wanted.measures}
        limit = settings.TIDEGAUGE_EVENTS_MAX_CHANGES
        return changes(self.conn, self.spec, after, self._published(), **selection, limit=limit, most_batches=batches)

    def _published(self) -> int | None:
        # Another store shows a batch only some time after the ledger has committed it.
        return None if BACKENDS[self.spec.backend].tables is not None else self.reader.committed()[0]


def _begin(reads: StateReads, event: str, fields: dict[str, Any]) -> Delta:
    """Return the delta of a client without a valid cursor: the values of its keys, or for a whole state its batch."""
    if reads.subscription.keys is None:
        now = reads.changes(0, batches=0)
        name, at = "ready" if event == "snapshot" else event, EventId(now.txid, now.epoch)
        start = frame(name, _fields(reads, at, now.batch_time) | fields, at)
        return Delta([start], Cursor(at, now.attempt, now.catalog_version))
    # Read before the snapshot, so that the next delta is a reset if the declaration changes in between.
    version = reads.changes(0, batches=0).catalog_version
    seen = reads.snapshot()
    results = {"isolation": reads.reader.isolation, "results": orjson.Fragment(seen.results)}
    at = EventId(seen.txid, seen.epoch)
    start = frame(event, _fields(reads, at, seen.batch_time) | fields | results, at)
    return Delta([start], Cursor(at, seen.attempt, version, seen.results if reads.compares else b""))


def _reset(reads: StateReads, reason: str) -> Delta:
    readers.clear_cache()
    return _begin(StateReads(reads.conn, reads.subscription), "reset", {"reason": reason})


def _resume(reads: StateReads, cursor: Cursor) -> Delta:
    now = reads.changes(cursor.txid, batches=0)
    reason = gap(now, cursor)
    if reason is None and not reads.spec.changelog and (reads.compares or now.txid != cursor.txid):
        reason = NO_CHANGELOG
    if reason is not None:
        return _reset(reads, reason)
    ready = frame("ready", _fields(reads, cursor.event_id, None) | {"resumed": True}, cursor.event_id)
    return Delta([ready], Cursor(cursor.event_id, now.attempt_then, now.catalog_version), more=True)


def _follow(reads: StateReads, cursor: Cursor) -> Delta:
    if reads.compares:
        return _compare(reads, cursor)
    now = reads.changes(cursor.txid)
    reason = gap(now, cursor)
    if reason is not None:
        return _reset(reads, reason)
    frames = [_batch(reads, now.epoch, batch) for batch in now.batches if _is_sent(reads, batch)]
    last = now.batches[-1] if now.more else now
    return Delta(frames, Cursor(EventId(last.txid, now.epoch), last.attempt, now.catalog_version), now.more)


def gap(now: Changes, cursor: Cursor) -> str | None:
    """Return why the batches after the cursor cannot be sent; None if they can."""
    reason = now.gap(cursor.txid, cursor.attempt, cursor.catalog_version, cursor.event_id.epoch)
    limit = settings.TIDEGAUGE_EVENTS_MAX_BATCHES
    if reason is None and now.txid - cursor.txid > limit:
        return f"more than {limit} batches were committed since batch {cursor.txid}"
    return reason


def _compare(reads: StateReads, cursor: Cursor) -> Delta:
    version = reads.changes(0, batches=0).catalog_version
    # A cursor without results was made while the state still had a changelog.
    if version != cursor.catalog_version or not cursor.results:
        return _reset(reads, "the state was redeclared or reprocessed")
    seen = reads.snapshot()
    at = EventId(seen.txid, seen.epoch)
    if at.epoch != cursor.event_id.epoch:
        return _reset(reads, other_epoch(cursor.txid))
    if seen.txid < cursor.txid or (seen.txid == cursor.txid and seen.attempt != cursor.attempt):
        return _reset(reads, f"batch {cursor.txid} was reverted and may have other values now")
    changed = list(_changed(cursor.results, seen.results)) if seen.txid > cursor.txid else []
    if not changed:
        # Keep the old results, so that rows that expire between two batches are sent with the next one.
        return Delta([], Cursor(at, seen.attempt, version, cursor.results))
    data = _fields(reads, at, seen.batch_time) | {"changes": changed, "complete": True}
    return Delta([frame("batch", data, at)], Cursor(at, seen.attempt, version, seen.results))


def _changed(before: bytes, after: bytes) -> Iterable[dict[str, Any]]:
    known = {orjson.dumps(result["key"]): result for result in orjson.loads(before)}
    return (result for result in orjson.loads(after) if known.get(orjson.dumps(result["key"])) != result)


def _is_sent(reads: StateReads, batch: ChangedBatch) -> bool:
    return reads.subscription.keys is None or not batch.complete or batch.changes != b"[]"


def _batch(reads: StateReads, epoch: str, batch: ChangedBatch) -> Frame:
    content = {"changes": orjson.Fragment(batch.changes), "complete": batch.complete}
    at = EventId(batch.txid, epoch)
    return frame("batch", _fields(reads, at, batch.batch_time) | content, at)


def _fields(reads: StateReads, at: EventId, batch_time: Any) -> dict[str, Any]:
    fields = {"state": reads.subscription.state, "epoch": at.epoch, "txid": at.txid}
    return fields | ({} if batch_time is None else {"batch_time": batch_time})


def _pipelines(conn: psycopg.Connection, subscription: CommitsSubscription) -> dict[str, tuple[Any, ...]]:
    rows = conn.execute(PIPELINES).fetchall()
    return {
        name: tuple(status)
        for name, *status, states in rows
        if subscription.states is None or subscription.states.intersection(states or ())
    }


def _commit(name: str, status: tuple[Any, ...] | None) -> dict[str, Any]:
    return {"pipeline": name, "txid": None if status is None else status[0]}
