"""Server-sent events as text (WHATWG HTML, 9.2): an event per block, its data one line of JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
from django.conf import settings

from state_backends import Snapshot
from state_backends.backends.factory import Reader
from state_backends.reader.changes import ChangedBatch, Changes, changes
from webapp.events.subscriptions import CommitsSubscription, StateSubscription
from webapp.states import readers

HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event, ready to send, so that it is written once for all who get it."""

    event: str
    body: bytes


def frame(event: str, data: dict[str, Any], txid: int | None = None) -> Frame:
    """Return an event. txid: becomes its id, which a client that comes again names in `Last-Event-ID`."""
    number = b"" if txid is None else b"id: %d\n" % txid
    return Frame(event, b"event: %s\n%sdata: %s\n\n" % (event.encode(), number, orjson.dumps(data)))


def standing(txid: int) -> bytes:
    """Return a block that moves a client's last id on and tells it nothing."""
    return b"id: %d\n\n" % txid


def retry(milliseconds: int) -> bytes:
    return b"retry: %d\n\n" % milliseconds


# Steps: what a client is told that stands at one batch and follows to where readers are now. Reads, in a thread.
#
# A step is the same for all who stand there and ask the same, so it is read and written once. Standing includes which
# attempt at the batch was seen, and for keys of a state without changelog what they were: a commit that was set back
# and came out differently must not pass for the one that was told.


# Batches that are read at once by who catches up; so much is held for a client that reads slowly.
PAGE_BATCHES = 20

NO_CHANGELOG = "the state keeps no changelog, so what came since is not on hand"


@dataclass(frozen=True)
class Cursor:
    """Where a client stands: the batch it has been told of. attempt, mark: None where it has only named a txid.

    results: what its keys were then, as a lookup writes it, where batches can only be told by comparing.
    """

    txid: int
    attempt: int | None = None
    mark: str | None = None
    results: bytes = b""


@dataclass(frozen=True)
class CommitsCursor:
    """Where every pipeline stands: name to txid, attempt, and what else a page shows that no commit tells of."""

    pipelines: tuple[tuple[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Delta:
    """frames: what to send. stand: where the client stands then. more: whether to go on at once."""

    frames: Sequence[Frame]
    stand: Any
    more: bool = False


def first_delta(question: StateSubscription, last_txid: int | None) -> Delta:
    """Return what a client is told that has just come; last_txid: the last batch it had been told of, if any."""
    if last_txid is None:
        return readers.read(lambda conn: _begun(_Asked(conn, question), "snapshot", {}))
    return readers.read(lambda conn: _resumed(_Asked(conn, question), Cursor(last_txid)))


def next_delta(question: StateSubscription, stand: Cursor) -> Delta:
    """Return what a client is told that stands at a batch; nothing where readers see that one still."""
    return readers.read(lambda conn: _followed(_Asked(conn, question), stand))


def commits_delta(question: CommitsSubscription, stand: CommitsCursor | None) -> Delta:
    found = readers.read(lambda conn: _tides(conn, question))
    there = CommitsCursor(tuple(sorted(found.items())))
    if stand is None:
        return Delta([frame("ready", {"pipelines": {name: tide[0] for name, tide in found.items()}})], there)
    known = dict(stand.pipelines)
    moved = [frame("tide", _tide(name, tide)) for name, tide in found.items() if known.get(name) != tide]
    gone = [frame("tide", _tide(name, None)) for name in known if name not in found]
    return Delta([*moved, *gone], there)


class _Asked:
    """A question over a connection, and the two ways to read what it asks for."""

    def __init__(self, conn: psycopg.Connection, question: StateSubscription) -> None:
        self.conn = conn
        self.question = question
        self.reader: Reader = readers.reader(conn, question.state)
        self.spec = self.reader.spec

    @property
    def compares(self) -> bool:
        """Whether changes of the keys can only be found by reading them again."""
        return self.question.keys is not None and not self.spec.changelog

    def snapshot(self) -> Snapshot:
        return self.reader.multi_get(self.question.keys or (), self.question.measures)

    def changes(self, after: int, batches: int = PAGE_BATCHES) -> Changes:
        question = self.question
        narrowed: dict[str, Any] = {"keys": question.keys, "prefix": question.prefix, "measures": question.measures}
        limit = settings.TIDEMARK_EVENTS_MAX_CHANGES
        return changes(self.conn, self.spec, after, self._published(), **narrowed, limit=limit, most_batches=batches)

    def _published(self) -> int | None:
        # The ledger knows of a commit before the store of the rows shows it.
        return None if self.spec.backend == "postgres" else self.reader.committed()[0]


def _begun(asked: _Asked, event: str, said: dict[str, Any]) -> Delta:
    """Return where readers are now, told as a beginning: the keys as they are, or for a whole state its batch."""
    if asked.question.keys is None:
        now = asked.changes(0, batches=0)
        name = "ready" if event == "snapshot" else event
        told = frame(name, _head(asked, now.txid, now.as_of) | said, now.txid)
        return Delta([told], Cursor(now.txid, now.attempt, now.catalog_version))
    # The mark first: a declaration that changes in between makes the next look differ.
    mark = asked.changes(0, batches=0).catalog_version
    seen = asked.snapshot()
    results = {"isolation": asked.reader.isolation, "results": orjson.Fragment(seen.results)}
    told = frame(event, _head(asked, seen.txid, seen.as_of) | said | results, seen.txid)
    return Delta([told], Cursor(seen.txid, seen.attempt, mark, seen.results if asked.compares else b""))


def _reset(asked: _Asked, reason: str) -> Delta:
    readers.forget()
    return _begun(_Asked(asked.conn, asked.question), "reset", {"reason": reason})


def _resumed(asked: _Asked, stand: Cursor) -> Delta:
    now = asked.changes(stand.txid, batches=0)
    reason = _gap(asked, now, stand)
    if reason is None and not asked.spec.changelog and (asked.compares or now.txid != stand.txid):
        reason = NO_CHANGELOG
    if reason is not None:
        return _reset(asked, reason)
    told = frame("ready", _head(asked, stand.txid, None) | {"resumed": True}, stand.txid)
    return Delta([told], Cursor(stand.txid, now.attempt_then, now.catalog_version), more=True)


def _followed(asked: _Asked, stand: Cursor) -> Delta:
    if asked.compares:
        return _compared(asked, stand)
    now = asked.changes(stand.txid)
    reason = _gap(asked, now, stand)
    if reason is not None:
        return _reset(asked, reason)
    told = [_batch(asked, batch) for batch in now.batches if _is_worth_telling(asked, batch)]
    last = now.batches[-1] if now.more else now
    return Delta(told, Cursor(last.txid, last.attempt, now.catalog_version), now.more)


def _gap(asked: _Asked, now: Changes, stand: Cursor) -> str | None:
    reason = now.gap(stand.txid, stand.attempt, stand.mark)
    most = settings.TIDEMARK_EVENTS_MAX_BATCHES
    if reason is None and now.txid - stand.txid > most:
        return f"more than {most} batches have come since batch {stand.txid}"
    return reason


def _compared(asked: _Asked, stand: Cursor) -> Delta:
    mark = asked.changes(0, batches=0).catalog_version
    # Without results it was told from a changelog that is gone.
    if mark != stand.mark or not stand.results:
        return _reset(asked, "the state was declared or fed anew")
    seen = asked.snapshot()
    if seen.txid < stand.txid or (seen.txid == stand.txid and seen.attempt != stand.attempt):
        return _reset(asked, f"batch {stand.txid} was set back and may have come out differently")
    changed = list(_differing(stand.results, seen.results)) if seen.txid > stand.txid else []
    if not changed:
        # What expires between two batches is told with the next one.
        return Delta([], Cursor(seen.txid, seen.attempt, mark, stand.results))
    data = _head(asked, seen.txid, seen.as_of) | {"changes": changed, "complete": True}
    return Delta([frame("batch", data, seen.txid)], Cursor(seen.txid, seen.attempt, mark, seen.results))


def _differing(before: bytes, after: bytes) -> Iterable[dict[str, Any]]:
    known = {orjson.dumps(result["key"]): result for result in orjson.loads(before)}
    return (result for result in orjson.loads(after) if known.get(orjson.dumps(result["key"])) != result)


def _is_worth_telling(asked: _Asked, batch: ChangedBatch) -> bool:
    return asked.question.keys is None or not batch.complete or batch.changes != b"[]"


def _batch(asked: _Asked, batch: ChangedBatch) -> Frame:
    told = {"changes": orjson.Fragment(batch.changes), "complete": batch.complete}
    return frame("batch", _head(asked, batch.txid, batch.as_of) | told, batch.txid)


def _head(asked: _Asked, txid: int, as_of: Any) -> dict[str, Any]:
    return {"state": asked.question.state, "txid": txid} | ({} if as_of is None else {"as_of": as_of})


# Beside the commit what pages show of a driver and its pipeline, which nobody announces.
TIDES = """
SELECT p.name, p.committed_txid, p.committed_attempt, tidemark.has_driver(p.name), d.status, d.failures, w.paused,
       (SELECT array_agg(s.name) FROM tidemark.state s WHERE s.pipeline = p.name)
FROM tidemark.pipeline p
LEFT JOIN tidemark.driver d ON d.pipeline = p.name
LEFT JOIN tidemark.pipeline_wish w ON w.pipeline = p.name
WHERE p.reprocesses IS NULL
"""


def _tides(conn: psycopg.Connection, question: CommitsSubscription) -> dict[str, tuple[Any, ...]]:
    rows = conn.execute(TIDES).fetchall()
    return {
        name: tuple(tide)
        for name, *tide, states in rows
        if not question.states or question.states.intersection(states or ())
    }


def _tide(name: str, tide: tuple[Any, ...] | None) -> dict[str, Any]:
    return {"pipeline": name, "txid": None if tide is None else tide[0]}
